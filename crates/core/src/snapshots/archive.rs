//! Archives of saved boxes: written beside their place, and renamed to it when they are complete.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::tasks::blocking;
use crate::{Error, Result};

/// Extension of an archive.
const ARCHIVE: &str = "tar";

/// Extension of an archive that is not complete.
pub(crate) const PART: &str = "tar.part";

/// The path of the archive of an id.
pub(super) fn path(directory: &Path, id: &str) -> PathBuf {
    directory.join(id).with_extension(ARCHIVE)
}

/// The id of a complete archive.
pub(super) fn id_of(name: &str) -> Option<&str> {
    name.strip_suffix(".tar")
}

/// Removes an archive. One that cannot be removed is removed when the server starts again.
pub async fn remove_archive(path: PathBuf) {
    let removed = blocking(move || match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err((error, path)),
        _ => Ok(()),
    });
    if let Ok(Err((error, path))) = removed.await {
        tracing::warn!(%error, path = %path.display(), "failed to remove an archive of a snapshot");
    }
}

/// Makes the directory of an archive, which only the server can read.
pub(super) fn make_directory(archive: &Path) -> io::Result<()> {
    let directory = archive.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().mode(0o700).recursive(true).create(directory)
}

/// An archive that is not complete yet. Dropping it removes the file.
#[derive(Debug)]
pub struct Part {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl Drop for Part {
    fn drop(&mut self) {
        // It was renamed by now, or its maker left or failed. What stays is removed when the server starts again.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Part {
    /// A new file that only the server can read. Makes its directory if that is missing.
    pub async fn make(path: PathBuf) -> Result<Self> {
        let place = path.clone();
        let made = move || {
            make_directory(&place)?;
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&place)
        };
        let file = off_thread(made).await?;
        Ok(Self { path, file: Arc::new(Mutex::new(file)) })
    }

    /// Writes more.
    pub async fn write(&self, bytes: impl AsRef<[u8]> + Send + 'static) -> Result<()> {
        let file = Arc::clone(&self.file);
        off_thread(move || file.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes.as_ref())).await
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames it to its place, so that a crash cannot undo it.
    pub async fn finish(self, to: PathBuf) -> Result<()> {
        let finish = move || {
            self.file.lock().unwrap_or_else(PoisonError::into_inner).sync_all()?;
            std::fs::rename(&self.path, &to)?;
            File::open(to.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        off_thread(finish).await
    }
}

/// Does file work where waiting harms no task.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T> {
    let done = blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(|error| Error::io("writing an archive", error))
}
