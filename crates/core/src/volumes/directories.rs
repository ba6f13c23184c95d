//! The directories of all volumes, below one directory that only the server can enter.
//!
//! Code in boxes writes there. Nothing on the host reads, follows or runs what it finds.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::{Error, Result, SafeRoot};

/// Mode of the directory that holds all volumes.
const ROOT_MODE: u32 = 0o700;
/// Mode of a volume: every user of a box that mounts it can use it.
const VOLUME_MODE: u32 = 0o777;

/// The directories of all volumes.
#[derive(Debug)]
pub(super) struct Directories {
    root: SafeRoot,
    path: PathBuf,
}

impl Directories {
    /// Opens or creates the directory, and removes everything in it that belongs to no volume. Blocks.
    pub(super) fn open(path: &Path, volumes: &BTreeSet<String>) -> Result<Self> {
        let failed = |error| Error::io(format!("making {}", path.display()), error);
        DirBuilder::new().recursive(true).mode(ROOT_MODE).create(path).map_err(failed)?;
        let root = SafeRoot::open_path(path)?;
        let directories = Self { path: root.real_path()?, root };
        for found in directories.root.list("")? {
            if found.to_str().is_some_and(|name| volumes.contains(name)) {
                continue;
            }
            // A leftover takes space and nothing else.
            if let Err(error) = directories.root.remove_tree(&found) {
                tracing::warn!(path = %directories.path.join(&found).display(), %error, "failed to remove the remains of a volume");
            }
        }
        Ok(directories)
    }

    /// The directory of a volume, created if it is missing. Blocks.
    pub(super) fn make(&self, id: &str) -> Result<PathBuf> {
        if self.root.look(id)?.is_none() {
            self.root.make_directory(id, ROOT_MODE)?;
            // The umask may have removed bits that boxes need.
            self.root.set_directory_mode(id, VOLUME_MODE)?;
        }
        Ok(self.path.join(id))
    }

    /// Removes the directory of a volume with its content. Blocks.
    pub(super) fn remove(&self, id: &str) -> Result<()> {
        self.root.remove_tree(id)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn remains_of_volumes_are_removed_at_the_start() {
        let top = tempfile::tempdir().unwrap();
        let place = top.path().join("e2b/volumes");
        let directories = Directories::open(&place, &BTreeSet::new()).unwrap();
        for id in ["one", "two"] {
            let path = directories.make(id).unwrap();
            std::fs::write(path.join("file"), id).unwrap();
            assert_eq!(directories.make(id).unwrap(), path, "it exists");
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o777);
        }
        std::os::unix::fs::symlink(top.path(), place.join("link")).unwrap();
        assert_eq!(std::fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700);
        let directories = Directories::open(&place, &["one".to_owned()].into()).unwrap();
        assert_eq!(directories.root.list("").unwrap(), ["one"]);
        assert_eq!(std::fs::read_to_string(place.join("one/file")).unwrap(), "one");
        directories.remove("one").unwrap();
        directories.remove("one").unwrap();
        assert!(directories.root.list("").unwrap().is_empty() && top.path().exists());
    }
}
