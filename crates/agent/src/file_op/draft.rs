//! A file that is made beside its place, and put there when it is whole.
//!
//! Where the file system can, it has no name until then, so that nothing is left of it when its maker is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result};

use super::place::by_descriptor;

/// Permission bits of a new file, before the usual ones are taken away.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);

/// Permission bits that a file can be given. Those that lend rights are lost by writing, as always.
const MODE_MASK: u32 = 0o777;

/// A file that is not in its place yet. It vanishes when it is dropped.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) file: File,
    directory: BorrowedFd<'a>,
    /// Its name for the time being, if it has one.
    name: Option<String>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(directory: &'a impl AsFd) -> Result<Self> {
        let directory = directory.as_fd();
        let unnamed = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
        if let Ok(file) = rustix::fs::openat(directory, ".", unnamed, FILE_MODE) {
            return Ok(Self { file: file.into(), directory, name: None });
        }
        let name = passing_name()?;
        let named = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(directory, &name, named, FILE_MODE)?;
        Ok(Self { file: file.into(), directory, name: Some(name) })
    }

    /// Gives it exactly these permission bits.
    pub(super) fn set_mode(&self, mode: u32) -> Result<()> {
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode & MODE_MASK))
    }

    /// Puts it where nothing is.
    pub(super) fn create(mut self, name: &OsStr) -> std::result::Result<File, (Errno, Self)> {
        match self.try_create(name) {
            Ok(()) => self.placed(),
            Err(error) => Err((error, self)),
        }
    }

    /// Renames the draft over the file of that name, unless a directory has it. An error returns the draft.
    pub(super) fn replace(mut self, name: &OsStr) -> std::result::Result<File, (Errno, Self)> {
        match self.try_replace(name) {
            Ok(()) => self.placed(),
            Err(error) => Err((error, self)),
        }
    }

    fn placed(self) -> std::result::Result<File, (Errno, Self)> {
        self.file.try_clone().map_err(|error| (Errno::from_io_error(&error).unwrap_or(Errno::IO), self))
    }

    fn try_create(&mut self, name: &OsStr) -> Result<()> {
        let Some(passing) = &self.name else { return self.link(name) };
        match rustix::fs::renameat_with(self.directory, passing, self.directory, name, RenameFlags::NOREPLACE) {
            Ok(()) => self.name = None,
            // The file system cannot do that in one step. The passing name goes when this is dropped.
            Err(Errno::INVAL) => {
                rustix::fs::linkat(self.directory, passing, self.directory, name, AtFlags::empty())?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn try_replace(&mut self, name: &OsStr) -> Result<()> {
        if self.name.is_none() {
            match self.link(name) {
                Err(Errno::EXIST) => {}
                linked => return linked,
            }
            let passing = passing_name()?;
            self.link(OsStr::new(&passing))?;
            self.name = Some(passing);
        }
        let Some(passing) = &self.name else { return Err(Errno::NOENT) };
        rustix::fs::renameat(self.directory, passing, self.directory, name)?;
        self.name = None;
        Ok(())
    }

    /// Gives a name to what has none.
    fn link(&self, name: &OsStr) -> Result<()> {
        rustix::fs::linkat(CWD, by_descriptor(&self.file), self.directory, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // A drop cannot report errors, and the draft is only a leftover.
            let _ = rustix::fs::unlinkat(self.directory, name, AtFlags::empty());
        }
    }
}

fn passing_name() -> Result<String> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!(".strongbox-{:016x}", u64::from_ne_bytes(bytes)))
}
