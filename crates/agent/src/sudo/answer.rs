//! Words to the client: that it may ask, and later how its command ended.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::SendFlags;

/// Bytes that show that a request was written after it was allowed.
pub(super) const NONCE_BYTES: usize = 16;

/// Longest text of a refusal that is sent or read.
const TEXT_BYTES_MAX: usize = 4096;

const ASK: u8 = b'A';
const FAILED: u8 = b'F';
const CODE: u8 = b'C';
const SIGNAL: u8 = b'S';

/// One word to the client. All but the first are the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Ask, and begin the request with these bytes.
    Ask([u8; NONCE_BYTES]),
    /// Nothing was started, for this reason.
    Failed(String),
    /// The command returned this code.
    Code(u8),
    /// This signal ended the command.
    Signal(u8),
}

impl Answer {
    /// Sends it without waiting: a client that does not read gets nothing.
    pub(super) fn send(&self, stream: impl AsFd) -> rustix::io::Result<()> {
        let bytes = match self {
            Self::Ask(nonce) => [[ASK].as_slice(), nonce].concat(),
            Self::Failed(text) => [[FAILED].as_slice(), &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)]].concat(),
            Self::Code(code) => vec![CODE, *code],
            Self::Signal(signal) => vec![SIGNAL, *signal],
        };
        rustix::net::send(stream, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
    }

    /// Waits for one; nothing when the other end hung up without a word.
    pub(super) fn receive(stream: &OwnedFd) -> Option<Self> {
        let mut kind = [0];
        if read(stream, &mut kind)? == 0 {
            return None;
        }
        let most = match kind[0] {
            ASK => NONCE_BYTES,
            FAILED => TEXT_BYTES_MAX,
            _ => 1,
        };
        let mut rest = vec![0; most];
        let mut filled = 0;
        while filled < most {
            match read(stream, &mut rest[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        let rest = &rest[..filled];
        match kind[0] {
            ASK => Some(Self::Ask(rest.try_into().ok()?)),
            FAILED => Some(Self::Failed(String::from_utf8_lossy(rest).into_owned())),
            CODE => Some(Self::Code(*rest.first()?)),
            SIGNAL => Some(Self::Signal(*rest.first()?)),
            _ => None,
        }
    }
}

fn read(stream: &OwnedFd, buffer: &mut [u8]) -> Option<usize> {
    loop {
        match rustix::io::read(stream, &mut *buffer) {
            Err(Errno::INTR) => {}
            read => return read.ok(),
        }
    }
}
