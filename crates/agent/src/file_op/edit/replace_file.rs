//! Gives a file's name to new bytes, all at once.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use box_wire::{FileError, FileErrorCode, GuestPath};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::super::draft::Draft;
use super::super::file_error;
use super::super::place::FileTree;
use super::is_same;

/// The real location of an opened file: its directory, as a descriptor, and its name in there.
pub(super) struct Target {
    directory: OwnedFd,
    name: String,
}

/// Whether a file was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replaced {
    Yes,
    /// It was not: the file has changed, or the name is another file's.
    Changed,
}

impl Target {
    /// Resolves links, so that a link stays and its target is replaced.
    pub(super) fn of(place: &FileTree, file: &File, path: &GuestPath) -> Result<Self, FileError> {
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let real = std::fs::read_link(link).map_err(|error| file_error(path.as_str(), error))?;
        let text = |part: Option<&Path>| part.and_then(Path::to_str).map(ToOwned::to_owned);
        let (Some(parent), Some(name)) = (text(real.parent()), text(real.file_name().map(Path::new))) else {
            let message = format!("{path} leads to {}, which is not UTF-8", real.display());
            return Err(FileError::new(FileErrorCode::InvalidPath, message));
        };
        let parent = GuestPath::parse("path", &parent)
            .map_err(|error| FileError::new(FileErrorCode::InvalidPath, error.to_string()))?;
        Ok(Self { directory: place.find(&parent)?, name })
    }

    /// Replaces the content of the file that `before` describes. Mode bits stay; the owner stays where the caller may
    /// set it.
    pub(super) fn replace(&self, bytes: &[u8], before: &Stat) -> io::Result<Replaced> {
        let mut draft = match Draft::new(&self.directory) {
            Ok(draft) => draft,
            // Nothing can be made next to it, but perhaps it can be written itself.
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => return self.overwrite(bytes, before),
            Err(error) => return Err(error.into()),
        };
        dress(&draft, before)?;
        draft.file.write_all(bytes)?;
        if !self.is_still(before)? {
            return Ok(Replaced::Changed);
        }
        match draft.replace(OsStr::new(&self.name)) {
            Ok(_) => Ok(Replaced::Yes),
            // A mounted file cannot lose its name.
            Err((Errno::BUSY, _)) => self.overwrite(bytes, before),
            Err((error, _)) => Err(error.into()),
        }
    }

    fn is_still(&self, before: &Stat) -> io::Result<bool> {
        match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) => Ok(is_same(before, &now)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes into the file itself. The old end is cut off last, so that the file is never empty in between.
    fn overwrite(&self, bytes: &[u8], before: &Stat) -> io::Result<Replaced> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty())?);
        if !is_same(before, &rustix::fs::fstat(&file)?) {
            return Ok(Replaced::Changed);
        }
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)?;
        Ok(Replaced::Yes)
    }
}

/// Gives a new file what the old one had besides its bytes.
fn dress(draft: &Draft<'_>, before: &Stat) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
    // A user who may write another user's file may not give files away; the new file then belongs to the writer.
    let _ = rustix::fs::fchown(&draft.file, Some(uid), Some(gid));
    draft.set_mode(before.st_mode)
}
