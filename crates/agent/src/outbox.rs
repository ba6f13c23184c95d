//! Bytes to send on one stream. Bounded: output is taken from a pipe only when the outbox is empty.

use std::os::fd::{AsFd, OwnedFd};

use box_wire::frame::{self, HEADER_BYTES};
use box_wire::{Event, Header, Kind, limits};
use rustix::io::{Errno, Result};
use rustix::net::SendFlags;
use rustix::pipe::SpliceFlags;

/// Up to this size, copying into one buffer with the header costs less than a second system call.
const COPY_BYTES_MAX: usize = 16 << 10;

/// Bytes on their way to the host.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
    /// Announced by a header, still in a pipe.
    spliced: Option<(Source, usize)>,
}

/// Which stream of an exec is being moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Stdout,
    Stderr,
}

/// The result of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamRead {
    /// Something was taken.
    Some,
    /// Nothing is there now.
    Nothing,
    /// Nothing will ever come.
    End,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len() && self.spliced.is_none()
    }

    /// Appends an event. Events are few and small, so they may queue behind output.
    pub(crate) fn push(&mut self, event: &Event) {
        if let Ok(frame) = frame::encode(Kind::Event, event) {
            self.bytes.extend_from_slice(&frame);
        }
    }

    /// Takes what a pipe holds: small amounts by copy, large ones by announcing and moving them.
    pub(crate) fn take_pipe(&mut self, source: Source, pipe: &OwnedFd) -> Result<StreamRead> {
        let waiting = usize::try_from(rustix::io::ioctl_fionread(pipe)?).unwrap_or(0);
        if waiting <= COPY_BYTES_MAX {
            return self.take_copy(source, pipe, COPY_BYTES_MAX);
        }
        let count = waiting.min(limits::DATA_BYTES_MAX);
        self.put_header(source, count);
        self.spliced = Some((source, count));
        Ok(StreamRead::Some)
    }

    /// Takes what a terminal or a small pipe holds.
    pub(crate) fn take_copy(&mut self, source: Source, stream: &OwnedFd, bytes_max: usize) -> Result<StreamRead> {
        let start = self.bytes.len() + HEADER_BYTES;
        self.bytes.resize(start + bytes_max, 0);
        let read = rustix::io::read(stream, &mut self.bytes[start..]);
        let (count, taken) = match read {
            Ok(0) | Err(Errno::IO) => (0, StreamRead::End),
            Ok(count) => (count, StreamRead::Some),
            Err(Errno::AGAIN | Errno::INTR) => (0, StreamRead::Nothing),
            Err(error) => {
                self.bytes.truncate(start - HEADER_BYTES);
                return Err(error);
            }
        };
        if count == 0 {
            self.bytes.truncate(start - HEADER_BYTES);
            return Ok(taken);
        }
        self.bytes.truncate(start + count);
        let header = header(source, count);
        self.bytes[start - HEADER_BYTES..start].copy_from_slice(&header);
        Ok(taken)
    }

    /// Sends as much as the stream takes. `pipe` lends the descriptor of a source.
    pub(crate) fn flush<'a>(&mut self, stream: &OwnedFd, pipe: impl Fn(Source) -> Option<&'a OwnedFd>) -> Result<()> {
        while self.sent < self.bytes.len() {
            match rustix::net::send(stream, &self.bytes[self.sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        let Some((source, mut left)) = self.spliced else { return Ok(()) };
        let from = pipe(source).ok_or(Errno::BADF)?;
        while left > 0 {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            match rustix::pipe::splice(from.as_fd(), None, stream.as_fd(), None, left, flags) {
                // The pipe held this much when the header was written, and we are its only reader.
                Ok(0) => return Err(Errno::IO),
                Ok(count) => left -= count,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.spliced = (left > 0).then_some((source, left));
        Ok(())
    }

    fn put_header(&mut self, source: Source, count: usize) {
        self.bytes.extend_from_slice(&header(source, count));
    }
}

fn header(source: Source, count: usize) -> [u8; HEADER_BYTES] {
    let kind = match source {
        Source::Stdout => Kind::Stdout,
        Source::Stderr => Kind::Stderr,
    };
    Header { kind, payload_bytes: count.min(limits::DATA_BYTES_MAX) }.to_bytes()
}
