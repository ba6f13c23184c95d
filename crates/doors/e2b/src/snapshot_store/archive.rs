//! Archives of saved boxes: written beside their place, and put there when they are whole.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use box_core::service::{FileCall, NO_INPUT};
use box_core::session::SessionRequest;
use box_core::{Caller, Error, SessionId};
use box_wire::{FileOp, User};
use http::StatusCode;
use tokio::time::timeout;

use super::Room;
use crate::app::App;
use crate::failure::E2bFailure;
use crate::limits;
use door_http::blocking;

/// How an archive is called.
const ARCHIVE: &str = "tar";

/// How it is called until it is whole.
const PART: &str = "tar.part";

/// Where the archive of an id is.
pub(super) fn path(directory: &Path, id: &str) -> PathBuf {
    directory.join(id).with_extension(ARCHIVE)
}

/// The id of an archive that is whole.
pub(super) fn id_of(name: &str) -> Option<&str> {
    name.strip_suffix(".tar")
}

/// Removes an archive. One that stays is removed when the server starts again.
pub(crate) async fn remove(path: PathBuf) {
    let removed = blocking(move || match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err((error, path)),
        _ => Ok(()),
    });
    if let Ok(Err((error, path))) = removed.await {
        tracing::warn!(%error, path = %path.display(), "an archive of a saved sandbox cannot be removed");
    }
}

/// Saves a box that runs, to the end or not at all. The room that it has is also what it may take.
pub(crate) async fn save(
    app: &App,
    caller: &Caller,
    session: &SessionId,
    to: &Path,
    room: &mut Room,
) -> Result<(), E2bFailure> {
    app.service().check_writable()?;
    let file = Part::make(to.with_extension(PART)).await?;
    let written = timeout(limits::E2B_SAVE_TIME_MAX, write(app, caller, session, &file, room));
    written.await.map_err(|_| stalled())??;
    file.finish(to.to_owned()).await
}

async fn write(
    app: &App,
    caller: &Caller,
    session: &SessionId,
    file: &Part,
    room: &mut Room,
) -> Result<(), E2bFailure> {
    // Root of the box reads everything that is in it.
    let has_root = app.service().peek_session(caller, session)?.config.root_capabilities;
    let call = FileCall { user: has_root.then_some(User::ROOT), ..FileCall::new(FileOp::Save) };
    let (_, mut bytes) = app.service().file_op(caller, session, &SessionRequest::of_existing(), call, NO_INPUT).await?;
    // A box that is stopped meanwhile says nothing any more.
    while let Some(piece) = timeout(limits::E2B_SAVE_PAUSE_MAX, bytes.next()).await.map_err(|_| stalled())?? {
        room.take(piece.len() as u64)?;
        app.service().check_writable()?;
        file.write(piece).await?;
    }
    Ok(())
}

fn stalled() -> E2bFailure {
    let message = "the sandbox could not be saved in time; it may have been paused meanwhile, or is too large";
    E2bFailure::new(StatusCode::SERVICE_UNAVAILABLE, message)
}

/// An archive that is not whole yet. Where nobody finishes it, whoever was to has left or failed, and it is removed.
pub(crate) struct Part {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl Drop for Part {
    fn drop(&mut self) {
        // It is in its place by now, or nobody needs it. What stays is removed when the server starts again.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Part {
    /// A new file that only we can read, in a directory that is made where it is not there.
    pub(crate) async fn make(path: PathBuf) -> Result<Self, E2bFailure> {
        let place = path.clone();
        let made = move || {
            let directory = place.parent().unwrap_or(Path::new("/"));
            DirBuilder::new().mode(0o700).recursive(true).create(directory)?;
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&place)
        };
        let file = blocking(made).await?.map_err(failed)?;
        Ok(Self { path, file: Arc::new(Mutex::new(file)) })
    }

    /// Writes more.
    pub(crate) async fn write(&self, bytes: impl AsRef<[u8]> + Send + 'static) -> Result<(), E2bFailure> {
        let file = Arc::clone(&self.file);
        let write = move || file.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes.as_ref());
        blocking(write).await?.map_err(failed)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it in its place, where a crash cannot undo it.
    pub(crate) async fn finish(self, to: PathBuf) -> Result<(), E2bFailure> {
        let finish = move || {
            self.file.lock().unwrap_or_else(PoisonError::into_inner).sync_all()?;
            std::fs::rename(&self.path, &to)?;
            File::open(to.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        blocking(finish).await?.map_err(failed)
    }
}

fn failed(error: io::Error) -> E2bFailure {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        let message = "the disk of the server is full; delete snapshots and templates that nobody needs";
        return E2bFailure::new(StatusCode::INSUFFICIENT_STORAGE, message);
    }
    Error::io("writing an archive", error).into()
}
