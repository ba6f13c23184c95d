//! Our standard streams, moved as fast as the other side goes and, where possible, without a thread in between.
//!
//! They are shared with the caller's shell and other programs, so they must not be made non-blocking: that would change them
//! for everybody. Pipes and terminals can be opened once more, and then only our own opening is non-blocking.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::fs::{FileType, Mode, OFlags};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

/// Whether standard input is meant for the command. A pipe, a file or a socket is. A terminal is not unless it is said so,
/// because a command that reads it would be stopped in the background; and a device such as `/dev/null` has nothing to say.
pub(crate) fn takes_input(interactive: bool) -> bool {
    let stdin = rustix::stdio::stdin();
    if interactive || io::stdin().is_terminal() {
        return interactive;
    }
    rustix::fs::fstat(stdin).is_ok_and(|stat| {
        matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::RegularFile | FileType::Socket)
    })
}

/// Our standard input.
#[derive(Debug)]
pub(crate) enum Input {
    /// A pipe or a terminal, opened once more.
    Reopened(pipe::Receiver),
    /// A file, which never makes a reader wait.
    File(BorrowedFd<'static>),
    /// Anything else, read by a thread that may wait.
    Threaded(tokio::io::Stdin),
    /// Nothing, and that is the end.
    Ended,
    /// Nothing, without an end.
    Silent,
}

impl Input {
    /// Standard input, whatever it is.
    pub(crate) fn stdin() -> Self {
        let fd = rustix::stdio::stdin();
        match kind(fd) {
            Kind::File => Self::File(fd),
            Kind::Reopenable => {
                let own = reopen(fd, OFlags::RDONLY).and_then(pipe::Receiver::from_file_unchecked);
                own.map_or_else(|_| Self::Threaded(tokio::io::stdin()), Self::Reopened)
            }
            Kind::Other => Self::Threaded(tokio::io::stdin()),
        }
    }
}

impl AsyncRead for Input {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Reopened(own) => Pin::new(own).poll_read(cx, into),
            Self::Threaded(stdin) => Pin::new(stdin).poll_read(cx, into),
            Self::File(fd) => {
                let count = rustix::io::retry_on_intr(|| rustix::io::read(*fd, into.initialize_unfilled()))?;
                into.advance(count);
                Poll::Ready(Ok(()))
            }
            Self::Ended => Poll::Ready(Ok(())),
            // Nobody has to be woken: there will never be anything.
            Self::Silent => Poll::Pending,
        }
    }
}

/// Our standard output or error. A slow reader slows the command in the box and nothing else: signals are still obeyed.
#[derive(Debug)]
pub(crate) enum Output {
    /// A pipe or a terminal, opened once more.
    Reopened(pipe::Sender),
    /// A file, which never makes a writer wait.
    File(BorrowedFd<'static>),
    /// Standard output of any other kind, written by a thread that may wait.
    ThreadedOut(tokio::io::Stdout),
    /// Standard error of any other kind.
    ThreadedError(tokio::io::Stderr),
}

impl Output {
    /// Standard output.
    pub(crate) fn stdout() -> Self {
        Self::new(rustix::stdio::stdout()).unwrap_or_else(|| Self::ThreadedOut(tokio::io::stdout()))
    }

    /// Standard error.
    pub(crate) fn stderr() -> Self {
        Self::new(rustix::stdio::stderr()).unwrap_or_else(|| Self::ThreadedError(tokio::io::stderr()))
    }

    fn new(fd: BorrowedFd<'static>) -> Option<Self> {
        match kind(fd) {
            Kind::File => Some(Self::File(fd)),
            Kind::Reopenable => {
                let own = reopen(fd, OFlags::WRONLY).and_then(pipe::Sender::from_file_unchecked);
                own.ok().map(Self::Reopened)
            }
            Kind::Other => None,
        }
    }
}

impl AsyncWrite for Output {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Reopened(own) => Pin::new(own).poll_write(cx, bytes),
            Self::File(fd) => Poll::Ready(Ok(rustix::io::retry_on_intr(|| rustix::io::write(*fd, bytes))?)),
            Self::ThreadedOut(stdout) => Pin::new(stdout).poll_write(cx, bytes),
            Self::ThreadedError(stderr) => Pin::new(stderr).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Reopened(_) | Self::File(_) => Poll::Ready(Ok(())),
            Self::ThreadedOut(stdout) => Pin::new(stdout).poll_flush(cx),
            Self::ThreadedError(stderr) => Pin::new(stderr).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

/// What a stream is, as far as it decides how to wait for it.
enum Kind {
    File,
    Reopenable,
    Other,
}

fn kind(fd: BorrowedFd<'_>) -> Kind {
    match rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::Fifo) => Kind::Reopenable,
        Ok(FileType::CharacterDevice) if rustix::termios::isatty(fd) => Kind::Reopenable,
        // Of the devices it is /dev/null, which takes and gives at once.
        Ok(FileType::RegularFile | FileType::CharacterDevice) => Kind::File,
        _ => Kind::Other,
    }
}

/// Opens a stream once more, non-blocking. Refused where it belongs to another user.
fn reopen(fd: BorrowedFd<'_>, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty())?.into())
}
