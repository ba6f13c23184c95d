//! The file itself: who made it, and who can write it.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use box_core::{Error, Result};
use box_wire::Invalid;
use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;

/// Bits of a mode by which others than the owner can write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Makes the file if it is not there, refuses one that others can write, and returns its path without links.
pub(crate) fn prepare(path: &Path) -> Result<PathBuf> {
    let Some(name) = path.file_name() else {
        return Err(Invalid::new("store", path, "the path of a file").into());
    };
    let failed = |error: std::io::Error| Error::io(format!("opening the store {}", path.display()), error);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = parent.canonicalize().map_err(failed)?;
    // Whoever can write the directory can put another file in the place of this one.
    check_private(&directory, &directory.metadata().map_err(failed)?)?;
    let path = directory.join(name);
    make(&path).map_err(|error| failed(error.into()))?;
    let metadata = path.symlink_metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(refused(&path, "it is not a plain file", "choose another path"));
    }
    check_private(&path, &metadata)?;
    Ok(path)
}

/// Makes an empty file without opening it. SQLite's locks belong to the process and the file, not to a descriptor: closing
/// one of ours would give back the locks of a store that is open already.
fn make(path: &Path) -> rustix::io::Result<()> {
    match rustix::fs::mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(0o600), 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Waits until nobody else is preparing a file in the same directory; dropping what is returned lets the next one go on.
/// SQLite itself gives up at once when two connections turn on the write-ahead log of a new file together. The lock is on
/// the directory, because a descriptor of the file must not be closed.
pub(crate) fn take_turn(path: &Path) -> Result<File> {
    let directory = path.parent().unwrap_or(path);
    let take = || File::open(directory).and_then(|opened| opened.lock().map(|()| opened));
    take().map_err(|error| Error::io(format!("locking {}", directory.display()), error))
}

fn check_private(path: &Path, metadata: &Metadata) -> Result<()> {
    if metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    let reason = "it must belong to the user that runs strongbox and be writable by nobody else";
    Err(refused(path, reason, &format!("chown it and chmod go-w {}", path.display())))
}

/// A store that is not used as it is, and what would change that.
pub(crate) fn refused(path: &Path, reason: &str, fix: &str) -> Error {
    Error::Unavailable { what: format!("the store {}", path.display()), reason: reason.to_owned(), fix: fix.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_new_file_is_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = prepare(&directory.path().join("store.db")).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(prepare(&path).unwrap(), path, "an existing one is taken");
    }

    #[test]
    fn what_others_can_write_is_refused_with_a_fix() {
        for (mode, writable) in [(0o620, "file"), (0o602, "file"), (0o770, "directory"), (0o707, "directory")] {
            let directory = tempfile::tempdir().unwrap();
            let path = prepare(&directory.path().join("store.db")).unwrap();
            let changed = if writable == "file" { &path } else { directory.path() };
            fs::set_permissions(changed, Permissions::from_mode(mode)).unwrap();
            let error = prepare(&path).unwrap_err();
            assert_eq!(error.code(), "unavailable", "{mode:o}");
            assert!(error.to_string().contains("chmod go-w"), "{error}");
        }
    }

    #[test]
    fn what_is_not_a_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let target = prepare(&directory.path().join("target")).unwrap();
        symlink(target, directory.path().join("link")).unwrap();
        fs::create_dir(directory.path().join("directory")).unwrap();
        for name in ["link", "directory"] {
            assert_eq!(prepare(&directory.path().join(name)).unwrap_err().code(), "unavailable", "{name}");
        }
        assert_eq!(prepare(Path::new("/")).unwrap_err().code(), "invalid");
        assert_eq!(prepare(&directory.path().join("missing/store.db")).unwrap_err().code(), "io");
    }
}
