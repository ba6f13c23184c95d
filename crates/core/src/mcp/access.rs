//! Which MCP servers and tools a token opens: a list of what it may use, and a list of what it may not.

use std::fmt;

use box_wire::Invalid;
use serde::{Deserialize, Serialize};

use super::name::BETWEEN;

/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 256;
/// Most patterns in one list.
const PATTERNS_MAX: usize = 256;
/// Stands at the end of a part for whatever may follow.
const ANYTHING: &str = "*";

/// What a caller may use of MCP servers: whatever is allowed and not denied. Without lists that is everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Lists")]
pub struct McpAccess {
    /// Nothing means everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    allow: Option<Vec<McpPattern>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deny: Vec<McpPattern>,
}

/// The lists as they were written down, before they are looked at.
#[derive(Deserialize)]
struct Lists {
    #[serde(default)]
    allow: Option<Vec<McpPattern>>,
    #[serde(default)]
    deny: Vec<McpPattern>,
}

/// Servers and tools that are meant: `server`, `server__tool`, `server__prefix*`, or `*`. Names are compared byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct McpPattern {
    text: String,
    server: Part,
    tool: Part,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Exactly(String),
    BeginsWith(String),
}

impl McpAccess {
    /// What is on the first list, or everything where there is none, without what is on the second.
    pub fn new(allow: Option<Vec<McpPattern>>, deny: Vec<McpPattern>) -> Result<Self, Invalid> {
        let longest = deny.len().max(allow.as_ref().map_or(0, Vec::len));
        if longest > PATTERNS_MAX {
            return Err(Invalid::new("patterns", longest.to_string(), format!("at most {PATTERNS_MAX} in a list")));
        }
        Ok(Self { allow, deny })
    }

    /// Whether there are no lists, so that everything may be used.
    pub fn is_everything(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }

    /// What is allowed, where there is a list of it.
    pub fn allow(&self) -> Option<&[McpPattern]> {
        self.allow.as_deref()
    }

    /// What is denied.
    pub fn deny(&self) -> &[McpPattern] {
        &self.deny
    }

    /// Whether a tool or prompt of a server may be used.
    pub fn allows(&self, server: &str, name: &str) -> bool {
        let named = |pattern: &McpPattern| pattern.server.is(server) && pattern.tool.is(name);
        self.allow.as_ref().is_none_or(|allow| allow.iter().any(named)) && !self.deny.iter().any(named)
    }

    /// Whether a server may be used as a whole. Its resources ask for that, which have no names that a pattern could mean; so does
    /// whatever changes the server, or tells what was said to others.
    pub fn allows_all_of(&self, server: &str) -> bool {
        let touched = |pattern: &McpPattern| pattern.server.is(server);
        let whole = |pattern: &McpPattern| touched(pattern) && pattern.tool.is_everything();
        self.allow.as_ref().is_none_or(|allow| allow.iter().any(whole)) && !self.deny.iter().any(touched)
    }

    /// Whether anything of a server may be used.
    pub fn allows_some_of(&self, server: &str) -> bool {
        let touched = |pattern: &McpPattern| pattern.server.is(server);
        let whole = |pattern: &McpPattern| touched(pattern) && pattern.tool.is_everything();
        self.allow.as_ref().is_none_or(|allow| allow.iter().any(touched)) && !self.deny.iter().any(whole)
    }
}

impl TryFrom<Lists> for McpAccess {
    type Error = Invalid;
    fn try_from(lists: Lists) -> Result<Self, Invalid> {
        Self::new(lists.allow, lists.deny)
    }
}

impl Part {
    /// A part of a pattern, if these bytes can be in the name of what it means.
    fn parse(text: &str, good: impl Fn(u8) -> bool) -> Option<Self> {
        let (beginning, is_open) = text.strip_suffix(ANYTHING).map_or((text, false), |beginning| (beginning, true));
        if text.is_empty() || !beginning.bytes().all(good) {
            return None;
        }
        Some(if is_open { Self::BeginsWith(beginning.to_owned()) } else { Self::Exactly(beginning.to_owned()) })
    }

    fn is(&self, text: &str) -> bool {
        match self {
            Self::Exactly(whole) => whole == text,
            Self::BeginsWith(beginning) => text.starts_with(beginning),
        }
    }

    fn is_everything(&self) -> bool {
        matches!(self, Self::BeginsWith(beginning) if beginning.is_empty())
    }
}

impl TryFrom<String> for McpPattern {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        let (server, tool) = text.split_once(BETWEEN).unwrap_or((&text, ANYTHING));
        let of_server = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let of_tool = |byte: u8| of_server(byte) || matches!(byte, b'.' | b'/');
        let parts = Part::parse(server, of_server).zip(Part::parse(tool, of_tool));
        if let Some((server, tool)) = parts.filter(|_| text.len() <= PATTERN_BYTES_MAX) {
            return Ok(Self { text, server, tool });
        }
        let allowed = "SERVER, SERVER__TOOL or *, each part with an asterisk at its end at most";
        Err(Invalid::new("pattern", text, allowed))
    }
}

box_wire::from_text!(McpPattern);

impl fmt::Display for McpPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(allow: Option<&[&str]>, deny: &[&str]) -> McpAccess {
        let parse = |patterns: &[&str]| patterns.iter().map(|text| text.parse().unwrap()).collect::<Vec<McpPattern>>();
        McpAccess::new(allow.map(parse), parse(deny)).unwrap()
    }

    #[test]
    fn what_is_allowed_and_not_denied_may_be_used() {
        // Access, server, tool: the tool, all of the server, some of the server.
        let table = [
            (access(None, &[]), "fs", "read", [true, true, true]),
            (access(Some(&[]), &[]), "fs", "read", [false, false, false]),
            (access(Some(&["fs"]), &[]), "fs", "read", [true, true, true]),
            (access(Some(&["fs"]), &[]), "fs2", "read", [false, false, false]),
            (access(Some(&["fs__read*"]), &[]), "fs", "read_file", [true, false, true]),
            (access(Some(&["fs__read*"]), &[]), "fs", "write_file", [false, false, true]),
            (access(Some(&["*"]), &["fs__write"]), "fs", "write", [false, false, true]),
            (access(Some(&["*"]), &["fs__write"]), "fs", "read", [true, false, true]),
            (access(Some(&["*"]), &["fs"]), "fs", "read", [false, false, false]),
            (access(None, &["f*"]), "fs", "read", [false, false, false]),
            (access(None, &["*__delete"]), "any", "delete", [false, false, true]),
        ];
        for (access, server, tool, expected) in table {
            let got = [access.allows(server, tool), access.allows_all_of(server), access.allows_some_of(server)];
            assert_eq!(got, expected, "{access:?} {server} {tool}");
        }
    }

    #[test]
    fn only_the_very_name_is_meant() {
        let access = access(Some(&["fs__read"]), &[]);
        assert!(access.allows("fs", "read"));
        // Capitals, blanks, letters of other scripts and of full width, and a mark that joins the one before.
        let others =
            ["Read", "READ", " read", "read ", "read\n", "r\u{435}ad", "\u{ff52}ead", "rea\u{301}d", "rea\u{200b}d"];
        for other in others {
            assert!(!access.allows("fs", other), "{other:?}");
        }
        for server in ["FS", "fs ", " fs", "\u{ff46}s"] {
            assert!(!access.allows(server, "read") && !access.allows_some_of(server), "{server:?}");
        }
    }

    #[test]
    fn patterns_that_mean_nothing_are_refused() {
        for bad in ["", "__x", "x__", "a*b", "a b", "a**", "a.b", "é", "fs__r\u{435}ad", "a\n", &"x".repeat(300)] {
            let error = bad.parse::<McpPattern>().unwrap_err();
            assert!(error.field == "pattern" && error.to_string().contains("SERVER__TOOL"), "{bad}: {error}");
        }
        let many = vec!["a".parse::<McpPattern>().unwrap(); PATTERNS_MAX + 1];
        assert!(McpAccess::new(Some(many.clone()), Vec::new()).is_err() && McpAccess::new(None, many).is_err());
    }

    #[test]
    fn lists_are_written_down_and_read_again() {
        let lists = access(Some(&["fs__read*", "*"]), &["fs__write"]);
        let written = serde_json::to_value(&lists).unwrap();
        assert_eq!(written, serde_json::json!({"allow": ["fs__read*", "*"], "deny": ["fs__write"]}));
        assert_eq!(serde_json::from_value::<McpAccess>(written).unwrap(), lists);
        assert!(serde_json::from_str::<McpAccess>("{}").unwrap().is_everything());
        let nothing = serde_json::from_str::<McpAccess>("{\"allow\": []}").unwrap();
        assert!(!nothing.is_everything() && !nothing.allows("fs", "read"));
        assert!(serde_json::from_str::<McpAccess>("{\"deny\": [\"a b\"]}").is_err(), "a list that means less");
    }
}
