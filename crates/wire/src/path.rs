//! Paths inside a box: absolute and normalized, or they do not exist.

use crate::{Invalid, limits};

crate::checked_text! {
    /// An absolute path inside a box, without `.`, `..`, empty components, control characters or a trailing slash.
    ///
    /// It is only a name: components may be links. The code that opens it inside the box decides whether to follow them.
    pub struct GuestPath = |text| normalise("path", &text);
}

impl GuestPath {
    /// `/`.
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// Takes a path for `field`, normalising a trailing slash and nothing else.
    pub fn parse(field: &'static str, text: &str) -> Result<Self, Invalid> {
        normalise(field, text).map(Self)
    }

    /// The path without its leading `/`, for `openat` below the root.
    pub fn relative(&self) -> &str {
        &self.0[1..]
    }

    /// Whether `self` is `other` or lies below it, compared by components.
    pub fn is_within(&self, other: &Self) -> bool {
        other.0 == "/" || self.0 == other.0 || self.0.strip_prefix(&other.0).is_some_and(|rest| rest.starts_with('/'))
    }

    /// The last component; empty for `/`.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The path one level up; `/` is its own parent.
    #[must_use]
    pub fn parent(&self) -> Self {
        match self.0.rfind('/') {
            Some(0) | None => Self::root(),
            Some(cut) => Self(self.0[..cut].to_owned()),
        }
    }
}

fn normalise(field: &'static str, text: &str) -> Result<String, Invalid> {
    let refuse = |allowed: &str| Err(Invalid::new(field, text, allowed));
    if text.len() > limits::PATH_BYTES_MAX {
        return refuse("at most 4095 bytes");
    }
    if !text.starts_with('/') {
        return refuse("an absolute path such as /workspace");
    }
    if text.chars().any(char::is_control) {
        return refuse("no NUL, newline or other control characters");
    }
    if text == "/" {
        return Ok("/".to_owned());
    }
    let trimmed = text.strip_suffix('/').unwrap_or(text);
    for component in trimmed[1.min(trimmed.len())..].split('/') {
        match component {
            "" | "." | ".." => return refuse("no empty, . or .. components"),
            long if long.len() > limits::PATH_COMPONENT_BYTES_MAX => {
                return refuse("components of at most 255 bytes");
            }
            _ => {}
        }
    }
    Ok(trimmed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_absolute_normal_paths_are_taken() {
        for good in ["/", "/a", "/a/b.c", "/workspace/ä b"] {
            assert_eq!(good.parse::<GuestPath>().unwrap().as_str(), good);
        }
        assert_eq!("/a/".parse::<GuestPath>().unwrap().as_str(), "/a");
        for bad in ["", "a", "//", "/a//b", "/..", "/a/../b", "/a/.", "/a\0b", "/a\nb", "~", "file:///etc"] {
            assert!(bad.parse::<GuestPath>().is_err(), "{bad:?}");
        }
        assert!(format!("/{}", "x".repeat(256)).parse::<GuestPath>().is_err());
        assert!("/x".repeat(2500).parse::<GuestPath>().is_err());
    }

    #[test]
    fn containment_is_by_component() {
        let path = |text: &str| text.parse::<GuestPath>().unwrap();
        assert!(path("/a/b").is_within(&path("/a")));
        assert!(path("/a").is_within(&path("/a")));
        assert!(path("/a").is_within(&path("/")));
        assert!(!path("/ab").is_within(&path("/a")));
        assert!(!path("/a").is_within(&path("/a/b")));
    }

    proptest! {
        #[test]
        fn what_parses_stays_below_the_root(text in "[/.a~\\\\]{0,24}") {
            if let Ok(path) = text.parse::<GuestPath>() {
                prop_assert!(path.as_str().split('/').all(|part| part != ".." && part != "."));
                prop_assert!(path.as_str().starts_with('/'));
                prop_assert_eq!(path.as_str().parse::<GuestPath>().unwrap(), path);
            }
        }
    }
}
