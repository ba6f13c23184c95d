//! Texts that are checked when they are read. Names of boxes and execs have one strict grammar, because they become names of files and
//! cgroups.

use crate::{Invalid, limits};

/// Declares a text that exists only if a function accepts it, with everything that reads and writes it:
///
/// ```
/// box_wire::checked_text! {
///     /// The name of a color.
///     pub struct Color = |text| match text.as_str() {
///         "red" | "blue" => Ok(text),
///         _ => Err(box_wire::Invalid::new("color", text, "red or blue")),
///     };
/// }
/// assert_eq!("red".parse::<Color>().unwrap().as_str(), "red");
/// assert!("green".parse::<Color>().is_err());
/// ```
#[macro_export]
macro_rules! checked_text {
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident = $check:expr;) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        $visibility struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::Invalid;
            fn try_from(text: String) -> Result<Self, $crate::Invalid> {
                let check: fn(String) -> Result<String, $crate::Invalid> = $check;
                check(text).map(Self)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        $crate::from_text!($name);
    };
}

/// Makes a type that has `TryFrom<String>` and `Display` convertible the other ways too.
#[macro_export]
macro_rules! from_text {
    ($name:ident) => {
        impl std::str::FromStr for $name {
            type Err = $crate::Invalid;
            fn from_str(text: &str) -> Result<Self, $crate::Invalid> {
                text.to_owned().try_into()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    };
}

checked_text! {
    /// The name of one box: `[a-z0-9][a-z0-9-]*`, at most 63 bytes.
    pub struct BoxId = |text| check("box id", text);
}

checked_text! {
    /// The name of one exec within its box, by the grammar of [`BoxId`].
    pub struct ExecId = |text| check("exec id", text);
}

fn check(field: &'static str, text: String) -> Result<String, Invalid> {
    let head = text.as_bytes().first().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let tail = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if head && tail && text.len() <= limits::ID_BYTES_MAX {
        return Ok(text);
    }
    let allowed = format!("1 to {} of a-z, 0-9 and -, starting with a letter or digit", limits::ID_BYTES_MAX);
    Err(Invalid::new(field, text, allowed))
}

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
