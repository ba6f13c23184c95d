//! One direction of a connection: what was taken from one end and not yet by the other.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

/// How much is taken at once.
const CHUNK_BYTES: usize = 64 << 10;

/// One direction of a connection. It holds one chunk at most, so a slow reader slows only its own writer.
#[derive(Debug, Default)]
pub(super) struct Flow {
    bytes: Vec<u8>,
    sent: usize,
    ended: bool,
    over: bool,
    broken: bool,
}

impl Flow {
    /// A direction in which this goes first.
    pub(super) fn starting_with(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Whether something was taken and waits for the other end.
    pub(super) fn is_waiting(&self) -> bool {
        self.sent < self.bytes.len()
    }

    /// Whether more may be taken.
    pub(super) fn takes(&self) -> bool {
        !self.is_waiting() && !self.ended && !self.over
    }

    /// Whether nothing more will come from where it is taken.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether nothing more will happen in this direction.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether it ended because its reader is gone.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Drops what was not sent: the reader is gone.
    pub(super) fn give_up(&mut self) {
        (self.bytes, self.sent) = (Vec::new(), 0);
        (self.over, self.broken) = (true, true);
    }

    /// Does one thing that can be done now: passes on what waits, passes on the end, or takes more. False when there is nothing.
    pub(super) fn step(&mut self, from: &OwnedFd, to: &OwnedFd) -> bool {
        if self.over {
            return false;
        }
        if self.is_waiting() {
            return self.pass_on(to);
        }
        if self.ended {
            self.over = true;
            // An end that is gone has no use for the news.
            let _ = rustix::net::shutdown(to, Shutdown::Write);
            return true;
        }
        self.take(from)
    }

    fn pass_on(&mut self, to: &OwnedFd) -> bool {
        match rustix::net::send(to, &self.bytes[self.sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => self.sent += count,
            Err(Errno::AGAIN) => return false,
            Err(Errno::INTR) => {}
            Err(_) => self.give_up(),
        }
        true
    }

    fn take(&mut self, from: &OwnedFd) -> bool {
        self.sent = 0;
        self.bytes.resize(CHUNK_BYTES, 0);
        let count = match rustix::net::recv(from, &mut self.bytes[..], RecvFlags::DONTWAIT) {
            Ok((count, _)) => count,
            Err(Errno::AGAIN | Errno::INTR) => {
                // An idle connection keeps no buffer.
                self.bytes = Vec::new();
                return false;
            }
            // A connection that was reset has ended. The end of a stream cannot express that it was a reset.
            Err(_) => 0,
        };
        self.ended = count == 0;
        self.bytes.truncate(count);
        true
    }
}
