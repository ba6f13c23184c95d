//! Forks agents for the host. Executing a program and letting its C library find out about the machine takes a tenth of the time
//! in which a box is made; a fork of a process that did it once does not.
//!
//! One packet in: a word, the agent's end of its control socket, and perhaps the cgroup to be born into. One packet out: the
//! process's number or an error, and a descriptor of the process. The end of the socket is the end of the starter. It holds no
//! state and nothing of any box, so killing it costs nothing but speed.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use box_wire::limits::STARTER_DESCRIPTORS_MAX;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use crate::sys;

/// Serves until the host hangs up. In a forked child, lives the life of an agent instead.
pub(crate) fn serve(host: OwnedFd) -> i32 {
    let _ = rustix::thread::set_name(c"strongbox-start");
    sys::forget_children();
    loop {
        let mut descriptors = match receive(&host) {
            Ok(Some(descriptors)) => descriptors.into_iter(),
            Ok(None) => return 0,
            Err(_) => return 6,
        };
        let Some(control) = descriptors.next() else { return 7 };
        let cgroup = descriptors.next();
        let answered = match sys::fork_box(cgroup.as_ref().map(AsFd::as_fd)) {
            Ok(None) => {
                drop((host, cgroup, descriptors));
                return crate::be_agent(control);
            }
            Ok(Some((pid, pidfd))) => answer(&host, pid, Some(&pidfd)),
            Err(error) => answer(&host, -error.raw_os_error().unwrap_or(libc::EIO), None),
        };
        if answered.is_err() {
            return 8;
        }
    }
}

/// The descriptors of the next request; nothing when the host has hung up.
fn receive(host: &OwnedFd) -> io::Result<Option<Vec<OwnedFd>>> {
    let mut word = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STARTER_DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match rustix::net::recvmsg(host, &mut [IoSliceMut::new(&mut word)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok(Some(descriptors))
}

fn answer(host: &OwnedFd, number: i32, process: Option<&OwnedFd>) -> io::Result<()> {
    let descriptors: Vec<_> = process.into_iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let word = number.to_ne_bytes();
    rustix::net::sendmsg(host, &[IoSlice::new(&word)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}
