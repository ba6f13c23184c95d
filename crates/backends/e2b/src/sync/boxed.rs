//! The other side: what the agent is asked to do with the copy of a tree in its box.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use box_core::link::{self, FileOutput};
use box_core::{AgentStream, Error, Result, SafeRoot};
use box_host::blocking;
use box_wire::{Answer, ExecRequest, FileErrorCode, FileOp, FileRequest, GuestPath, Program, Stdin};
use tokio::io::AsyncRead;

use super::archive::staged;
use super::known::BoxStamp;
use crate::limits::{MOUNT_BYTES_MAX, MOUNT_DEPTH_MAX, MOUNT_ENTRIES_MAX, SYNC_TIMEOUT_MS};

/// What an archive may have besides the bytes of its files.
const ARCHIVE_BYTES_MAX: u64 = MOUNT_BYTES_MAX + (64 << 20);

/// Dials the agent of one box, past everything that carries files for others.
#[async_trait]
pub(crate) trait Dial: Send + std::marker::Sync {
    async fn dial(&self) -> Result<AgentStream>;
}

/// The agent of a box, and the place in it.
pub(super) struct Agent<'a> {
    pub(super) dial: &'a dyn Dial,
    pub(super) root: &'a GuestPath,
}

impl Agent<'_> {
    /// All entries of the mount except those of mounts inside of it; none if the mount point is gone.
    pub(super) async fn list(&self, inner: &[String]) -> Result<Option<BTreeMap<String, BoxStamp>>> {
        let entries_max = u32::try_from(MOUNT_ENTRIES_MAX).unwrap_or(u32::MAX);
        let op = FileOp::List { path: self.root.clone(), depth: MOUNT_DEPTH_MAX, entries_max };
        let answer = match self.ask(op, None::<tokio::io::Empty>).await {
            Ok((answer, _)) => answer,
            Err(Error::File(error)) if is_no_place(error.code) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Answer::Entries { entries, truncated } = answer else { return Err(unexpected()) };
        if truncated {
            let reason = format!("{} holds more than {MOUNT_ENTRIES_MAX} files", self.root);
            return Err(Error::Setup { step: "carry out".to_owned(), reason });
        }
        let mut all = BTreeMap::new();
        for entry in entries {
            let path = entry.path.strip_prefix(self.root.as_str()).unwrap_or(&entry.path).trim_start_matches('/');
            let is_inner = inner.iter().any(|inner| path == inner || path.starts_with(&format!("{inner}/")));
            if !path.is_empty() && !is_inner {
                all.insert(path.to_owned(), BoxStamp::of(&entry));
            }
        }
        Ok(Some(all))
    }

    /// Puts what is in an archive there.
    pub(super) async fn unpack(&self, archive: File) -> Result<()> {
        let op = FileOp::Unpack { path: self.root.clone(), bytes_max: MOUNT_BYTES_MAX };
        self.ask(op, Some(tokio::fs::File::from_std(archive))).await.map(drop)
    }

    /// Removes a path with everything below it. A missing path is fine.
    pub(super) async fn remove(&self, path: &str) -> Result<()> {
        let path = GuestPath::parse("path", &format!("{}/{path}", self.root))?;
        match self.ask(FileOp::Remove { path, recursive: true }, None::<tokio::io::Empty>).await {
            Err(Error::File(error)) if error.code == FileErrorCode::NotFound => Ok(()),
            removed => removed.map(drop),
        }
    }

    /// Everything that is there, as an archive.
    pub(super) async fn pack(&self, staging: Arc<SafeRoot>) -> Result<File> {
        let op = FileOp::Pack { path: self.root.clone() };
        let (_, mut output) = self.ask(op, None::<tokio::io::Empty>).await?;
        let mut file = blocking(move || staged(&staging)).await?;
        let mut count = 0_u64;
        while let Some(bytes) = output.next().await? {
            count += bytes.len() as u64;
            if count > ARCHIVE_BYTES_MAX {
                let reason = format!("{} holds more than {} MiB", self.root, MOUNT_BYTES_MAX >> 20);
                return Err(Error::Setup { step: "carry out".to_owned(), reason });
            }
            let write =
                move || file.write_all(&bytes).map(|()| file).map_err(|error| Error::io("keeping an archive", error));
            file = blocking(write).await?;
        }
        file.rewind().map_err(|error| Error::io("keeping an archive", error))?;
        Ok(file)
    }

    async fn ask(&self, op: FileOp, input: Option<impl AsyncRead + Unpin>) -> Result<(Answer, FileOutput)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = format!("carry-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)).parse()?;
        let request = FileRequest { root: self.root.clone(), op };
        let mut request = ExecRequest::new(id, Program::FileOp(Box::new(request)));
        request.timeout_ms = Some(SYNC_TIMEOUT_MS);
        if input.is_some() {
            request.stdin = Stdin::Stream;
        }
        link::file_op(self.dial.dial().await?, &request, input).await
    }
}

/// Whether a directory is not there, or is something else.
fn is_no_place(code: FileErrorCode) -> bool {
    matches!(code, FileErrorCode::NotFound | FileErrorCode::NotDirectory | FileErrorCode::SymlinkRefused)
}

fn unexpected() -> Error {
    box_wire::FrameError::Unexpected(box_wire::Kind::Stdout).into()
}
