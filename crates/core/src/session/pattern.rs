//! Sessions that a token or an address is bound to: one id, or all that begin alike.

use std::fmt;

use box_wire::Invalid;
use serde::{Deserialize, Serialize};

use super::SessionId;

/// Stands at the end of a pattern for whatever may follow.
const ANYTHING: char = '*';

/// Sessions by name: `ID`, or `PREFIX*`. Names are compared byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SessionPattern {
    /// This one.
    Exactly(SessionId),
    /// All whose id begins like this.
    BeginsWith(SessionId),
}

impl SessionPattern {
    /// Whether a session is meant.
    pub fn is_met_by(&self, session: &SessionId) -> bool {
        match self {
            Self::Exactly(id) => session == id,
            Self::BeginsWith(prefix) => session.as_str().starts_with(prefix.as_str()),
        }
    }

    /// The session to make where no id is given: the only one, or the prefix followed by `suffix`.
    pub fn id_with(&self, suffix: &str) -> Result<SessionId, Invalid> {
        match self {
            Self::Exactly(id) => Ok(id.clone()),
            Self::BeginsWith(prefix) => format!("{prefix}{suffix}").parse(),
        }
    }

    /// The only session that is meant, where that is one.
    pub fn only(&self) -> Option<&SessionId> {
        match self {
            Self::Exactly(id) => Some(id),
            Self::BeginsWith(_) => None,
        }
    }
}

impl TryFrom<String> for SessionPattern {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        let refused = |_| Invalid::new("session", text.as_str(), "a session id, or the beginning of one and *");
        match text.strip_suffix(ANYTHING) {
            Some(prefix) => prefix.parse().map(Self::BeginsWith).map_err(refused),
            None => text.parse().map(Self::Exactly).map_err(refused),
        }
    }
}

box_wire::from_text!(SessionPattern);

impl fmt::Display for SessionPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(id) => f.write_str(id.as_str()),
            Self::BeginsWith(prefix) => write!(f, "{prefix}{ANYTHING}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_one_session_or_all_that_begin_alike() {
        let one: SessionPattern = "chat-1".parse().unwrap();
        let many: SessionPattern = "chat-*".parse().unwrap();
        let met = |pattern: &SessionPattern, id: &str| pattern.is_met_by(&id.parse().unwrap());
        assert!(met(&one, "chat-1") && !met(&one, "chat-12") && !met(&one, "chat"));
        assert!(met(&many, "chat-1") && met(&many, "chat-") && !met(&many, "chat") && !met(&many, "Chat-1"));
        assert_eq!((one.to_string(), many.to_string()), ("chat-1".to_owned(), "chat-*".to_owned()));
        let made = |pattern: &SessionPattern| pattern.id_with("s-1").unwrap().to_string();
        assert_eq!((made(&one), made(&many)), ("chat-1".to_owned(), "chat-s-1".to_owned()));
        for bad in ["", "*", "a\n*"] {
            assert_eq!(bad.parse::<SessionPattern>().unwrap_err().field, "session", "{bad:?}");
        }
    }
}
