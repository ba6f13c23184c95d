//! The conversation over the inherited socket: one plan in, one report out.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use box_wire::frame::{self, HEADER_BYTES};
use box_wire::{Header, Kind, Plan, Report, limits};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

/// Waits for the plan and the descriptors that travel with it.
///
/// The host sends it when the id maps are written, so that waiting for the plan is waiting for everything before it.
pub(crate) fn receive_plan(control: &OwnedFd) -> io::Result<(Plan, Vec<OwnedFd>)> {
    let mut header = [0; HEADER_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(limits::PLAN_DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        control,
        &mut [IoSliceMut::new(&mut header)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL,
    )?;
    if received.bytes != HEADER_BYTES {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let descriptors = descriptors(&mut ancillary);
    let header = Header::from_bytes(header).map_err(io::Error::other)?;
    if header.kind != Kind::Plan {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut payload = vec![0; header.payload_bytes];
    read_exact(control, &mut payload)?;
    let plan = frame::decode(Kind::Plan, &payload).map_err(io::Error::other)?;
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
    let bytes = frame::encode(Kind::Report, report).map_err(io::Error::other)?;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let count = rustix::net::send(control, rest, rustix::net::SendFlags::NOSIGNAL)?;
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
