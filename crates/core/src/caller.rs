//! Who is asking, and what they may ask.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use box_wire::Invalid;
use serde::{Deserialize, Serialize};

use crate::mcp::{self, McpAccess};
use crate::session::SessionPattern;
use crate::{Error, Result, SessionId, limits};

/// Who is asking. Made by a door from a token, never from what the caller says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Name for the audit log.
    pub subject: String,
    /// The public id of its token. Names of tokens need not differ, ids do.
    pub token_id: Option<String>,
    /// Whose sessions the caller sees.
    pub tenant: TenantId,
    /// What the caller may do.
    pub scopes: BTreeSet<Scope>,
    /// A bound that its door has set, besides the operator's.
    pub ceiling: Option<Ceiling>,
    /// The profile to which its token is bound. It gets no other, and no session that has another.
    pub profile: Option<String>,
    /// The sessions to which its token or its address is bound. It names no other, and finds no other.
    pub session: Option<SessionPattern>,
    /// What it may use of MCP servers.
    pub mcp: McpAccess,
    /// Whether its scope `admin` opens the boxes of MCP servers too.
    pub opens_server_boxes: bool,
    /// The query of an agent for which it asks, where its door knows: remembered with what goes wrong.
    pub query_id: Option<String>,
}

/// The subject of the single user of a machine. Those of tokens begin with `token:`.
const LOCAL: &str = "local";

/// How much all callers of one door may hold together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceiling {
    /// Whose sessions count: those of tenants whose name starts with one of these.
    pub tenant_prefixes: Vec<String>,
    /// Most sessions of them at once.
    pub max_sessions: usize,
    /// Most running managed processes of them at once.
    pub max_managed_processes: usize,
}

impl Ceiling {
    /// Whether what this tenant holds counts.
    fn counts(&self, tenant: &TenantId) -> bool {
        self.tenant_prefixes.iter().any(|prefix| tenant.as_str().starts_with(prefix))
    }
}

/// A right that a token can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Sessions, execs and processes.
    Exec,
    /// Files of a session.
    Files,
    /// Skill packages.
    Skills,
    /// Definitions of MCP servers.
    Mcp,
    /// Tokens, the audit log, and what concerns all tenants.
    Admin,
}

impl Scope {
    /// All there are.
    pub const ALL: [Self; 5] = [Self::Exec, Self::Files, Self::Skills, Self::Mcp, Self::Admin];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Files => "files",
            Self::Skills => "skills",
            Self::Mcp => "mcp",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| Invalid::new("scope", text, "exec, files, skills, mcp or admin"))
    }
}

impl Caller {
    /// The single user of a machine, who came in by its own loopback or socket without a token.
    pub fn local() -> Self {
        Self {
            subject: LOCAL.to_owned(),
            token_id: None,
            tenant: TenantId::default(),
            scopes: Scope::ALL.into(),
            ceiling: None,
            profile: None,
            session: None,
            mcp: McpAccess::default(),
            opens_server_boxes: true,
            query_id: None,
        }
    }

    /// Who came over TCP without a token, while there is none: any account of the machine. The boxes of MCP servers are not theirs.
    pub fn loopback() -> Self {
        Self { opens_server_boxes: false, ..Self::local() }
    }

    /// The same for tools, which a model uses. Who came without a token is the owner of the machine, and the model is not: only a
    /// token with the scope `admin` makes it one.
    #[must_use]
    pub fn for_tools(mut self) -> Self {
        self.opens_server_boxes &= self.subject != LOCAL;
        self
    }

    /// The same, bound to one session. Refused where the caller is bound to others, or may not use that one.
    pub fn bound_to(&self, session: &SessionId) -> Result<Self> {
        self.check_session(session)?;
        Ok(Self { session: Some(SessionPattern::Exactly(session.clone())), ..self.clone() })
    }

    /// The limit that is reached, when one is: everybody's, or that of the caller's door. `held` counts what tenants have, those
    /// for whom the question is answered with yes.
    pub(crate) fn limit_reached(
        &self,
        held: impl Fn(&dyn Fn(&TenantId) -> bool) -> usize,
        everybodys: usize,
        of_door: impl Fn(&Ceiling) -> usize,
    ) -> Option<usize> {
        if held(&|_| true) >= everybodys {
            return Some(everybodys);
        }
        let ceiling = self.ceiling.as_ref()?;
        let limit = of_door(ceiling);
        (held(&|tenant| ceiling.counts(tenant)) >= limit).then_some(limit)
    }

    /// Refuses a session of another profile than the one to which the caller is bound: it may be able to do more.
    pub(crate) fn check_profile(&self, session: &SessionId, profile: &str) -> Result<()> {
        match self.profile.as_deref() {
            Some(bound) if bound != profile => Err(Error::Conflict {
                what: format!("session {session} has the profile {profile}, and this token is bound to {bound}"),
                fix: "use another session_id".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether the caller may know of a session. Those of MCP servers hold the secrets of all servers of a tenant, and in them
    /// the caller could speak with any server past its lists.
    pub fn sees_session(&self, session: &SessionId) -> bool {
        let is_bound_elsewhere = self.session.as_ref().is_some_and(|bound| !bound.is_met_by(session));
        let may_see_servers =
            self.opens_server_boxes && self.scopes.contains(&Scope::Admin) && self.mcp.is_everything();
        !is_bound_elsewhere && (may_see_servers || !mcp::is_of_servers(session.as_str()))
    }

    /// Refuses a session of which the caller may not know.
    pub(crate) fn check_session(&self, session: &SessionId) -> Result<()> {
        if self.sees_session(session) {
            return Ok(());
        }
        if let Some(bound) = self.session.as_ref().filter(|bound| !bound.is_met_by(session)) {
            let allowed = format!("{bound}, to which the caller is bound");
            return Err(Invalid::new("session_id", session.as_str(), allowed).into());
        }
        Err(Error::Conflict {
            what: format!("session {session} is reserved for MCP servers"),
            fix: "use another session_id, or a token with the scope admin and without lists of MCP servers".to_owned(),
        })
    }

    /// Refuses unless the caller has a right.
    pub fn require(&self, scope: Scope) -> Result<()> {
        if self.scopes.contains(&scope) { Ok(()) } else { Err(Error::Forbidden { scope }) }
    }
}

box_wire::checked_text! {
    /// Whose sessions these are. Tenants never see each other.
    pub struct TenantId = check_tenant;
}

impl Default for TenantId {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

fn check_tenant(text: String) -> Result<String, Invalid> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !text.is_empty() && text.len() <= limits::TENANT_BYTES_MAX && text.bytes().all(good) {
        return Ok(text);
    }
    let allowed = format!("1 to {} letters, digits, dashes, dots and underscores", limits::TENANT_BYTES_MAX);
    Err(Invalid::new("tenant", text, allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_that_is_not_there_is_named() {
        let caller = Caller { scopes: [Scope::Exec].into(), ..Caller::local() };
        assert!(caller.require(Scope::Exec).is_ok());
        assert!(caller.require(Scope::Admin).unwrap_err().to_string().contains("admin"));
    }

    #[test]
    fn who_is_bound_to_a_profile_uses_no_session_of_another() {
        let id: SessionId = "s".parse().unwrap();
        let bound = Caller { profile: Some("strict".into()), ..Caller::local() };
        assert!(bound.check_profile(&id, "strict").is_ok());
        let error = bound.check_profile(&id, "network_extended").unwrap_err().to_string();
        assert!(error.contains("network_extended") && error.contains("strict"), "{error}");
        assert!(Caller::local().check_profile(&id, "network_extended").is_ok());
    }

    #[test]
    fn only_admins_without_lists_of_servers_use_sessions_of_servers() {
        let lists = McpAccess::new(None, vec!["files".parse().unwrap()]).unwrap();
        let listed = Caller { mcp: lists, ..Caller::local() };
        let worker = Caller { scopes: [Scope::Exec, Scope::Files, Scope::Mcp].into(), ..Caller::local() };
        for of_servers in ["mcp-shared", "mcp-shared-0a1b2c3d", "mcp-test-1"] {
            let id: SessionId = of_servers.parse().unwrap();
            for caller in [&listed, &worker] {
                assert!(caller.check_session(&id).unwrap_err().to_string().contains("another session_id"), "{id}");
            }
            assert!(Caller::local().check_session(&id).is_ok(), "{id}");
        }
        assert!(worker.check_session(&"mcp".parse().unwrap()).is_ok());
    }

    #[test]
    fn who_is_bound_to_a_session_names_no_other() {
        let (own, other) = ("chat-1".parse().unwrap(), "chat-2".parse().unwrap());
        let bound = Caller::local().bound_to(&own).unwrap();
        assert!(bound.check_session(&own).is_ok() && !bound.sees_session(&other));
        let error = bound.check_session(&other).unwrap_err().to_string();
        assert!(error.contains("session_id") && error.contains("chat-2") && error.contains("chat-1"), "{error}");
        assert!(bound.bound_to(&other).is_err(), "a binding is never widened");
        let chats = Caller { session: Some("chat-*".parse().unwrap()), ..Caller::local() };
        assert!(chats.sees_session(&own) && chats.sees_session(&other));
        assert!(!chats.sees_session(&"mail".parse().unwrap()) && chats.bound_to(&own).is_ok());
    }

    #[test]
    fn tools_are_no_admins_unless_a_token_says_so() {
        let id: SessionId = "mcp-shared".parse().unwrap();
        assert!(Caller::local().sees_session(&id) && !Caller::loopback().sees_session(&id));
        assert!(!Caller::local().for_tools().sees_session(&id));
        assert!(Caller { subject: "token:ops".into(), ..Caller::local() }.for_tools().sees_session(&id));
    }

    #[test]
    fn tenants_have_plain_names() {
        for bad in ["", "a/b", "a b", "é", "a\n", &"x".repeat(65)] {
            assert!(bad.parse::<TenantId>().is_err(), "{bad:?}");
        }
        assert_eq!("Acme-1.x_y".parse::<TenantId>().unwrap().as_str(), "Acme-1.x_y");
    }
}
