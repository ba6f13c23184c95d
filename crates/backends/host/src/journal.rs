//! The directory in which a box's agent keeps the output of execs, so that it can be read later, also after the box has
//! died.

use std::os::fd::{AsFd, OwnedFd};

use box_core::{Error, Result, SafeRoot};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use rustix::thread::{Gid, Uid};

use crate::instance::open_directory;

/// Makes the journal of a box for its agent to write to. What an earlier box of the same name left is removed.
///
/// It belongs to `owner`, user and group, if there is one. An ordinary user may not change owners.
pub fn make(journals: &OwnedFd, name: &str, owner: Option<(u32, u32)>) -> Result<OwnedFd> {
    remove(journals, name)?;
    let make = || -> rustix::io::Result<OwnedFd> {
        rustix::fs::mkdirat(journals, name, Mode::from_raw_mode(0o700))?;
        let directory = open_directory(journals, name)?;
        if let Some((uid, gid)) = owner {
            rustix::fs::fchown(&directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        Ok(directory)
    };
    make().map_err(|error| Error::io(format!("making the journal {name}"), error))
}

/// Opens the journal of a box.
pub fn open(journals: &OwnedFd, name: &str) -> Result<OwnedFd> {
    open_directory(journals, name).map_err(|error| match error {
        Errno::NOENT => Error::Gone { reason: "it has no journal".to_owned() },
        error => Error::io(format!("opening the journal {name}"), error),
    })
}

/// Removes the journal of a box with everything in it. It does not have to exist.
pub fn remove(journals: &OwnedFd, name: &str) -> Result<()> {
    // Most boxes have none, and many an empty one.
    match rustix::fs::unlinkat(journals, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(_) => {}
    }
    let journals = journals.as_fd().try_clone_to_owned().map_err(|error| Error::io("opening the journals", error))?;
    SafeRoot::from_directory(journals).remove_tree(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_journal_is_made_empty_and_removed_with_everything_in_it() {
        let place = tempfile::tempdir().unwrap();
        let journals = OwnedFd::from(fs::File::open(place.path()).unwrap());
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("file"), b"stays").unwrap();
        assert_eq!(open(&journals, "i.b").unwrap_err().code(), "box_gone");
        for _ in 0..2 {
            make(&journals, "i.b", None).unwrap();
            let made = place.path().join("i.b");
            assert_eq!(fs::read_dir(&made).unwrap().count(), 0);
            fs::create_dir(made.join("deep")).unwrap();
            fs::write(made.join("deep/file"), b"x").unwrap();
            std::os::unix::fs::symlink(outside.path(), made.join("link")).unwrap();
            open(&journals, "i.b").unwrap();
        }
        remove(&journals, "i.b").unwrap();
        remove(&journals, "i.b").unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        assert!(outside.path().join("file").exists());
    }
}
