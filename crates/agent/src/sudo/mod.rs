//! `sudo` in a box: a command of the workload asks for a command of root, and the agent starts it in the same exec.
//!
//! The agent itself takes nothing from the workload: closing a descriptor of a stranger can block. Children do all of it.

mod accounts;
mod answer;
mod client;
mod environment;
mod handler;
mod options;
mod receiver;
mod request;
mod screen;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::exec::Tree;
use crate::setup::Prepared;
use crate::sys;

pub(crate) use client::run;
pub(crate) use request::Request;

/// The abstract name of the socket, in the box's network namespace. It exists only where root of the box has capabilities.
const NAME: &[u8] = b"strongbox-sudo";

/// Least time between two connections that are taken: taking one costs processor time that no limit of the box counts.
const PACE: Duration = Duration::from_millis(10);

/// Connections that wait to be taken. Those that come later wait in `connect`.
const BACKLOG: i32 = 64;

/// Makes the socket. Call it after Landlock, which lets commands connect only to sockets that were made below its rules.
pub(crate) fn listen() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(NAME)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The agent's part: one child at a time takes a connection and finds the exec that it came from.
#[derive(Debug)]
pub(crate) struct Sudo {
    listener: OwnedFd,
    /// The child that takes a connection now.
    receiver: Option<i32>,
    /// When the next one may be taken.
    next: Instant,
}

impl Sudo {
    pub(crate) fn new(listener: OwnedFd) -> Self {
        Self { listener, receiver: None, next: Instant::now() }
    }

    /// The socket, if a connection could be taken now.
    pub(crate) fn interest(&self) -> Option<&OwnedFd> {
        (self.receiver.is_none() && Instant::now() >= self.next).then_some(&self.listener)
    }

    /// When to look at the socket again, if not now.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        (self.receiver.is_none() && Instant::now() < self.next).then_some(self.next)
    }

    /// Starts a child that takes one connection. `trees` are those of all execs of the box.
    pub(crate) fn take(&mut self, trees: &[&Tree], prepared: &Prepared) {
        match sys::fork(None) {
            Ok(None) => receiver::receive(&self.listener, trees, prepared),
            Ok(Some(pid)) => self.receiver = Some(pid),
            // The box is full; the connection waits.
            Err(_) => {}
        }
        self.next = Instant::now() + PACE;
    }

    /// Whether this was the child that took a connection.
    pub(crate) fn on_reaped(&mut self, pid: i32) -> bool {
        let is_ours = self.receiver == Some(pid);
        if is_ours {
            self.receiver = None;
        }
        is_ours
    }
}
