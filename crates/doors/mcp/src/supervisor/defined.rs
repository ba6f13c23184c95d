//! A server that is defined, and the rights of its author.

use box_core::hexadecimal::sha256;
use box_core::mcp::{McpAccess, McpServerName, McpSource};
use box_core::store::{McpServerKey, McpServerRow};
use box_core::{Caller, Result, Scope, TenantId};
use box_wire::Invalid;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::{Kind, ServerDefinition};

/// Where a row says who defined a server. Definitions have no such field, and what a caller puts there is not kept.
const AUTHOR: &str = "defined_by";

/// Characters of an edition: enough to distinguish two definitions of one server, too few to guess a secret by.
const EDITION_CHARS: usize = 8;

/// A server that is defined.
#[derive(Debug, Clone)]
pub(super) struct Defined {
    /// Whose it is, and what it is called.
    pub(super) key: McpServerKey,
    /// What it is.
    pub(super) definition: ServerDefinition,
    /// Where that is kept.
    pub(super) source: McpSource,
    /// The rights of its author.
    pub(super) author: Author,
    /// When it was last changed.
    pub(super) updated_at: Option<Timestamp>,
}

/// The rights of the author of a definition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Author {
    /// Whether the author is the operator of this machine, whose servers share boxes, may run on the host if no box is
    /// available, and mount directories that others may not, unless those are denied to all.
    #[serde(default)]
    pub(super) is_operator: bool,
    /// The id of its token. Its servers share boxes only with each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    /// The profile to which its token is bound. Its servers get no other.
    #[serde(default)]
    pub(super) profile: Option<String>,
}

/// Whose servers share boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Owner<'a> {
    /// Those of a token.
    Token(&'a str),
    /// Only one server.
    Server(&'a str),
}

impl Author {
    /// Who writes the configuration.
    pub(super) fn operator() -> Self {
        Self { is_operator: true, ..Self::default() }
    }

    /// The author for a caller. A caller that is held to something, or came over TCP without a token, does not rule the
    /// machine.
    pub(super) fn of(caller: &Caller) -> Self {
        let is_free = caller.profile.is_none() && caller.session.is_none() && caller.mcp.is_everything();
        let is_operator = is_free && caller.opens_server_boxes && caller.scopes.contains(&Scope::Admin);
        Self { is_operator, token: caller.token_id.clone(), profile: caller.profile.clone() }
    }
}

impl Defined {
    /// What a caller defines now.
    pub(super) fn by(caller: &Caller, name: &McpServerName, definition: &Value) -> Result<Self> {
        let key = McpServerKey { tenant: caller.tenant.clone(), name: name.clone() };
        let definition = read(name, definition)?;
        let updated_at = Some(Timestamp::now());
        Ok(Self { key, definition, source: McpSource::Stored, author: Author::of(caller), updated_at })
    }

    /// What the configuration says. It is the owner's of the machine.
    pub(super) fn configured(name: &McpServerName, definition: &Value) -> Result<Self, Invalid> {
        let key = McpServerKey { tenant: TenantId::default(), name: name.clone() };
        let definition = read(name, definition)?;
        Ok(Self { key, definition, source: McpSource::Config, author: Author::operator(), updated_at: None })
    }

    /// What the store remembers.
    pub(super) fn stored(row: McpServerRow) -> Result<Self, Invalid> {
        let McpServerRow { key, definition, enabled, updated_at } = row;
        // A row without an author gets the fewest rights.
        let author = definition.get(AUTHOR).and_then(|author| Author::deserialize(author).ok()).unwrap_or_default();
        let definition = ServerDefinition { enabled, ..read(&key.name, &definition)? };
        Ok(Self { key, definition, source: McpSource::Stored, author, updated_at: Some(updated_at) })
    }

    /// Whether it runs the program of its box's image.
    pub(super) fn runs_image(&self) -> bool {
        matches!(&self.definition.kind, Kind::Stdio(stdio) if stdio.is_of_image())
    }

    /// What the store has to remember.
    pub(super) fn row(&self) -> McpServerRow {
        let mut definition = self.definition.revealed();
        if let Value::Object(fields) = &mut definition {
            fields.insert(AUTHOR.to_owned(), serde_json::to_value(&self.author).unwrap_or_default());
        }
        McpServerRow {
            key: self.key.clone(),
            definition,
            enabled: self.definition.enabled,
            updated_at: self.updated_at.unwrap_or_else(Timestamp::now),
        }
    }

    /// Whose servers share boxes with this one; `None` for the operator's. Without a token callers cannot be
    /// distinguished, so the server is alone.
    pub(super) fn owner(&self) -> Option<Owner<'_>> {
        let Author { is_operator, token, .. } = &self.author;
        let owner = token.as_deref().map_or(Owner::Server(self.key.name.as_str()), Owner::Token);
        (!is_operator).then_some(owner)
    }

    /// Tells this definition from any other of the same server. `salt` keeps it from telling anything else.
    pub(super) fn edition(&self, salt: &str) -> String {
        let whole = format!("{salt}\n{}\n{}", self.definition.revealed(), self.author.is_operator);
        sha256(whole.as_bytes())[..EDITION_CHARS].to_owned()
    }

    /// In whose name its session is made and used.
    pub(super) fn caller(&self) -> Caller {
        Caller {
            subject: format!("mcp:{}", self.key.name),
            token_id: None,
            tenant: self.key.tenant.clone(),
            // Sessions of servers are for admins only.
            scopes: [Scope::Exec, Scope::Admin].into(),
            ceiling: None,
            profile: self.author.profile.clone(),
            session: None,
            mcp: McpAccess::default(),
            opens_server_boxes: true,
            query_id: None,
        }
    }
}

fn read(name: &McpServerName, definition: &Value) -> Result<ServerDefinition, Invalid> {
    ServerDefinition::named(name.clone(), definition)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name() -> McpServerName {
        "time".parse().unwrap()
    }

    #[test]
    fn what_is_kept_is_found_again_with_who_wrote_it() {
        let whole = json!({"command": "uvx", "args": ["a"], "env": {"KEY": "sesame"}, "enabled": false});
        let bound = Caller { profile: Some("offline_readonly".to_owned()), ..Caller::local() };
        let lists = McpAccess::new(None, vec!["files".parse().unwrap()]).unwrap();
        let listed = Caller { mcp: lists, ..Caller::local() };
        let token = Caller { token_id: Some("a1".to_owned()), ..Caller::local() };
        let callers =
            [(Caller::local(), true), (token, true), (bound, false), (listed, false), (Caller::loopback(), false)];
        for (caller, is_operator) in callers {
            let defined = Defined::by(&caller, &name(), &whole).unwrap();
            let found = Defined::stored(defined.row()).unwrap();
            assert_eq!((&found.definition, &found.author), (&defined.definition, &defined.author));
            assert_eq!((found.author.is_operator, found.author.profile), (is_operator, caller.profile));
            assert!(!found.definition.enabled);
        }
    }

    #[test]
    fn nobody_becomes_the_operator_by_saying_so() {
        let claimed = json!({"command": "uvx", "defined_by": {"is_operator": true}});
        let stranger = Caller { scopes: [Scope::Exec, Scope::Mcp].into(), ..Caller::local() };
        let defined = Defined::by(&stranger, &name(), &claimed).unwrap();
        assert!(!defined.author.is_operator);
        assert!(!Defined::stored(defined.row()).unwrap().author.is_operator);
    }

    #[test]
    fn an_edition_changes_with_a_secret_and_tells_nothing_of_it() {
        let of = |value: &str, salt: &str| {
            let definition = json!({"command": "a", "env": {"KEY": value}});
            Defined::configured(&name(), &definition).unwrap().edition(salt)
        };
        assert_eq!(of("sesame", "x"), of("sesame", "x"));
        assert_ne!(of("sesame", "x"), of("other", "x"));
        assert_ne!(of("sesame", "x"), of("sesame", "y"));
    }
}
