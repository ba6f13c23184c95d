//! The name of an MCP server, and of a tool of one.

use box_wire::Invalid;

use crate::limits::MCP_SERVER_NAME_BYTES_MAX;

/// What stands between the name of a server and that of its tool.
pub(super) const BETWEEN: &str = "__";

/// Where a server's name could stand, this one means our own tools.
pub(super) const OURS: &str = "box";

box_wire::checked_text! {
    /// The name of an MCP server: 1 to 64 letters, digits, `_` and `-`, without `__` in it and without `_` at its end. So the first `__` of
    /// `server__tool` is always the one between the two, whatever a server calls its tools.
    pub struct McpServerName = check;
}

impl McpServerName {
    /// A tool or prompt of this server, as clients of the gateway know it.
    pub fn qualify(&self, tool: &str) -> String {
        format!("{}{BETWEEN}{tool}", self.0)
    }

    /// Takes apart what [`McpServerName::qualify`] made. Nothing when it could not have made it.
    pub fn split(qualified: &str) -> Option<(Self, &str)> {
        let (server, tool) = qualified.split_once(BETWEEN)?;
        Some((server.parse().ok()?, tool))
    }

    /// The nearest name to a text that may be none.
    #[must_use]
    pub fn nearest(text: &str) -> Self {
        let kept = |character: char| if is_allowed(character) { character } else { '-' };
        let mut name = String::new();
        for character in text.trim().chars().map(kept).take(MCP_SERVER_NAME_BYTES_MAX) {
            // Two blanks or dots in a row say no more than one.
            let repeats = !character.is_ascii_alphanumeric() && name.ends_with(character);
            if !repeats {
                name.push(character);
            }
        }
        let name = name.trim_matches(['-', '_']);
        if name.is_empty() {
            return Self("server".to_owned());
        }
        name.parse().unwrap_or_else(|_| Self(format!("{name}-server")))
    }

    /// The same name with a number, for a second one that would have it.
    #[must_use]
    pub fn numbered(&self, number: usize) -> Self {
        let ending = format!("-{number}");
        let room = MCP_SERVER_NAME_BYTES_MAX.saturating_sub(ending.len());
        let head = &self.0[..self.0.len().min(room)];
        Self(format!("{}{ending}", head.trim_end_matches('_')))
    }
}

fn is_allowed(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || character == '-'
}

fn check(text: String) -> Result<String, Invalid> {
    if text == OURS {
        return Err(Invalid::new("name", text, "another name; this one stands for our own tools"));
    }
    let is_sized = (1..=MCP_SERVER_NAME_BYTES_MAX).contains(&text.len());
    let is_plain = text.chars().all(is_allowed) && !text.contains(BETWEEN) && !text.ends_with('_');
    if is_sized && is_plain {
        return Ok(text);
    }
    let allowed = format!(
        "1 to {MCP_SERVER_NAME_BYTES_MAX} letters, digits, _ and -, without __ and without _ at the end, such as {}",
        McpServerName::nearest(&text)
    );
    Err(Invalid::new("name", text, allowed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_plain() {
        for good in ["a", "time", "my-server_2", "_x", "-", "A", "Box", "boxes", &"x".repeat(64)] {
            assert!(good.parse::<McpServerName>().is_ok(), "{good:?}");
        }
        for bad in ["", "a b", "a.b", "a/b", "..", "é", "a__b", "__", "a_", "_", "a\n", &"x".repeat(65), "box"] {
            assert_eq!(bad.parse::<McpServerName>().unwrap_err().field, "name", "{bad:?}");
        }
    }

    #[test]
    fn a_refused_name_is_answered_with_the_nearest_one() {
        for (text, nearest) in [
            ("My Server!", "My-Server"),
            ("a__b", "a_b"),
            ("@scope/tool", "scope-tool"),
            ("  ", "server"),
            ("技能", "server"),
        ] {
            assert_eq!(McpServerName::nearest(text).as_str(), nearest);
        }
        assert_eq!(McpServerName::nearest("box").as_str(), "box-server");
        assert!("a b".parse::<McpServerName>().unwrap_err().allowed.ends_with("such as a-b"));
    }

    #[test]
    fn what_nobody_qualified_is_not_taken_apart() {
        for bad in ["tool", "__tool", "a b__tool", "", "box__exec"] {
            assert_eq!(McpServerName::split(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_qualified_tool_is_never_ambiguous(text in ".{0,70}", tool in "[a-z_]{0,6}.{0,6}") {
            let name = McpServerName::nearest(&text);
            let qualified = name.qualify(&tool);
            prop_assert_eq!(McpServerName::split(&qualified), Some((name, tool.as_str())));
        }

        #[test]
        fn two_tools_never_have_one_name(a in "[ab_]{1,4}", b in "[ab_]{1,4}", x in "[ab_]{0,4}", y in "[ab_]{0,4}") {
            if let (Ok(first), Ok(second)) = (a.parse::<McpServerName>(), b.parse::<McpServerName>()) {
                prop_assert_eq!(first.qualify(&x) == second.qualify(&y), a == b && x == y);
            }
        }

        #[test]
        fn the_nearest_name_and_its_numbers_are_names(text in ".{0,80}", number in 2_usize..100_000) {
            let name = McpServerName::nearest(&text);
            prop_assert_eq!(name.as_str().parse::<McpServerName>(), Ok(name.clone()));
            let numbered = name.numbered(number);
            prop_assert_eq!(numbered.as_str().parse::<McpServerName>(), Ok(numbered.clone()));
        }

        #[test]
        fn a_name_is_nearest_to_itself(text in "[a-z0-9]([a-z0-9]|[a-z0-9][_-][a-z0-9]){0,20}") {
            prop_assume!(text != "box");
            let nearest = McpServerName::nearest(&text);
            prop_assert_eq!(nearest.as_str(), text);
        }
    }
}
