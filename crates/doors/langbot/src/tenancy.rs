//! Whose request it is: workspaces of an instance, their generations, and the names of sessions in them.

use box_core::hexadecimal::hexadecimal;
use box_core::{Caller, SessionId, TenantId};
use sha2::{Digest, Sha256};

use super::fault::{Class, Fault};
use super::held::caller_of;

/// The tenant of all clients that name nothing.
pub(crate) const LEGACY_TENANT: &str = "langbot";
/// How the tenants of workspaces begin.
pub(crate) const WORKSPACE_TENANT_PREFIX: &str = "ws-";

/// Longest id of an instance.
const INSTANCE_ID_BYTES_MAX: usize = 128;

/// An instance of LangBot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct InstanceId(String);

impl InstanceId {
    /// Takes an id as a client or the operator wrote it; nothing when it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut bytes = text.bytes();
        let starts_well = bytes.next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
        (starts_well && text.len() <= INSTANCE_ID_BYTES_MAX && bytes.all(is_good)).then(|| Self(text.to_owned()))
    }

    /// The id as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The scope of a request's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TenancyScope {
    /// Those of clients that name nothing.
    Legacy,
    /// Those of one generation of a workspace.
    Workspace {
        /// Stands for instance and workspace; also the tenant.
        namespace: String,
        /// Which generation.
        generation: u64,
    },
}

impl TenancyScope {
    /// The place of one generation of a workspace.
    pub(crate) fn workspace(instance: &InstanceId, workspace_uuid: &str, generation: u64) -> Self {
        Self::Workspace { namespace: namespace(instance, workspace_uuid), generation }
    }

    /// The tenant of these sessions.
    pub(crate) fn tenant(&self) -> Result<TenantId, Fault> {
        let name = match self {
            Self::Legacy => LEGACY_TENANT,
            Self::Workspace { namespace, .. } => namespace,
        };
        name.parse().map_err(|invalid: box_wire::Invalid| Fault::new(Class::Validation, invalid.to_string()))
    }

    /// The caller as the service knows it.
    pub(crate) fn caller(&self) -> Result<Caller, Fault> {
        Ok(caller_of(self.tenant()?))
    }

    /// Our id of the session that the client calls `logical`. No two of the client's names mean one session.
    pub(crate) fn session_id(&self, logical: &str) -> Result<SessionId, Fault> {
        let logical = logical.trim();
        let text = match self {
            Self::Legacy => logical.to_owned(),
            Self::Workspace { .. } if clean(logical).is_empty() => {
                return Err(Fault::new(Class::Validation, "Box session_id must contain a valid character"));
            }
            Self::Workspace { .. } => format!("{}{logical}", self.session_prefix()),
        };
        text.parse().map_err(|invalid: box_wire::Invalid| Fault::new(Class::Validation, invalid.to_string()))
    }

    /// The client's name of a session.
    pub(crate) fn logical<'a>(&self, id: &'a SessionId) -> &'a str {
        match self {
            Self::Legacy => id.as_str(),
            Self::Workspace { .. } => id.as_str().strip_prefix(&self.session_prefix()).unwrap_or(id.as_str()),
        }
    }

    /// How our ids of the sessions of this place begin.
    pub(crate) fn session_prefix(&self) -> String {
        match self {
            Self::Legacy => String::new(),
            Self::Workspace { generation, .. } => format!("g{generation}-"),
        }
    }

    /// The id of a session in replies.
    pub(crate) fn shown(&self, logical: &str) -> String {
        match self {
            Self::Legacy => logical.trim().to_owned(),
            Self::Workspace { .. } => clean(logical),
        }
    }

    /// The id of a session in the texts of errors, and in the URL of its relay.
    pub(crate) fn physical(&self, logical: &str) -> String {
        match self {
            Self::Legacy => logical.trim().to_owned(),
            Self::Workspace { .. } => format!("{}{}", self.physical_prefix(), clean(logical)),
        }
    }

    /// How the physical ids of this place begin.
    pub(crate) fn physical_prefix(&self) -> String {
        match self {
            Self::Legacy => String::new(),
            Self::Workspace { namespace, generation } => format!("{namespace}-g{generation}-"),
        }
    }
}

/// The generation in which a session of a workspace was made.
pub(crate) fn generation_of(id: &SessionId) -> Option<u64> {
    let (generation, _) = id.as_str().strip_prefix('g')?.split_once('-')?;
    generation.parse().ok()
}

/// Stands for a workspace of an instance. Clients compute the same.
pub(crate) fn namespace(instance: &InstanceId, workspace_uuid: &str) -> String {
    let digest = Sha256::digest([instance.as_str().as_bytes(), b"\0", workspace_uuid.as_bytes()].concat());
    format!("{WORKSPACE_TENANT_PREFIX}{}", hexadecimal(&digest[..12]))
}

/// A name without anything that could not be in the name of a container. Different names can become one.
pub(crate) fn clean(logical: &str) -> String {
    let is_good = |character: &char| character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '-');
    let mut cleaned = String::new();
    let mut is_in_run = false;
    for character in logical.trim().chars() {
        let good = is_good(&character);
        if good {
            cleaned.push(character);
        } else if !is_in_run {
            cleaned.push('-');
        }
        is_in_run = !good;
    }
    cleaned.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_ids_are_those_that_clients_compute() {
        let instance = InstanceId::parse(" cap-instance ").unwrap();
        let place = TenancyScope::workspace(&instance, "cap-workspace", 1);
        assert_eq!(place.physical("s6"), "ws-abdf8557701b26b69a32b012-g1-s6");
        assert_eq!(place.tenant().unwrap().as_str(), "ws-abdf8557701b26b69a32b012");
    }

    #[test]
    fn names_are_shown_clean_and_kept_apart() {
        let place = TenancyScope::workspace(&InstanceId::parse("i").unwrap(), "w", 7);
        for (logical, shown) in [("a:b", "a-b"), (" a b ", "a-b"), ("a::/b", "a-b"), ("-x-", "x"), ("é1", "1")] {
            assert_eq!(place.shown(logical), shown, "{logical}");
        }
        assert_ne!(place.session_id("a:b").unwrap(), place.session_id("a-b").unwrap());
        assert_eq!(place.logical(&place.session_id("a:b").unwrap()), "a:b");
        assert_eq!(generation_of(&place.session_id("a-b").unwrap()), Some(7));
        assert!(place.session_id("::").unwrap_err().to_string().contains("must contain a valid character"));
    }

    #[test]
    fn instances_have_plain_names() {
        for bad in ["", " ", "-a", "a b", "é", &"a".repeat(129)] {
            assert_eq!(InstanceId::parse(bad), None, "{bad:?}");
        }
        assert!(InstanceId::parse("A0._:-").is_some());
    }
}
