//! An exec whose output goes to the caller, and which ends with the caller.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use box_wire::{Ending, Event};
use rustix::event::PollFlags;

use super::inbox::{self, Inbox};
use super::input::Input;
use super::spawn::Spawned;
use super::{TERMINAL_BYTES, TURNS_MAX};
use crate::outbox::{Outbox, Source, StreamRead};

/// The caller of a streamed exec.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) stream: OwnedFd,
    inbox: Inbox,
    pub(super) outbox: Outbox,
    pub(super) gone: bool,
}

impl Caller {
    pub(super) fn new(stream: OwnedFd, inbox: Inbox) -> Self {
        Self { stream, inbox, outbox: Outbox::default(), gone: false }
    }

    /// Whether output of the command can be taken now.
    pub(super) fn takes_output(&self) -> bool {
        self.outbox.is_empty() || self.gone
    }

    pub(super) fn interests<'a>(&'a self, input: &Input, add: &mut impl FnMut(BorrowedFd<'a>, PollFlags)) {
        if self.gone {
            return;
        }
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, !input.is_waiting());
        events.set(PollFlags::OUT, !self.outbox.is_empty());
        add(self.stream.as_fd(), events);
    }

    /// Takes what the caller sent. An error means that the caller is gone.
    pub(super) fn take_input(&mut self, input: &mut Input, child: &mut Spawned) -> io::Result<()> {
        if !input.is_waiting() {
            self.inbox.fill(&self.stream)?;
        } else if inbox::is_hung_up(&self.stream) {
            // Nothing is read while input waits to be taken, so the end of the stream has to be asked for.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        input.take_from(&mut self.inbox, child)
    }

    /// Moves output to the stream. True when nothing more is waiting; an error means that the caller is gone.
    pub(super) fn move_output(&mut self, child: &mut Spawned) -> io::Result<bool> {
        for _ in 0..TURNS_MAX {
            if self.gone {
                self.outbox = Outbox::default();
                return Ok(true);
            }
            let lend = |source| match source {
                Source::Stdout => child.stdout.as_ref(),
                Source::Stderr => child.stderr.as_ref(),
            };
            self.outbox.flush(&self.stream, lend)?;
            if !self.outbox.is_empty() {
                return Ok(false);
            }
            if !self.take_output(child) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Leaves the last words to be sent.
    pub(super) fn finish(mut self, ending: Ending) -> (OwnedFd, Outbox) {
        self.outbox.push(&match ending {
            Ending::Exited(outcome) => Event::Exited(outcome),
            Ending::Refused(refusal) => Event::Refused(refusal),
        });
        (self.stream, self.outbox)
    }

    /// Reads from the streams that have output. False when none has.
    fn take_output(&mut self, child: &mut Spawned) -> bool {
        let mut any = false;
        if let Some(terminal) = &child.terminal {
            match self.outbox.take_copy(Source::Stdout, terminal, TERMINAL_BYTES) {
                Ok(StreamRead::Some) => any = true,
                Ok(StreamRead::Nothing) => {}
                Ok(StreamRead::End) | Err(_) => {
                    // The terminal has no open descriptor left: the command is ending, and its input has nowhere to go.
                    child.terminal = None;
                }
            }
        }
        for (source, pipe) in [(Source::Stdout, &mut child.stdout), (Source::Stderr, &mut child.stderr)] {
            let Some(open) = pipe else { continue };
            if any && !self.outbox.is_empty() {
                break;
            }
            match self.outbox.take_pipe(source, open) {
                Ok(StreamRead::Some) => any = true,
                Ok(StreamRead::Nothing) => {}
                Ok(StreamRead::End) | Err(_) => *pipe = None,
            }
        }
        any
    }
}
