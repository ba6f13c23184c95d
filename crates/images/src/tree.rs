//! Root file systems that can be put below a box.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use box_core::{Error, Result};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::failure::Failure;

/// At least one of these is at the top of every root file system that can run something.
const LANDMARKS: [&str; 3] = ["bin", "usr", "sbin"];

/// A root file system that can be put below a box.
#[derive(Debug)]
pub struct RootTree {
    /// The tree, opened as a path.
    pub directory: OwnedFd,
    /// Its real path.
    pub path: PathBuf,
    /// Whether its top belongs to the host's root.
    pub owned_by_root: bool,
}

impl RootTree {
    /// Opens a directory that the operator named as a root file system.
    pub(crate) fn of_directory(path: &Path) -> Result<Self> {
        let tree = Self::open(path).map_err(|failure| failure.of(path.display()))?;
        check_landmarks(tree.directory.as_fd()).map_err(|failure| failure.of(path.display()))?;
        Ok(tree)
    }

    /// Opens a tree.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| errno.to_string())?;
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let real = std::fs::read_link(link).map_err(|error| Error::io("asking for the path of an image", error))?;
        if real == Path::new("/") {
            return Err("it is the host's own root; leave the image out to use the host's programs read-only".into());
        }
        let stat = rustix::fs::fstat(&directory).map_err(|errno| errno.to_string())?;
        Ok(Self { directory, path: real, owned_by_root: stat.st_uid == 0 })
    }
}

/// Refuses trees that are hardly meant to be a root file system.
pub(crate) fn check_landmarks(tree: BorrowedFd<'_>) -> Result<(), Failure> {
    let there = |name: &&str| rustix::fs::statat(tree, *name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    if LANDMARKS.iter().any(there) {
        return Ok(());
    }
    Err("it is not a root file system: no bin, usr or sbin at its top; perhaps they are one directory below".into())
}
