//! The conversation with the maker of the box: one plan in, one report out.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use box_wire::frame::{self, HEADER_BYTES};
use box_wire::{Header, Kind, Report, limits};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;

use crate::sys;

/// Both directions of the conversation of an agent that dialed its host.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) incoming: OwnedFd,
    pub(crate) outgoing: OwnedFd,
}

/// Dials the host that started this container, or takes the standard streams for it.
pub(crate) fn dial_host(socket: &Path) -> io::Result<Control> {
    if socket == Path::new("-") {
        return Ok(Control { incoming: sys::inherited(0)?, outgoing: sys::inherited(1)? });
    }
    let incoming = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&incoming, &SocketAddrUnix::new(socket)?)?;
    Ok(Control { outgoing: incoming.try_clone()?, incoming })
}

/// Waits for the plan and the descriptors that travel with it.
///
/// The host sends it when the id maps are written, so that waiting for the plan is waiting for everything before it.
pub(crate) fn receive<T: DeserializeOwned>(control: &OwnedFd, kind: Kind) -> io::Result<(T, Vec<OwnedFd>)> {
    let mut header = [0; HEADER_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(limits::PLAN_DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        control,
        &mut [IoSliceMut::new(&mut header)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL,
    );
    match received {
        Ok(received) if received.bytes == HEADER_BYTES => {}
        Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
        // A pipe of an engine, through which no descriptor travels.
        Err(Errno::NOTSOCK) => read_exact(control, &mut header)?,
        Err(error) => return Err(error.into()),
    }
    let descriptors = descriptors(&mut ancillary);
    let header = Header::from_bytes(header).map_err(io::Error::other)?;
    if header.kind != kind {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut payload = vec![0; header.payload_bytes];
    read_exact(control, &mut payload)?;
    let plan = frame::decode_within_build(kind, &payload).map_err(io::Error::other)?;
    Ok((plan, descriptors))
}

/// The descriptors that came with a message.
pub(crate) fn descriptors(ancillary: &mut RecvAncillaryBuffer<'_>) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            all.extend(rights);
        }
    }
    all
}

/// Tells the host how set-up went.
pub(crate) fn send_report(control: &OwnedFd, report: &Report) -> io::Result<()> {
    let bytes = frame::encode_within_build(Kind::Report, report).map_err(io::Error::other)?;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        // The agent ignores SIGPIPE, so a plain write works for sockets and pipes alike.
        let count = rustix::io::write(control, rest)?;
        rest = &rest[count..];
    }
    Ok(())
}

fn read_exact(source: impl AsFd, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match rustix::io::read(&source, &mut *buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => buffer = &mut buffer[count..],
        }
    }
    Ok(())
}
