//! Names of boxes and execs, by one strict grammar, because they become names of files and cgroups.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Invalid, limits};

/// The name of one box: `[a-z0-9][a-z0-9-]*`, at most 63 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BoxId(String);

/// The name of one exec within its box, by the grammar of [`BoxId`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExecId(String);

fn check(field: &'static str, text: String) -> Result<String, Invalid> {
    let head = text.as_bytes().first().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let tail = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if head && tail && text.len() <= limits::ID_BYTES_MAX {
        return Ok(text);
    }
    let allowed = format!("1 to {} of a-z, 0-9 and -, starting with a letter or digit", limits::ID_BYTES_MAX);
    Err(Invalid::new(field, text, allowed))
}

macro_rules! id {
    ($name:ident, $field:literal) => {
        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                check($field, text.to_owned()).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;
            fn try_from(text: String) -> Result<Self, Invalid> {
                check($field, text).map(Self)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(BoxId, "box id");
id!(ExecId, "exec id");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammar_is_strict() {
        for good in ["a", "0", "run-1f", &"x".repeat(63)] {
            assert!(good.parse::<BoxId>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "A", "a_b", "a/b", "..", "a\n", "é", &"x".repeat(64)] {
            let error = bad.parse::<BoxId>().unwrap_err();
            assert_eq!(error.field, "box id", "{bad:?}");
        }
    }
}
