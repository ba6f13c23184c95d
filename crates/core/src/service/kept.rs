//! What the commands of a session wrote: in a directory of this machine, or in the box itself, where its backend shares no files with us.

use std::sync::Arc;

use box_wire::journal::FileName;
use box_wire::limits::{BOX_MESSAGE_BYTES_MAX, ENTRIES_MAX};
use box_wire::{Answer, EndRecord, ExecId, FileErrorCode, FileOp, GuestPath, StreamName};

use super::file_ops::{FileCall, NO_INPUT, wire_request};
use crate::backend::{Backend, Handle};
use crate::journal::{Chunk, Journal, unbroken_from};
use crate::limits::JOURNAL_READ_BYTES_MAX;
use crate::link::{self, FileOutput};
use crate::output::{Clipped, Clipper, unfinished_bytes};
use crate::{Error, Result};

/// How often a segment may vanish under our hands before what it held counts as missing.
const DISTURBANCES_MAX: usize = 4;

/// The journal of a session's box. What is rare is boxed, so that the usual way stays small.
#[derive(Debug)]
pub(super) enum Kept {
    /// In a directory of this machine.
    Here(Journal),
    /// In the box, whose agent is asked for it. It goes with the box.
    InBox(InBox),
}

/// A journal that is asked for.
#[derive(Debug)]
pub(super) struct InBox {
    backend: Arc<dyn Backend>,
    handle: Handle,
    directory: GuestPath,
}

impl Kept {
    /// The journal of a box that keeps one.
    pub(super) async fn of(backend: &Arc<dyn Backend>, handle: &Handle) -> Result<Self> {
        match backend.journal_in_box(handle) {
            Some(directory) => {
                Ok(Self::InBox(InBox { backend: Arc::clone(backend), handle: handle.clone(), directory }))
            }
            None => Ok(Self::Here(Journal::open(backend.journal(handle).await?))),
        }
    }

    /// See [`Journal::read`].
    pub(super) async fn read(&self, exec: &ExecId, stream: StreamName, from: u64, bytes_max: usize) -> Result<Chunk> {
        match self {
            Self::Here(journal) => journal.read(exec, stream, from, bytes_max).await,
            Self::InBox(journal) => Box::pin(journal.read(exec, stream, from, bytes_max)).await,
        }
    }

    /// See [`Journal::clipped`].
    pub(super) async fn clipped(&self, exec: &ExecId, stream: StreamName, limit_chars: usize) -> Result<Clipped> {
        match self {
            Self::Here(journal) => journal.clipped(exec, stream, limit_chars).await,
            Self::InBox(journal) => Box::pin(journal.clipped(exec, stream, limit_chars)).await,
        }
    }

    /// The beginning of a stream of `total` bytes, of whole characters, as long as nothing is missing in it.
    pub(super) async fn head(
        &self,
        exec: &ExecId,
        stream: StreamName,
        bytes_max: usize,
        total: u64,
    ) -> Result<Clipped> {
        let mut head = Vec::new();
        while head.len() < bytes_max && (head.len() as u64) < total {
            let chunk = self.read(exec, stream, head.len() as u64, bytes_max - head.len()).await?;
            if chunk.bytes.is_empty() || chunk.gap {
                break;
            }
            head.extend_from_slice(&chunk.bytes);
        }
        let truncated = (head.len() as u64) < total;
        if truncated {
            head.truncate(head.len() - unfinished_bytes(&head));
        }
        Ok(Clipped { text: String::from_utf8_lossy(&head).into_owned(), truncated })
    }

    /// See [`Journal::unbroken_from`].
    pub(super) async fn unbroken_from(&self, exec: &ExecId, stream: StreamName) -> Result<u64> {
        match self {
            Self::Here(journal) => journal.unbroken_from(exec, stream),
            Self::InBox(journal) => Ok(unbroken_from(&Box::pin(journal.segments(exec, stream)).await?)),
        }
    }

    /// See [`Journal::end`].
    pub(super) async fn end(&self, exec: &ExecId) -> Result<Option<EndRecord>> {
        match self {
            Self::Here(journal) => journal.end(exec),
            Self::InBox(journal) => Box::pin(journal.end(exec)).await,
        }
    }

    /// See [`Journal::remove`].
    pub(super) async fn remove(&self, exec: &ExecId) -> Result<()> {
        match self {
            Self::Here(journal) => journal.remove(exec),
            Self::InBox(journal) => Box::pin(journal.remove(exec)).await,
        }
    }
}

impl InBox {
    async fn read(&self, exec: &ExecId, stream: StreamName, from: u64, bytes_max: usize) -> Result<Chunk> {
        for _ in 0..DISTURBANCES_MAX {
            let segments = self.segments(exec, stream).await?;
            // Segments are sorted and do not meet: the first that ends behind the offset has it, or what comes next.
            let Some((start, _)) = segments.into_iter().find(|(start, bytes)| from < start.saturating_add(*bytes))
            else {
                break;
            };
            let (begin, name) = (from.max(start), FileName::Segment { exec: exec.clone(), stream, start });
            if let Some(bytes) = self.file(&name, begin - start, bytes_max).await?.filter(|bytes| !bytes.is_empty()) {
                return Ok(Chunk { start: begin, bytes, gap: begin > from });
            }
        }
        Ok(Chunk { start: from, bytes: Vec::new(), gap: false })
    }

    async fn clipped(&self, exec: &ExecId, stream: StreamName, limit_chars: usize) -> Result<Clipped> {
        let mut clipper = Clipper::new(limit_chars);
        let last = self.segments(exec, stream).await?.pop();
        // What comes later is not waited for, or a command that never stops would never let us go.
        let (length, mut from) = (last.map_or(0, |(start, bytes)| start.saturating_add(bytes)), 0);
        while from < length {
            let chunk = self.read(exec, stream, from, JOURNAL_READ_BYTES_MAX).await?;
            if chunk.bytes.is_empty() {
                break;
            }
            clipper.skip(chunk.start - from);
            clipper.push(&chunk.bytes);
            from = chunk.start + chunk.bytes.len() as u64;
        }
        let total = self.end(exec).await?.map_or(length, |end| end.bytes_of(stream));
        clipper.skip(total.saturating_sub(from));
        Ok(clipper.finish())
    }

    async fn end(&self, exec: &ExecId) -> Result<Option<EndRecord>> {
        let name = FileName::End { exec: exec.clone() };
        // One byte more than there may be, so that a longer one is told from one that fits.
        let Some(bytes) = self.file(&name, 0, BOX_MESSAGE_BYTES_MAX + 1).await? else { return Ok(None) };
        Ok(Some(EndRecord::from_bytes(exec, &bytes)?))
    }

    async fn remove(&self, exec: &ExecId) -> Result<()> {
        for (name, _) in self.files().await?.into_iter().filter(|(name, _)| name.exec() == exec) {
            let op = FileOp::Remove { path: self.path(&name)?, recursive: false };
            found(self.ask(op).await)?;
        }
        Ok(())
    }

    /// Where the segments of a stream start and how long they are, in order.
    async fn segments(&self, exec: &ExecId, stream: StreamName) -> Result<Vec<(u64, u64)>> {
        let segment = |(name, bytes): (FileName, u64)| match name {
            FileName::Segment { exec: whose, stream: which, start } if whose == *exec && which == stream => {
                Some((start, bytes))
            }
            _ => None,
        };
        let mut segments: Vec<_> = self.files().await?.into_iter().filter_map(segment).collect();
        segments.sort_unstable();
        Ok(segments)
    }

    /// Every file that has a name of a journal, and how long it is.
    async fn files(&self) -> Result<Vec<(FileName, u64)>> {
        let op = FileOp::List { path: self.directory.clone(), depth: 1, entries_max: ENTRIES_MAX };
        let Answer::Entries { entries, .. } = self.ask(op).await?.0 else { return Err(wrong()) };
        let file = |entry: box_wire::file_op::Entry| {
            let name = entry.path.rsplit('/').next().and_then(FileName::parse)?;
            Some((name, entry.size))
        };
        Ok(entries.into_iter().filter_map(file).collect())
    }

    /// Some bytes of a file; nothing where there is none.
    async fn file(&self, name: &FileName, offset: u64, bytes_max: usize) -> Result<Option<Vec<u8>>> {
        let op = FileOp::Read { path: self.path(name)?, offset, bytes_max: Some(bytes_max as u64) };
        let Some((_, mut output)) = found(self.ask(op).await)? else { return Ok(None) };
        let mut bytes = Vec::new();
        while let Some(piece) = output.next().await? {
            // Whoever sends may be hostile.
            if bytes.len() + piece.len() > bytes_max {
                return Err(wrong());
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(Some(bytes))
    }

    async fn ask(&self, op: FileOp) -> Result<(Answer, FileOutput)> {
        let call = FileCall { root: self.directory.clone(), ..FileCall::new(op) };
        let request = wire_request(&call, false)?;
        link::file_op(self.backend.dial(&self.handle).await?, &request, NO_INPUT).await
    }

    fn path(&self, name: &FileName) -> Result<GuestPath> {
        Ok(format!("{}/{name}", self.directory).parse()?)
    }
}

/// What was asked for, or nothing where it is not there.
fn found<T>(asked: Result<T>) -> Result<Option<T>> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::File(error)) if error.code == FileErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn wrong() -> Error {
    let reason = "its agent answers something else than it was asked for".to_owned();
    Error::Setup { step: "journal".to_owned(), reason }
}
