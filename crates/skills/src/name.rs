//! Names of skills, and of the directories that they are put into.

use std::path::Path;

use crate::error::{Error, Result, shown};
use crate::limits::{COMPONENT_BYTES_MAX, NAME_CHARS_MAX};

/// Directories at the top of a store that are not skills: the staging directory, and the tenants' stores if their root
/// lies below that of a server without tenants.
pub(crate) const RESERVED: &[&str] = &[crate::staging::DIRECTORY, "tenants"];

/// What an archive without a usable file name is called.
const UPLOADED: &str = "uploaded-skill";

/// Checks a name of a skill; blanks around it do not count.
pub(crate) fn check(name: &str) -> Result<String> {
    let name = name.trim();
    if name.is_empty() {
        return Err(Error::NameRequired);
    }
    if name.chars().count() > NAME_CHARS_MAX {
        return Err(Error::NameLength { name: shown(name) });
    }
    if !is_plain(name) || name.trim_matches(['-', '_']).is_empty() || name.len() > COMPONENT_BYTES_MAX {
        return Err(Error::NameCharacters { name: shown(name) });
    }
    Ok(name.to_owned())
}

fn is_plain(name: &str) -> bool {
    name.chars().all(is_plain_character)
}

fn is_plain_character(character: char) -> bool {
    character.is_alphanumeric() || character == '-' || character == '_'
}

/// How the directories of an archive's packages are called.
#[derive(Debug)]
pub(crate) struct TargetNames {
    stem: String,
    suffix: String,
}

impl TargetNames {
    /// From the archive's file name and the ending that the caller wants. Browsers send file names of any kind, so only the last
    /// part of one counts, and what cannot be in a name is replaced. The ending is written by programs, and is refused.
    pub(crate) fn new(filename: &str, suffix: &str) -> Result<Self> {
        let suffix = suffix.trim();
        if !is_plain(suffix) || suffix.chars().count() > NAME_CHARS_MAX {
            let allowed = "can only contain letters, digits, - and _, at most 64 characters";
            return Err(Error::TargetName { field: "target_suffix", value: shown(suffix), allowed });
        }
        Ok(Self { stem: stem(filename.trim()), suffix: suffix.to_owned() })
    }

    /// The directory for the package at a path of the archive.
    pub(crate) fn target(&self, source_path: &str) -> Result<String> {
        let mut target = self.stem.clone();
        let leaf = source_path.rsplit('/').next().unwrap_or_default();
        for part in [if leaf == self.stem { "" } else { leaf }, &self.suffix] {
            if !part.is_empty() {
                target.push('-');
                target.push_str(part);
            }
        }
        if target.len() > COMPONENT_BYTES_MAX {
            let allowed = "makes the name of the skill's directory too long";
            return Err(Error::TargetName { field: "filename", value: shown(&target), allowed });
        }
        Ok(target)
    }
}

fn stem(filename: &str) -> String {
    let name = filename.rsplit('/').next().unwrap_or_default();
    let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy();
    let plain: String =
        stem.chars().map(|character| if is_plain_character(character) { character } else { '-' }).collect();
    match plain.trim_matches(['-', '_']) {
        "" => UPLOADED.to_owned(),
        stem => stem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_letters_digits_hyphens_and_underscores() {
        for name in ["a", "My_skill-2", " padded ", "技能", &"x".repeat(64)] {
            assert_eq!(check(name).unwrap(), name.trim(), "{name}");
        }
        let table = [
            ("", "required"),
            ("  ", "required"),
            ("..", "can only contain"),
            (".ssh", "can only contain"),
            ("a/b", "can only contain"),
            ("．．", "can only contain"),
            ("a b", "can only contain"),
            ("--", "can only contain"),
            ("a\0", "can only contain"),
            (&"x".repeat(65), "64 characters"),
            (&"𠀀".repeat(64), "can only contain"),
        ];
        for (name, expected) in table {
            let text = check(name).unwrap_err().to_string();
            assert!(text.contains(expected), "{name}: {text}");
        }
    }

    #[test]
    fn targets_are_made_of_file_name_leaf_and_suffix() {
        let table = [
            ("my skill.zip", "", "upload", "my-skill-upload"),
            ("my skill.zip", "sub/leaf", "upload", "my-skill-leaf-upload"),
            ("leaf.zip", "sub/leaf", "", "leaf"),
            ("a.tar.zip", "", "", "a-tar"),
            (".zip", "", "", "zip"),
            ("..", "", "", "uploaded-skill"),
            ("", "", "upload", "uploaded-skill-upload"),
            ("__--.zip", "", "", "uploaded-skill"),
            ("../../x.zip", "", "", "x"),
            ("/etc/passwd", "", "", "passwd"),
            ("a\\b.zip", "", "", "a-b"),
            ("a/..", "", "", "uploaded-skill"),
            ("dir/", "", "", "uploaded-skill"),
            ("a\0b?.zip", "", "upload", "a-b-upload"),
        ];
        for (filename, source_path, suffix, expected) in table {
            assert_eq!(TargetNames::new(filename, suffix).unwrap().target(source_path).unwrap(), expected);
        }
    }

    #[test]
    fn paths_in_place_of_suffixes_are_refused() {
        for suffix in ["x/../../tmp/evil", "..", "a\\b", "a b"] {
            assert_eq!(TargetNames::new("x.zip", suffix).unwrap_err().code(), "invalid", "{suffix}");
        }
        assert!(TargetNames::new(&"x".repeat(300), "").unwrap().target("").is_err());
    }
}
