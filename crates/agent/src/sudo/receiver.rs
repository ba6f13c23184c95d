//! Takes one connection and starts its handler in the cgroup of the exec that it came from.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::SocketFlags;
use rustix::process::{Pid, PidfdFlags};

use super::answer::Answer;
use super::handler;
use crate::exec::Tree;
use crate::setup::Prepared;
use crate::sys;

/// The process that connected. Only this process may ask on the connection.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) pid: i32,
    pub(super) process: OwnedFd,
}

/// The life of the child: no step of it waits for the workload.
pub(super) fn receive(listener: &OwnedFd, trees: &[&Tree], prepared: &Prepared) -> ! {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    if let Ok(stream) = rustix::net::accept_with(listener, flags)
        && let Err(reason) = hand_over(&stream, trees, prepared)
    {
        let _ = Answer::Failed(reason.to_string()).send(&stream);
    }
    sys::exit_now(0)
}

/// Starts the handler, in the exec of the caller: it counts there, and ends with it.
fn hand_over(stream: &OwnedFd, trees: &[&Tree], prepared: &Prepared) -> io::Result<()> {
    let (pid, uid) = sys::peer_of(stream)?;
    let workload = prepared.workload.uid;
    if uid != 0 && uid != workload {
        let message = format!("user {uid} may not use sudo; only root and user {workload} of the box may");
        return Err(io::Error::other(message));
    }
    let unknown = || io::Error::other("only a command of this box can use sudo");
    let caller = Pid::from_raw(pid).ok_or_else(unknown)?;
    let process = rustix::process::pidfd_open(caller, PidfdFlags::empty())?;
    let tree = trees.iter().find(|tree| tree.holds(pid)).ok_or_else(unknown)?;
    let forked = sys::fork(tree.cgroup())
        .map_err(|error| io::Error::other(format!("no process could be started in the box: {error}")))?;
    match forked {
        Some(_) => Ok(()),
        None => handler::serve(stream.as_fd(), &Caller { pid, process }, prepared),
    }
}
