//! A terminal of its own for the command, carried to and from the caller's: no process can join the caller's session, and
//! only a controlling terminal has job control.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use box_wire::WindowSize;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};

use crate::exec;

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 16 << 10;

/// When to look again at a terminal that no process has open.
const CLOSED_LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Both terminals.
#[derive(Debug)]
pub(super) struct Screen {
    keyboard: BorrowedFd<'static>,
    display: BorrowedFd<'static>,
    /// The caller's settings of its terminal.
    usual: Termios,
    is_raw: bool,
    master: OwnedFd,
    /// The command's end, until it was handed over.
    slave: Option<OwnedFd>,
    /// Whether no process has the command's end open.
    is_closed: bool,
    /// Typed, and not taken yet.
    typed: Vec<u8>,
    has_keyboard: bool,
}

impl Screen {
    /// Makes a terminal like the caller's; nothing where standard input is not the caller's controlling terminal.
    pub(super) fn open() -> Option<Self> {
        let keyboard = rustix::stdio::stdin();
        tcgetpgrp(keyboard).ok()?;
        let usual = tcgetattr(keyboard).ok()?;
        let (master, slave) = exec::open_terminal(size_of_terminal(keyboard)?).ok()?;
        tcsetattr(&slave, OptionalActions::Now, &usual).ok()?;
        let flags = rustix::fs::fcntl_getfl(&master).ok()?;
        rustix::fs::fcntl_setfl(&master, flags | OFlags::NONBLOCK).ok()?;
        let outputs = [rustix::stdio::stdout(), rustix::stdio::stderr()];
        let display = outputs.into_iter().find(|output| isatty(output)).unwrap_or(keyboard);
        Some(Self {
            keyboard,
            display,
            usual,
            is_raw: false,
            master,
            slave: Some(slave),
            is_closed: false,
            typed: Vec::new(),
            has_keyboard: true,
        })
    }

    /// The descriptor that the command gets for a stream of the caller: the terminal, if that stream is one.
    pub(super) fn instead_of<'a>(&'a self, stream: BorrowedFd<'a>) -> BorrowedFd<'a> {
        self.slave.as_ref().filter(|_| isatty(stream)).map_or(stream, AsFd::as_fd)
    }

    /// The command has its end.
    pub(super) fn hand_over(&mut self) {
        self.slave = None;
    }

    /// Takes the keyboard when this program is in the foreground. Answers how long to wait at most.
    pub(super) fn prepare(&mut self) -> Option<Timespec> {
        if !self.is_raw && self.is_in_front() {
            let mut raw = self.usual.clone();
            raw.make_raw();
            self.is_raw = tcsetattr(self.keyboard, OptionalActions::Now, &raw).is_ok();
        }
        self.is_closed.then_some(CLOSED_LOOK)
    }

    /// The descriptors that it waits for.
    pub(super) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let takes = self.is_raw && self.has_keyboard && self.typed.is_empty();
        let keyboard = takes.then(|| PollFd::new(&self.keyboard, PollFlags::IN));
        let out = if self.typed.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let master = (!self.is_closed).then(|| PollFd::new(&self.master, PollFlags::IN | out));
        keyboard.into_iter().chain(master)
    }

    /// Carries what can be carried without waiting.
    pub(super) fn turn(&mut self) {
        self.show();
        if self.is_raw && self.has_keyboard && self.typed.is_empty() && self.has_typed() {
            let mut bytes = vec![0; CHUNK_BYTES];
            match rustix::io::read(self.keyboard, &mut bytes) {
                Ok(count) if count > 0 => self.typed = bytes[..count].to_vec(),
                // In the background nothing can be read, and the terminal is still there.
                _ => self.has_keyboard = !self.is_in_front(),
            }
        }
        if let Ok(count) = rustix::io::write(&self.master, &self.typed) {
            self.typed.drain(..count);
        }
    }

    /// Shows what the command wrote.
    fn show(&mut self) {
        let mut bytes = [0; CHUNK_BYTES];
        loop {
            match rustix::io::read(&self.master, &mut bytes) {
                Ok(0) | Err(rustix::io::Errno::IO) => {
                    self.is_closed = true;
                    return;
                }
                Ok(count) => {
                    self.is_closed = false;
                    let mut rest = &bytes[..count];
                    while let Ok(written @ 1..) = rustix::io::write(self.display, rest) {
                        rest = &rest[written..];
                    }
                }
                Err(_) => {
                    self.is_closed = false;
                    return;
                }
            }
        }
    }

    fn has_typed(&self) -> bool {
        let mut polled = [PollFd::new(&self.keyboard, PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
    }

    fn is_in_front(&self) -> bool {
        tcgetpgrp(self.keyboard).is_ok_and(|group| group == rustix::process::getpgrp())
    }

    /// Gives the caller's terminal its settings back.
    pub(super) fn restore(&mut self) {
        if self.is_raw && self.is_in_front() {
            let _ = tcsetattr(self.keyboard, OptionalActions::Now, &self.usual);
        }
        self.is_raw = false;
    }

    /// The terminal may have other settings by now: this program was stopped.
    pub(super) fn forget(&mut self) {
        self.is_raw = false;
    }

    /// The caller's terminal has another size.
    pub(super) fn resize(&self) {
        if let Some(size) = size_of_terminal(self.keyboard) {
            let _ = exec::set_window_size(&self.master, size);
        }
    }

    /// Shows the last words of the command.
    pub(super) fn end(&mut self) {
        self.show();
        self.restore();
    }
}

fn size_of_terminal(terminal: BorrowedFd<'_>) -> Option<WindowSize> {
    let size = tcgetwinsize(terminal).ok()?;
    Some(WindowSize { rows: size.ws_row, columns: size.ws_col })
}
