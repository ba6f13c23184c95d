//! What execs wrote while nobody listened, read from the files that the box's agent left.
//!
//! Whoever wrote those files may be hostile: links are not followed, only regular files are read, and everything is bounded.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use box_wire::journal::{FileName, LEFT_ALONE};
use box_wire::limits::{BOX_MESSAGE_BYTES_MAX, JOURNAL_BYTES_MAX};
use box_wire::{EndRecord, ExecId, FrameError, Invalid, StreamName};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::limits::{JOURNAL_ENTRIES_MAX, JOURNAL_READ_BYTES_MAX};
use crate::output::{Clipped, Clipper};
use crate::{Error, Result};

/// Reads up to this size are done where they are asked for: they cost less than handing them to somebody.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// How often segments may vanish under our hands before we give up. One does when a whole one was written meanwhile.
const DISTURBANCES_MAX: usize = 64;

/// The journal of one box. Copies are cheap and mean the same journal.
#[derive(Debug, Clone)]
pub struct Journal {
    directory: Arc<OwnedFd>,
}

/// A piece of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of its first byte in the stream. Where to go on is `start` and the number of bytes.
    pub start: u64,
    /// The bytes; none when nothing more is there yet.
    pub bytes: Vec<u8>,
    /// It starts later than was asked for, because what lies before is not kept.
    pub gap: bool,
}

impl Journal {
    /// The journal in a directory, as [`crate::Backend::journal`] gives it.
    pub fn open(directory: OwnedFd) -> Self {
        Self { directory: Arc::new(directory) }
    }

    /// Reads at most `bytes_max` bytes of a stream from an offset on, or from the next offset that is kept.
    ///
    /// An empty chunk means that nothing more is there now. Whether more will come is told by [`Journal::end`].
    pub async fn read(&self, exec: &ExecId, stream: StreamName, from: u64, bytes_max: usize) -> Result<Chunk> {
        if !(1..=JOURNAL_READ_BYTES_MAX).contains(&bytes_max) {
            let allowed = format!("from 1 to {JOURNAL_READ_BYTES_MAX}");
            return Err(Invalid::new("bytes_max", bytes_max, allowed).into());
        }
        if bytes_max <= INLINE_BYTES_MAX {
            return self.read_now(exec, stream, from, bytes_max);
        }
        let (journal, exec) = (self.clone(), exec.clone());
        blocking(move || journal.read_now(&exec, stream, from, bytes_max)).await
    }

    /// The stream as text of at most `limit_chars` characters; see [`crate::output`]. All that is kept is read, to count.
    pub async fn clipped(&self, exec: &ExecId, stream: StreamName, limit_chars: usize) -> Result<Clipped> {
        if self.length(exec, stream)? <= INLINE_BYTES_MAX as u64 {
            return self.clipped_now(exec, stream, limit_chars);
        }
        let (journal, exec) = (self.clone(), exec.clone());
        blocking(move || journal.clipped_now(&exec, stream, limit_chars)).await
    }

    /// How long a stream is so far: the offset behind the last byte that is kept.
    pub fn length(&self, exec: &ExecId, stream: StreamName) -> Result<u64> {
        for _ in 0..DISTURBANCES_MAX {
            let Some(start) = self.starts(exec, stream)?.pop() else { return Ok(0) };
            if let Some(segment) = self.open_segment(exec, stream, start)? {
                return Ok(segment.end);
            }
        }
        Err(disturbed(exec))
    }

    /// The first byte from which on a stream is kept without a gap: 0 while all of it is.
    pub fn unbroken_from(&self, exec: &ExecId, stream: StreamName) -> Result<u64> {
        let Some(last) = self.starts(exec, stream)?.pop() else { return Ok(0) };
        // A list that is made while segments come may lack one; a second list does not, as far as the first one went.
        let starts = self.starts(exec, stream)?.into_iter().filter(|start| *start <= last);
        let mut segments = Vec::new();
        for start in starts {
            segments.extend(self.open_segment(exec, stream, start)?.map(|segment| (start, segment.end - start)));
        }
        Ok(unbroken_from(&segments))
    }

    /// How an exec ended; nothing while it has not.
    pub fn end(&self, exec: &ExecId) -> Result<Option<EndRecord>> {
        let name = FileName::End { exec: exec.clone() };
        let Some((file, length)) = self.open_file(&name)? else { return Ok(None) };
        if length > BOX_MESSAGE_BYTES_MAX as u64 {
            return Err(hostile(&name, format!("more than {BOX_MESSAGE_BYTES_MAX} bytes")));
        }
        let bytes = read_at(&file, 0, BOX_MESSAGE_BYTES_MAX).map_err(|error| failed("reading", &name, error))?;
        Ok(Some(EndRecord::from_bytes(exec, &bytes)?))
    }

    /// Whether the agent recorded that it ended the box because its host stayed away.
    pub fn says_left_alone(&self) -> bool {
        let found = rustix::fs::statat(&*self.directory, LEFT_ALONE, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }

    /// Removes everything of one exec, which must not be running any more. What is not there is fine.
    pub fn remove(&self, exec: &ExecId) -> Result<()> {
        for name in self.names()?.into_iter().filter(|name| name.exec() == exec) {
            match rustix::fs::unlinkat(&*self.directory, name.to_string(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(failed("removing", &name, error)),
            }
        }
        Ok(())
    }

    /// Every exec of which something is kept, in the order of their names.
    pub fn execs(&self) -> Result<Vec<ExecId>> {
        let mut execs: Vec<ExecId> = self.names()?.into_iter().map(|name| name.exec().clone()).collect();
        execs.sort_unstable();
        execs.dedup();
        Ok(execs)
    }

    /// Bytes that are kept of all execs together.
    pub fn bytes(&self) -> Result<u64> {
        let mut bytes = 0_u64;
        for name in self.names()? {
            match rustix::fs::statat(&*self.directory, name.to_string(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => bytes = bytes.saturating_add(u64::try_from(stat.st_size).unwrap_or(0)),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(failed("looking at", &name, error)),
            }
        }
        Ok(bytes)
    }

    fn read_now(&self, exec: &ExecId, stream: StreamName, from: u64, bytes_max: usize) -> Result<Chunk> {
        let nothing = Chunk { start: from, bytes: Vec::new(), gap: false };
        // Most streams fit into their first segment, whose name is known.
        if let Some(segment) = self.open_segment(exec, stream, 0)?.filter(|segment| from < segment.end) {
            return segment.read(from, bytes_max);
        }
        let mut is_sure = false;
        for _ in 0..DISTURBANCES_MAX {
            let starts = self.starts(exec, stream)?;
            let later = starts.partition_point(|start| *start <= from);
            if let Some(start) = later.checked_sub(1).map(|last| starts[last])
                && let Some(segment) = self.open_segment(exec, stream, start)?
                && from < segment.end
            {
                return segment.read(from, bytes_max);
            }
            let Some(&next) = starts.get(later) else { return Ok(nothing) };
            // A list that was made while segments came may lack one that is older than one that it has. A second list does not,
            // as far as the first one went.
            if !std::mem::replace(&mut is_sure, true) {
                continue;
            }
            match self.open_segment(exec, stream, next)? {
                Some(segment) if segment.end == next => return Ok(nothing),
                Some(segment) => return Ok(Chunk { gap: true, ..segment.read(next, bytes_max)? }),
                None => is_sure = false,
            }
        }
        Err(disturbed(exec))
    }

    fn clipped_now(&self, exec: &ExecId, stream: StreamName, limit_chars: usize) -> Result<Clipped> {
        let mut clipper = Clipper::new(limit_chars);
        // What comes later is not waited for, or a command that never stops would never let us go.
        let length = self.length(exec, stream)?;
        let mut from = 0;
        while from < length {
            let chunk = self.read_now(exec, stream, from, JOURNAL_READ_BYTES_MAX)?;
            if chunk.bytes.is_empty() {
                break;
            }
            clipper.skip(chunk.start - from);
            clipper.push(&chunk.bytes);
            from = chunk.start + chunk.bytes.len() as u64;
        }
        let total = self.end(exec)?.map_or(length, |end| end.bytes_of(stream));
        clipper.skip(total.saturating_sub(from));
        Ok(clipper.finish())
    }

    /// Where the segments of a stream start, in order.
    fn starts(&self, exec: &ExecId, stream: StreamName) -> Result<Vec<u64>> {
        let start_of = |name: FileName| match name {
            FileName::Segment { exec: whose, stream: which, start } if whose == *exec && which == stream => Some(start),
            _ => None,
        };
        let mut starts: Vec<u64> = self.names()?.into_iter().filter_map(start_of).collect();
        starts.sort_unstable();
        Ok(starts)
    }

    /// Every name that is one of a journal.
    fn names(&self) -> Result<Vec<FileName>> {
        let entries = Dir::read_from(&*self.directory).map_err(|error| Error::io("listing a journal", error))?;
        let mut names = Vec::new();
        for (count, entry) in entries.enumerate() {
            if count > JOURNAL_ENTRIES_MAX {
                let reason = format!("more than {JOURNAL_ENTRIES_MAX} files; remove some execs");
                return Err(FrameError::BadJournal { file: ".".to_owned(), reason }.into());
            }
            let entry = entry.map_err(|error| Error::io("listing a journal", error))?;
            names.extend(entry.file_name().to_str().ok().and_then(FileName::parse));
        }
        Ok(names)
    }

    fn open_segment(&self, exec: &ExecId, stream: StreamName, start: u64) -> Result<Option<Segment>> {
        let name = FileName::Segment { exec: exec.clone(), stream, start };
        let Some((file, length)) = self.open_file(&name)? else { return Ok(None) };
        match start.checked_add(length).filter(|_| length <= JOURNAL_BYTES_MAX) {
            Some(end) => Ok(Some(Segment { name, file, start, end })),
            None => Err(hostile(&name, format!("{length} bytes are more than a segment can have"))),
        }
    }

    /// Opens a file and tells its length; nothing when there is none.
    fn open_file(&self, name: &FileName) -> Result<Option<(File, u64)>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&*self.directory, name.to_string(), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => return Err(hostile(name, "not a regular file")),
            Err(error) => return Err(failed("opening", name, error)),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| failed("looking at", name, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(hostile(name, "not a regular file"));
        }
        Ok(Some((File::from(file), u64::try_from(stat.st_size).unwrap_or(0))))
    }
}

/// Where the last gap between segments ends, each given by its start and length.
pub(crate) fn unbroken_from(segments: &[(u64, u64)]) -> u64 {
    let filled = segments.iter().filter(|(_, bytes)| *bytes > 0);
    let (from, _) = filled.fold((0, 0), |(from, end), (start, bytes)| {
        (if *start > end { *start } else { from }, start.saturating_add(*bytes))
    });
    from
}

/// A segment that is open.
struct Segment {
    name: FileName,
    file: File,
    /// Offset in the stream of its first byte.
    start: u64,
    /// Offset in the stream behind its last byte.
    end: u64,
}

impl Segment {
    /// Reads from an offset of the stream that the segment holds.
    fn read(&self, from: u64, bytes_max: usize) -> Result<Chunk> {
        let bytes_max = usize::try_from(self.end - from).unwrap_or(usize::MAX).min(bytes_max);
        let bytes = read_at(&self.file, from - self.start, bytes_max);
        let bytes = bytes.map_err(|error| failed("reading", &self.name, error))?;
        Ok(Chunk { start: from, bytes, gap: false })
    }
}

/// Reads until the end or until there is no more room.
fn read_at(file: &File, offset: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; bytes_max];
    let mut length = 0;
    while length < bytes_max {
        match file.read_at(&mut bytes[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match crate::tasks::blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::io("reading a journal in the background", io::Error::other(error))),
    }
}

fn hostile(name: &FileName, reason: impl Into<String>) -> Error {
    FrameError::BadJournal { file: name.to_string(), reason: reason.into() }.into()
}

fn failed(doing: &str, name: &FileName, error: impl Into<io::Error>) -> Error {
    Error::io(format!("{doing} {name} of a journal"), error)
}

fn disturbed(exec: &ExecId) -> Error {
    let reason = io::Error::from(io::ErrorKind::ResourceBusy);
    Error::io(format!("reading the journal of {exec}, which changes too fast"), reason)
}

#[cfg(test)]
mod tests;
