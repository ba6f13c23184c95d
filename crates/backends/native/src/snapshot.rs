//! The archive of a saved box from which another one is made.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use box_core::{Error, Result};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

/// The step of set-up that fails when the archive is at fault.
pub(crate) const STEP: &str = "seed";

/// The least that an agent must unpack in a second, so that we do not wait for one that hangs.
const BYTES_PER_SECOND_MIN: u64 = 8 << 20;

/// An archive that was opened.
#[derive(Debug)]
pub(crate) struct Snapshot {
    file: OwnedFd,
    bytes: u64,
}

impl Snapshot {
    /// Opens a regular file, through no link.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let failed = |errno: Errno| refused(path, &std::io::Error::from(errno).to_string());
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused(path, "it is no regular file"));
        }
        Ok(Self { file, bytes: u64::try_from(stat.st_size).unwrap_or(0) })
    }

    /// The same file once more, to be handed over.
    pub(crate) fn share(&self) -> Result<OwnedFd> {
        self.file.try_clone().map_err(|error| Error::io("sharing the archive of the saved box", error))
    }

    /// How much longer than usual an agent may take.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.bytes / BYTES_PER_SECOND_MIN)
    }
}

fn refused(path: &Path, reason: &str) -> Error {
    Error::Setup { step: STEP.to_owned(), reason: format!("{}: {reason}", path.display()) }
}
