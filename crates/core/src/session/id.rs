//! The caller's own name for a session.

use box_wire::Invalid;

use crate::limits;

box_wire::checked_text! {
    /// The caller's own name for a session: any readable text. It never becomes a name of a file, cgroup or container; the box
    /// behind it has an id of ours for that, so that no two sessions can meet in one box however they are spelled.
    pub struct SessionId = check;
}

fn check(text: String) -> Result<String, Invalid> {
    let clean = text.trim() == text && !text.is_empty() && !text.chars().any(is_treacherous);
    if clean && text.len() <= limits::SESSION_ID_BYTES_MAX {
        return Ok(text);
    }
    let max = limits::SESSION_ID_BYTES_MAX;
    let allowed = format!("1 to {max} bytes of readable text, without control characters or blanks at the ends");
    Err(Invalid::new("session_id", text, allowed))
}

/// Characters that a person who reads a log or a list would not see for what they are.
fn is_treacherous(character: char) -> bool {
    let marks = ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2060}'..='\u{206f}', '\u{feff}'..='\u{feff}'];
    character.is_control() || marks.iter().any(|range| range.contains(&character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_readable_text() {
        for good in ["a", "group_42", "a:b", "a/b", "../x", "用户-1", &"x".repeat(limits::SESSION_ID_BYTES_MAX)] {
            assert!(good.parse::<SessionId>().is_ok(), "{good:?}");
        }
        let long = "x".repeat(limits::SESSION_ID_BYTES_MAX + 1);
        for bad in ["", " a", "a ", "a\nb", "a\0", "a\u{202e}b", "a\u{200b}", long.as_str()] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad:?}");
        }
    }
}
