//! Frames from the host, put together from whatever pieces arrive.

use std::io;
use std::os::fd::OwnedFd;

use box_wire::frame::HEADER_BYTES;
use box_wire::{Header, Kind};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::RecvFlags;

/// How much is read at once.
const READ_BYTES: usize = 64 << 10;

/// Whether the other end of a stream is gone.
pub(crate) fn is_hung_up(stream: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
}

/// Frames from the host, put together from whatever pieces arrive.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Reads what is there without waiting. An error means that the host is gone.
    pub(crate) fn fill(&mut self, stream: &OwnedFd) -> io::Result<()> {
        let start = self.bytes.len();
        self.bytes.resize(start + READ_BYTES, 0);
        let received = rustix::net::recv(stream, &mut self.bytes[start..], RecvFlags::DONTWAIT);
        let (count, result) = match received {
            Ok((0, _)) => (0, Err(io::ErrorKind::UnexpectedEof.into())),
            Ok((count, _)) => (count, Ok(())),
            Err(Errno::AGAIN | Errno::INTR) => (0, Ok(())),
            Err(error) => (0, Err(error.into())),
        };
        self.bytes.truncate(start + count);
        if self.bytes.is_empty() {
            // An idle stream keeps no buffer.
            self.bytes = Vec::new();
        }
        result
    }

    /// The bytes behind the frames that were taken.
    pub(crate) fn into_rest(self) -> Vec<u8> {
        self.bytes
    }

    /// The next whole frame, if one is there.
    pub(crate) fn next(&mut self) -> io::Result<Option<(Kind, Vec<u8>)>> {
        let Some(header) = self.bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::from_bytes(*header).map_err(io::Error::other)?;
        let end = HEADER_BYTES + header.payload_bytes;
        if self.bytes.len() < end {
            return Ok(None);
        }
        let payload = self.bytes[HEADER_BYTES..end].to_vec();
        self.bytes.drain(..end);
        Ok(Some((header.kind, payload)))
    }
}
