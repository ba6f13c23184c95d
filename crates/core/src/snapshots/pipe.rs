//! A named pipe that carries the archive of a box to the backend that makes a copy of it, so that no file is written in between.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{CWD, Mode};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::{SnapshotError, archive};
use crate::service::FileBytes;
use crate::tasks::{self, blocking};
use crate::{Error, Result, limits};

/// An archive on its way. Dropping it breaks the archive off and removes the name of the pipe; what a killed server leaves is removed
/// when the next one starts.
#[derive(Debug)]
pub(crate) struct ArchivePipe {
    path: PathBuf,
    /// Holds the pipe open after the last byte: a pipe that is open nowhere loses what is in it.
    _writing: AbortOnDropHandle<Option<pipe::Sender>>,
    error: Arc<OnceLock<Error>>,
}

impl Drop for ArchivePipe {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl ArchivePipe {
    /// Makes the pipe, and writes an archive into it as fast as it is read.
    pub(crate) async fn open(path: PathBuf, mut bytes: FileBytes) -> Result<Self> {
        let mut writer = make(&path).await.map_err(|error| Error::io("making a pipe for an archive", error))?;
        let error = Arc::new(OnceLock::new());
        let failed = Arc::clone(&error);
        let writing = tasks::owned(async move {
            let written = timeout(limits::SAVE_TIME_MAX, write(&mut bytes, &mut writer)).await;
            match written.unwrap_or_else(|_| Err(SnapshotError::Stalled.into())) {
                Ok(()) => Some(writer),
                // The reader sees an archive without its end only after the reason is known.
                Err(error) => {
                    let _ = failed.set(error);
                    None
                }
            }
        });
        Ok(Self { path, _writing: writing, error })
    }

    /// The name of the pipe.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Why the archive broke off.
    pub(crate) fn error(&self) -> Option<&Error> {
        self.error.get()
    }
}

async fn make(path: &Path) -> io::Result<pipe::Sender> {
    let path = path.to_owned();
    let made = blocking(move || {
        archive::make_directory(&path)?;
        rustix::fs::mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?;
        Ok(path)
    });
    let path = made.await.unwrap_or_else(|error| Err(io::Error::other(error)))?;
    // Opened for reading too, so that opening does not wait for a reader.
    pipe::OpenOptions::new().read_write(true).open_sender(path)
}

async fn write(bytes: &mut FileBytes, writer: &mut pipe::Sender) -> Result<()> {
    // Neither a box that is paused meanwhile nor one that is never made keeps this waiting.
    let stalled = |_| SnapshotError::Stalled;
    while let Some(piece) = timeout(limits::SAVE_PAUSE_MAX, bytes.next()).await.map_err(stalled)?? {
        let written = timeout(limits::SAVE_PAUSE_MAX, writer.write_all(&piece)).await.map_err(stalled)?;
        written.map_err(|error| Error::io("writing an archive into a pipe", error))?;
    }
    Ok(())
}
