//! Opens what a caller names, inside one tree of the box and nowhere else.
//!
//! Links are followed as far as they stay in the tree. The decision is made on the object that was opened, by where it really is,
//! so that nothing can be exchanged between looking and using.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use box_wire::{GuestPath, Trouble, TroubleCode};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::trouble;

/// The tree that may be touched.
pub(super) struct Place {
    /// Where it really is.
    root: PathBuf,
}

impl Place {
    pub(super) fn new(root: &GuestPath) -> Result<Self, Trouble> {
        let (_, root) = locate(root, OFlags::DIRECTORY)?;
        Ok(Self { root })
    }

    /// What a path names, links followed, opened as a path only.
    pub(super) fn find(&self, path: &GuestPath) -> Result<OwnedFd, Trouble> {
        self.within(path, locate(path, OFlags::empty())?)
    }

    /// What a path names, the last link not followed.
    pub(super) fn find_itself(&self, path: &GuestPath) -> Result<OwnedFd, Trouble> {
        self.within(path, locate(path, OFlags::NOFOLLOW)?)
    }

    /// What a path names, opened for use.
    pub(super) fn open(&self, path: &GuestPath, flags: OFlags) -> Result<File, Trouble> {
        let found = self.find(path)?;
        let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
        let opened = rustix::fs::open(itself, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
        opened.map(File::from).map_err(|error| trouble(path.as_str(), error))
    }

    fn within(&self, path: &GuestPath, (found, real): (OwnedFd, PathBuf)) -> Result<OwnedFd, Trouble> {
        if real.starts_with(&self.root) {
            return Ok(found);
        }
        let message = format!("{path} leads to {}, out of {}", real.display(), self.root.display());
        Err(Trouble::new(TroubleCode::PathEscapes, message))
    }
}

/// Opens what a path names and tells where it really is. Links of `/proc` that are no paths are not followed.
fn locate(path: &GuestPath, flags: OFlags) -> Result<(OwnedFd, PathBuf), Trouble> {
    let failed = |error: rustix::io::Errno| trouble(path.as_str(), error);
    let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
    let found = rustix::fs::openat2(CWD, path.as_str(), flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
    let found = found.map_err(failed)?;
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    let real = std::fs::read_link(link).map_err(|error| trouble(path.as_str(), error))?;
    Ok((found, real))
}
