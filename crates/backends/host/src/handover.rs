//! Sends an agent its setup over a socket, together with descriptors, and reads its report.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use box_core::{Error, Result};
use box_wire::frame::{self, HEADER_BYTES};
use box_wire::message::Verified;
use box_wire::{Header, Kind, Report};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::Serialize;

/// The listening socket in the box's directory.
pub const SOCKET: &str = "agent.sock";

/// How long an agent may take to set a box up. Real ones take milliseconds.
const SETUP_WAIT: Duration = Duration::from_secs(20);

/// Descriptors that travel with a plan, and their numbers there.
#[derive(Debug, Default)]
pub struct Fds(Vec<OwnedFd>);

impl Fds {
    /// Adds a descriptor and answers its number.
    pub fn add(&mut self, descriptor: OwnedFd) -> u32 {
        self.0.push(descriptor);
        u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX)
    }
}

/// A listening socket in the box's directory, which only this user can enter.
pub fn listen(directory: &OwnedFd, name: &str) -> Result<OwnedFd> {
    let failed = |error: std::io::Error| Error::io("making the agent's socket", error);
    // By way of the descriptor, because a socket's path may only have 107 bytes.
    let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
    let listener = std::os::unix::net::UnixListener::bind(path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener.into())
}

/// Tells an agent what to be, and hands over the descriptors that this refers to. Waits no longer for room than for an answer.
pub fn send<T: Serialize>(control: &UnixStream, kind: Kind, message: &T, fds: &Fds) -> Result<()> {
    let failed = |error: std::io::Error| Error::io("sending the plan", error);
    let bytes = frame::encode_within_build(kind, message)?;
    control.set_write_timeout(Some(SETUP_WAIT)).map_err(failed)?;
    let descriptors: Vec<_> = fds.0.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(box_wire::limits::PLAN_DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(setup("plan", "it needs more descriptors than can travel with it"));
    }
    // The descriptors go with the header, where the agent expects them; the rest follows as plain bytes.
    let (head, mut rest) = bytes.split_at(HEADER_BYTES);
    rustix::net::sendmsg(control, &[IoSlice::new(head)], &mut ancillary, SendFlags::NOSIGNAL)
        .map_err(|error| failed(error.into()))?;
    while !rest.is_empty() {
        let count = rustix::net::send(control, rest, SendFlags::NOSIGNAL).map_err(|error| failed(error.into()))?;
        rest = &rest[count..];
    }
    Ok(())
}

/// Waits for what the agent has to say about it.
pub fn read_report(control: &UnixStream) -> Result<Verified> {
    read_report_patiently(control, Duration::ZERO)
}

/// The same for an agent that has more to do than others, and may take longer by this.
pub fn read_report_patiently(mut control: &UnixStream, patience: Duration) -> Result<Verified> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => setup("agent", "it ended without a word"),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => setup("agent", "it did not finish in time"),
        _ => Error::io("waiting for the agent", error),
    };
    control.set_read_timeout(Some(SETUP_WAIT + patience)).map_err(failed)?;
    let mut header = [0; HEADER_BYTES];
    control.read_exact(&mut header).map_err(failed)?;
    let header = Header::from_bytes(header)?;
    if header.kind != Kind::Report {
        return Err(box_wire::FrameError::Unexpected(header.kind).into());
    }
    let mut payload = vec![0; header.payload_bytes];
    control.read_exact(&mut payload).map_err(failed)?;
    match frame::decode_within_build(Kind::Report, &payload)? {
        Report::Ready(verified) => Ok(verified),
        Report::Failed { step, message } => Err(Error::Setup { step, reason: message }),
    }
}

fn setup(step: &str, reason: &str) -> Error {
    Error::Setup { step: step.to_owned(), reason: reason.to_owned() }
}
