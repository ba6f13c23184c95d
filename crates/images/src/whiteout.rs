//! Whiteouts of a layer: names that remove others, and the paths that the layer made itself.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::failure::Reason;

/// Prefix of a whiteout.
const PREFIX: &[u8] = b".wh.";
/// Prefix of private names that some builders left behind.
const PRIVATE: &[u8] = b".wh..wh.";
/// The name that takes away everything that lower layers have in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// The meaning of an entry of a layer for the layers below.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nothing: it is an entry.
    None,
    /// Removes this path of lower layers.
    Removed(PathBuf),
    /// Removes the content of this directory of lower layers.
    Opaque(PathBuf),
    /// It has no meaning.
    Ignored,
}

impl Mark {
    /// Reads the meaning of a path, which is relative and without `..`.
    pub(crate) fn of(path: &Path) -> Result<Self, Reason> {
        let parent = path.parent().unwrap_or(Path::new(""));
        if parent.iter().any(|part| part.as_bytes().starts_with(PREFIX)) {
            return Ok(Self::Ignored);
        }
        let name = path.file_name().unwrap_or_default().as_bytes();
        match name.strip_prefix(PREFIX) {
            None => Ok(Self::None),
            Some(_) if name == OPAQUE => Ok(Self::Opaque(parent.to_owned())),
            Some(_) if name.starts_with(PRIVATE) => Ok(Self::Ignored),
            Some(b"" | b"." | b"..") => Err(format!("{} takes nothing away that could be named", path.display())),
            Some(removed) => Ok(Self::Removed(parent.join(OsStr::from_bytes(removed)))),
        }
    }
}

/// Paths that a layer made itself. Only a hash of each is kept, with a random key, because a layer can have a million
/// long paths.
#[derive(Debug, Default)]
pub(crate) struct OwnPaths {
    hasher: RandomState,
    hashes: HashSet<u64>,
}

impl OwnPaths {
    /// Adds a path and everything above it.
    pub(crate) fn add(&mut self, path: &Path) {
        for path in path.ancestors() {
            // Whatever is above a path that is there is there.
            if !self.hashes.insert(self.hasher.hash_one(path)) {
                return;
            }
        }
    }

    /// Whether a path was added.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.hashes.contains(&self.hasher.hash_one(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_marks() {
        let removed = |path: &str| Mark::Removed(path.into());
        let table = [
            ("a/b", Mark::None),
            ("a/wh.b", Mark::None),
            ("a/.wh", Mark::None),
            ("a/.wh.b", removed("a/b")),
            (".wh.b", removed("b")),
            (".wh....", removed("...")),
            ("a/.wh..hidden", removed("a/.hidden")),
            ("a/.wh..wh..opq", Mark::Opaque("a".into())),
            (".wh..wh..opq", Mark::Opaque("".into())),
            (".wh..wh.plnk", Mark::Ignored),
            (".wh..wh.plnk/1.2", Mark::Ignored),
            (".wh.a/b", Mark::Ignored),
        ];
        for (path, meaning) in table {
            assert_eq!(Mark::of(Path::new(path)), Ok(meaning), "{path}");
        }
        for bad in [".wh.", "a/.wh.", ".wh..", "a/.wh..."] {
            assert!(Mark::of(Path::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_above_an_own_path_is_own() {
        let mut own = OwnPaths::default();
        own.add(Path::new("a/b/c"));
        assert!(["a", "a/b", "a/b/c", ""].iter().all(|path| own.has(Path::new(path))));
        assert!(!["b", "a/c", "a/b/c/d"].iter().any(|path| own.has(Path::new(path))));
    }
}
