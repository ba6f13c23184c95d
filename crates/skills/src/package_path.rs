//! Paths within a package, as callers write them.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result, shown};
use crate::limits::{COMPONENT_BYTES_MAX, PATH_BYTES_MAX, PATH_DEPTH_MAX};

/// Parses a path within a package. Blanks around it do not count, empty means the package itself, and `..` is fine as long
/// as it leads nowhere outside.
pub(crate) fn parse(path: &str) -> Result<PathBuf> {
    let path = path.trim();
    if path.starts_with('/') {
        return Err(Error::PathAbsolute { path: shown(path) });
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or_else(|| Error::PathOutside { path: shown(path), why: "" })?;
            }
            part => parts.push(part),
        }
    }
    match unusable(&parts) {
        Some(reason) => Err(Error::PathUnusable { path: shown(path), reason }),
        None => Ok(parts.iter().collect()),
    }
}

/// Why parts cannot be a path, if they cannot.
pub(crate) fn unusable(parts: &[&str]) -> Option<&'static str> {
    let length: usize = parts.iter().map(|part| part.len() + 1).sum();
    if length > PATH_BYTES_MAX {
        Some("it is too long")
    } else if parts.len() > PATH_DEPTH_MAX {
        Some("it is too deep")
    } else if parts.iter().any(|part| part.len() > COMPONENT_BYTES_MAX) {
        Some("a name in it is too long")
    } else if parts.iter().any(|part| part.contains(char::is_control)) {
        Some("it has control characters")
    } else {
        None
    }
}

/// A path in answers to clients: `.` for the package itself.
pub(crate) fn told(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".into() } else { crate::skill::told(path) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_are_made_plain() {
        let table =
            [("", ""), (".", ""), (" a/b ", "a/b"), ("./a//b/", "a/b"), ("a/../b", "b"), ("a/..", ""), ("..a", "..a")];
        for (path, expected) in table {
            assert_eq!(parse(path).unwrap(), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        let table = [
            ("/etc/passwd", "path must be relative to the skill package root"),
            ("..", "path must stay within the skill package root"),
            ("a/../../b", "path must stay within the skill package root"),
            ("a\0b", "control characters"),
            ("a\nb", "control characters"),
        ];
        for (path, expected) in table {
            let text = parse(path).unwrap_err().to_string();
            assert!(text.contains(expected), "{path}: {text}");
        }
        assert!(parse(&"a/".repeat(PATH_DEPTH_MAX + 1)).is_err());
        assert!(parse(&"a".repeat(COMPONENT_BYTES_MAX + 1)).is_err());
    }

    proptest! {
        #[test]
        fn what_is_accepted_has_only_plain_parts(path in "([a-z.]{0,3}/){0,6}[a-z.\\PC]{0,4}") {
            if let Ok(parsed) = parse(&path) {
                let plain = |part| matches!(part, std::path::Component::Normal(_));
                prop_assert!(parsed.components().all(plain), "{parsed:?}");
            }
        }
    }
}
