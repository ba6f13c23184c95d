//! Input of a command: standard input and window sizes, in whole frames.

use std::io;
use std::os::fd::OwnedFd;

use box_wire::{Kind, WindowSize, frame};
use rustix::io::Errno;

use super::Inbox;
use super::spawn::{self, Spawned};

/// The end-of-file character. A terminal has no end; this is how it is said.
const END_OF_FILE: u8 = 0x04;

/// Input on its way to a command: at most one frame. No more is read from clients until the command has taken it.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    ending: bool,
}

impl Input {
    /// Whether input waits for the command.
    pub(super) fn is_waiting(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Whether the command can still receive input.
    pub(super) fn is_open(&self, child: &Spawned) -> bool {
        !self.ending && (child.stdin.is_some() || child.terminal.is_some())
    }

    /// The descriptor to poll while the command does not read.
    pub(super) fn waits_for<'a>(&self, child: &'a Spawned) -> Option<&'a OwnedFd> {
        if self.is_waiting() { child.stdin.as_ref().or(child.terminal.as_ref()) } else { None }
    }

    /// Takes frames until one has to wait, or none is left. An error means that a frame made no sense.
    pub(super) fn take_from(&mut self, inbox: &mut Inbox, child: &mut Spawned) -> io::Result<()> {
        loop {
            // Feed received bytes at once: frames that are already in the inbox cause no further `poll` event.
            self.feed(child);
            if self.is_waiting() {
                return Ok(());
            }
            let Some((kind, payload)) = inbox.next()? else { return Ok(()) };
            match kind {
                Kind::Stdin => self.bytes = payload,
                Kind::StdinEnd => self.ending = true,
                Kind::Resize => resize(&payload, child),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    /// Passes waiting input on to the command.
    pub(super) fn feed(&mut self, child: &mut Spawned) {
        while !self.bytes.is_empty() {
            let Some(input) = child.stdin.as_ref().or(child.terminal.as_ref()) else {
                self.bytes.clear();
                break;
            };
            match rustix::io::write(input, &self.bytes) {
                Ok(count) => drop(self.bytes.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The command closed its input, so the rest is dropped.
                Err(_) => {
                    self.bytes.clear();
                    child.stdin = None;
                }
            }
        }
        if self.ending {
            self.ending = false;
            match &child.terminal {
                Some(_) => self.bytes.push(END_OF_FILE),
                None => child.stdin = None,
            }
        }
    }
}

fn resize(payload: &[u8], child: &Spawned) {
    let size = frame::decode::<WindowSize>(Kind::Resize, payload).ok().filter(|size| size.validate().is_ok());
    if let (Some(size), Some(terminal)) = (size, &child.terminal) {
        let _ = spawn::set_window_size(terminal, size);
    }
}
