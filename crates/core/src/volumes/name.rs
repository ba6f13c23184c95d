//! The name of a volume.

use std::fmt;
use std::str::FromStr;

use box_wire::Invalid;
use serde::{Deserialize, Serialize};

use crate::limits;

/// The name of a volume, unique within a tenant: 1 to 64 ASCII letters, digits, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeName(String);

impl VolumeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for VolumeName {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        let max = limits::VOLUME_NAME_BYTES_MAX;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if (1..=max).contains(&text.len()) && text.bytes().all(is_plain) {
            return Ok(Self(text));
        }
        Err(Invalid::new("name", text, format!("1 to {max} letters, digits, dashes and underscores")))
    }
}

impl FromStr for VolumeName {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        text.to_owned().try_into()
    }
}

impl From<VolumeName> for String {
    fn from(name: VolumeName) -> Self {
        name.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_short() {
        for good in ["a", "my-Data_1", &"x".repeat(limits::VOLUME_NAME_BYTES_MAX)] {
            assert!(good.parse::<VolumeName>().is_ok(), "{good:?}");
        }
        let long = "x".repeat(limits::VOLUME_NAME_BYTES_MAX + 1);
        for bad in ["", "a b", "../x", "a/b", "ä", "a\n", long.as_str()] {
            assert_eq!(bad.parse::<VolumeName>().unwrap_err().field, "name", "{bad:?}");
        }
    }
}
