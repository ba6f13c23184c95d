//! The directories of volumes, all in one place that only the server may look into.
//!
//! Code in boxes writes there. Nothing on the host reads, follows or runs what it finds.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use box_core::{Error, Result, SafeRoot};

/// Who may look at the place of all volumes.
const PLACE_MODE: u32 = 0o700;
/// Who may look into a volume, once in a box that has it: everybody there.
const VOLUME_MODE: u32 = 0o777;

/// The directories of all volumes.
#[derive(Debug)]
pub(super) struct DirectoryStore {
    root: SafeRoot,
    path: PathBuf,
}

impl DirectoryStore {
    /// Opens, and makes, the place, and removes every directory in it that is no volume's. Blocks.
    pub(super) fn open(path: &Path, volumes: &BTreeSet<String>) -> Result<Self> {
        let failed = |error| Error::io(format!("making {}", path.display()), error);
        DirBuilder::new().recursive(true).mode(PLACE_MODE).create(path).map_err(failed)?;
        let root = SafeRoot::open_path(path)?;
        let directory_store = Self { path: root.real_path()?, root };
        for found in directory_store.root.list("")? {
            if found.to_str().is_some_and(|name| volumes.contains(name)) {
                continue;
            }
            // One that cannot go is in nobody's way.
            if let Err(error) = directory_store.root.remove_tree(&found) {
                tracing::warn!(path = %directory_store.path.join(&found).display(), %error, "what is left of a volume stays");
            }
        }
        Ok(directory_store)
    }

    /// The directory of a volume, made if it is missing. Blocks.
    pub(super) fn make(&self, id: &str) -> Result<PathBuf> {
        if self.root.look(id)?.is_none() {
            self.root.make_directory(id, PLACE_MODE)?;
            // The mask of the process may have taken away what boxes need.
            self.root.set_directory_mode(id, VOLUME_MODE)?;
        }
        Ok(self.path.join(id))
    }

    /// Removes the directory of a volume with all that is in it. Blocks.
    pub(super) fn remove(&self, id: &str) -> Result<()> {
        self.root.remove_tree(id)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_no_volumes_goes_when_the_place_is_opened() {
        let top = tempfile::tempdir().unwrap();
        let place = top.path().join("e2b/volumes");
        let directory_store = DirectoryStore::open(&place, &BTreeSet::new()).unwrap();
        for id in ["one", "two"] {
            let path = directory_store.make(id).unwrap();
            std::fs::write(path.join("file"), id).unwrap();
            assert_eq!(directory_store.make(id).unwrap(), path, "it is there already");
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o777);
        }
        std::os::unix::fs::symlink(top.path(), place.join("link")).unwrap();
        assert_eq!(std::fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700);
        let directory_store = DirectoryStore::open(&place, &["one".to_owned()].into()).unwrap();
        assert_eq!(directory_store.root.list("").unwrap(), ["one"]);
        assert_eq!(std::fs::read_to_string(place.join("one/file")).unwrap(), "one");
        directory_store.remove("one").unwrap();
        directory_store.remove("one").unwrap();
        assert!(directory_store.root.list("").unwrap().is_empty() && top.path().exists());
    }
}
