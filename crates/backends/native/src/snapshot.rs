//! The archive of a box from which another one is made: a file, or a named pipe into which the service is still writing it.

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

/// Bytes that a pipe holds. A small one makes its two ends wait for each other.
const PIPE_BYTES: usize = 1 << 20;

/// An archive that was opened.
#[derive(Debug)]
pub(crate) struct Snapshot {
    file: OwnedFd,
    /// Its size; the most that it can have where that shows only at its end.
    bytes_max: u64,
}

impl Snapshot {
    /// Opens a regular file, or a pipe that has a writer, through no link. The box can store `storage_bytes_max`.
    pub(crate) fn open(path: &Path, storage_bytes_max: u64) -> Result<Self> {
        let failed = |errno: Errno| refused(path, &std::io::Error::from(errno).to_string());
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Self { file, bytes_max: u64::try_from(stat.st_size).unwrap_or(0) }),
            FileType::Fifo => {
                // Only opening must not wait for a writer; reading must.
                rustix::fs::fcntl_setfl(&file, OFlags::RDONLY).map_err(failed)?;
                // Without the permission for so many bytes it has fewer.
                let _ = rustix::pipe::fcntl_setpipe_size(&file, PIPE_BYTES);
                Ok(Self { file, bytes_max: storage_bytes_max })
            }
            _ => Err(refused(path, "neither a regular file nor a pipe")),
        }
    }

    /// The same file once more, to be handed over.
    pub(crate) fn share(&self) -> Result<OwnedFd> {
        self.file.try_clone().map_err(|error| Error::io("sharing the archive of the saved box", error))
    }

    /// How much longer than usual an agent may take.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.bytes_max / BYTES_PER_SECOND_MIN)
    }
}

fn refused(path: &Path, reason: &str) -> Error {
    Error::Setup { step: STEP.to_owned(), reason: format!("{}: {reason}", path.display()) }
}
