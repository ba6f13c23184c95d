//! Details beyond an [`Entry`]: names of owners, targets of links, and extended attributes.

use serde::{Deserialize, Serialize};

use super::{Change, Entry, EntryKind};
use crate::{Invalid, limits};

/// A file, directory, link or something else, and what only the box knows of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// The fields of every listing.
    pub entry: Entry,
    /// The owner's name in the box, if it has one.
    pub owner: Option<String>,
    /// The group's name in the box, if it has one.
    pub group: Option<String>,
    /// The target of a link; none if it is missing, or hidden from the workload.
    pub leads_to: Option<LinkTarget>,
    /// The extended attributes that were asked for, sorted by name, as far as they are text.
    pub attributes: Vec<(String, String)>,
}

/// The target of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTarget {
    /// Its real path, without any links.
    pub path: String,
    /// Its type.
    pub kind: EntryKind,
    /// Its permission bits.
    pub mode: u32,
}

/// Extended attributes of a file. Those of it that begin the same way and are not here go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// How their names begin, such as `user.`.
    pub prefix: String,
    /// The rest of each name, and the value.
    pub values: Vec<(String, String)>,
}

/// Something that changed in a tree that is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Happening {
    /// The change.
    pub change: Change,
    /// The entry after the change, if requested and still there.
    pub detail: Option<Box<Detail>>,
}

impl Attributes {
    /// Checks names and sizes.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        check_name("attributes", &self.prefix)?;
        let mut bytes = 0;
        for (name, value) in &self.values {
            check_name("attributes", &format!("{}{name}", self.prefix))?;
            bytes += self.prefix.len() + name.len() + value.len();
        }
        if bytes > limits::ATTRIBUTES_BYTES_MAX {
            let allowed = format!("at most {} bytes of names and values", limits::ATTRIBUTES_BYTES_MAX);
            return Err(Invalid::new("attributes", bytes, allowed));
        }
        Ok(())
    }
}

/// User attributes are the only ones that every user may set, and the only ones without a meaning to the system.
pub(super) fn check_name(field: &'static str, name: &str) -> Result<(), Invalid> {
    let fits = name.len() <= limits::ATTRIBUTE_NAME_BYTES_MAX && !name.contains('\0') && name.starts_with("user.");
    let allowed = || format!("at most {} bytes that begin with user.", limits::ATTRIBUTE_NAME_BYTES_MAX);
    if fits { Ok(()) } else { Err(Invalid::new(field, name, allowed())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attributes_of_the_user_within_bounds_are_taken() {
        let with = |prefix: &str, name: &str, value: &str| Attributes {
            prefix: prefix.to_owned(),
            values: vec![(name.to_owned(), value.to_owned())],
        };
        assert!(with("user.x.", "name", "value").validate().is_ok());
        assert!(with("user.x.", &"n".repeat(limits::ATTRIBUTE_NAME_BYTES_MAX - 7), "").validate().is_ok());
        for bad in [
            with("trusted.", "name", ""),
            with("", "user.x", ""),
            with("user.x.", "nul\0", ""),
            with("user.x.", &"n".repeat(limits::ATTRIBUTE_NAME_BYTES_MAX - 6), ""),
            with("user.x.", "name", &"v".repeat(limits::ATTRIBUTES_BYTES_MAX)),
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
