//! Serves one connection, as a process of the caller's exec: hears the request, starts the command, and stays above it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags};

use super::answer::{Answer, NONCE_BYTES};
use super::receiver::Caller;
use super::request::{REQUEST_BYTES_MAX, Request};
use crate::exec::{self, Beside};
use crate::setup::{self, MemoryTold, Prepared};
use crate::sys::{self, Block};

/// How long a request may take. The exec that asks has its own deadline; this ends what was forgotten.
const REQUEST_PATIENCE: Duration = Duration::from_secs(30);

/// Bytes before the request: the nonce, and the length of the rest.
const HEAD_BYTES: usize = NONCE_BYTES + 4;

/// The life of a handler.
pub(super) fn serve(stream: BorrowedFd<'_>, caller: &Caller, prepared: &Prepared) -> ! {
    let _ = rustix::thread::set_name(c"strongbox-sudo");
    let answer = answer(stream, caller, prepared).unwrap_or_else(|error| Answer::Failed(error.to_string()));
    let _ = answer.send(stream);
    sys::exit_now(0)
}

fn answer(stream: BorrowedFd<'_>, caller: &Caller, prepared: &Prepared) -> io::Result<Answer> {
    // A signal for all processes of the exec reaches the command itself, and must not end the process that reports its
    // end.
    sys::block_signals();
    let entrance = match &prepared.memory {
        MemoryTold::PerBox { entrance, .. } => Some(entrance.as_fd()),
        _ => None,
    };
    // This process executes nothing: a stream of the host that stayed open here would never end.
    let kept: Vec<_> = [stream, caller.process.as_fd()].into_iter().chain(entrance).collect();
    sys::close_others(&kept)?;
    if let Some(entrance) = entrance {
        rustix::io::write(entrance, b"0")?;
    }
    let (request, streams) = hear(stream, caller)?;
    let Beside { pid, verdict } = exec::start_beside(&request, &streams, prepared)?;
    drop(streams);
    setup::keep_only_kill()?;
    let mut told = [0; 8];
    if rustix::io::read(&verdict, &mut told)? > 0 {
        return Ok(Answer::Failed(exec::explain_beside(told, &request)));
    }
    let command = pidfd(pid)?;
    watch(stream, caller, pid, &command);
    Ok(end_of(pid))
}

/// Hears the request and the three streams. The caller must prove that it was alive when this process was in its exec already:
/// so no other process took its number, and the exec was not killed before.
fn hear(stream: BorrowedFd<'_>, caller: &Caller) -> io::Result<(Request, [OwnedFd; 3])> {
    let until = Instant::now() + REQUEST_PATIENCE;
    rustix::net::sockopt::set_socket_passcred(stream, true)?;
    let nonce = nonce()?;
    Answer::Ask(nonce).send(stream)?;
    let mut head = [0; HEAD_BYTES];
    wait_for(stream, until)?;
    let received = sys::receive_from(stream, &mut head)?;
    let (said, length) = head.split_at(NONCE_BYTES);
    let is_caller = received.pid == caller.pid && is_alive(&caller.process);
    if received.bytes != HEAD_BYTES || said != nonce || !is_caller {
        return Err(io::Error::other("the process that connected must ask itself"));
    }
    let streams = <[OwnedFd; 3]>::try_from(received.descriptors)
        .map_err(|_| io::Error::other("a request needs its three standard streams"))?;
    let length = length.first_chunk().map_or(usize::MAX, |four| u32::from_le_bytes(*four) as usize);
    if length > REQUEST_BYTES_MAX {
        let message = format!("command and environment are {length} bytes, of at most {REQUEST_BYTES_MAX}");
        return Err(io::Error::other(message));
    }
    let mut body = vec![0; length];
    let mut filled = 0;
    while filled < length {
        wait_for(stream, until)?;
        match rustix::net::recv(stream, &mut body[filled..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((count, _)) => filled += count,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let request = Request::decode(&body).map_err(|what| io::Error::other(format!("the request has {what}")))?;
    Ok((request, streams))
}

fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    let count = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
    if count == NONCE_BYTES { Ok(nonce) } else { Err(Errno::AGAIN.into()) }
}

/// Waits until something can be read.
fn wait_for(stream: BorrowedFd<'_>, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut polled = [PollFd::from_borrowed_fd(stream, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(0) => return Err(io::Error::other("the request did not come in time")),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_alive(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)) == Ok(0)
}

fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Passes signals on until the command has ended. A command whose caller is gone is killed.
fn watch(stream: BorrowedFd<'_>, caller: &Caller, pid: i32, command: &OwnedFd) {
    let mut has_caller = true;
    loop {
        let mut polled = vec![PollFd::new(command, PollFlags::IN)];
        if has_caller {
            polled.push(PollFd::new(&caller.process, PollFlags::IN));
            polled.push(PollFd::from_borrowed_fd(stream, PollFlags::IN));
        }
        match rustix::event::poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let news: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        if news[0] {
            return;
        }
        if !has_caller {
            continue;
        }
        let is_gone = news[1] || (news[2] && pass_signals(stream, pid).is_err());
        if is_gone {
            let _ = sys::signal_group(pid, libc::SIGKILL);
            has_caller = false;
        }
    }
}

/// Sends the command and its group what the client was sent. An error means that the client hung up.
fn pass_signals(stream: BorrowedFd<'_>, pid: i32) -> io::Result<()> {
    let mut signals = [0; 64];
    let count = match rustix::net::recv(stream, &mut signals, RecvFlags::DONTWAIT) {
        Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok((count, _)) => count,
        Err(Errno::AGAIN | Errno::INTR) => 0,
        Err(error) => return Err(error.into()),
    };
    for signal in &signals[..count] {
        // The command was not reaped yet, so its number is still its own.
        let _ = sys::signal_group(pid, i32::from(*signal));
    }
    Ok(())
}

/// How the command ended.
fn end_of(pid: i32) -> Answer {
    loop {
        match sys::reap(Block::Yes) {
            Ok(Some(reaped)) if reaped.pid == pid && libc::WIFSIGNALED(reaped.status) => {
                return Answer::Signal(u8::try_from(libc::WTERMSIG(reaped.status)).unwrap_or(0));
            }
            Ok(Some(reaped)) if reaped.pid == pid => {
                return Answer::Code(u8::try_from(libc::WEXITSTATUS(reaped.status)).unwrap_or(1));
            }
            Ok(_) => {}
            Err(error) => return Answer::Failed(error.to_string()),
        }
    }
}
