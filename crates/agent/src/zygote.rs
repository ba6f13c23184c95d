//! Forks agents for the host. Executing a program and letting its C library find out about the machine takes a tenth of the time
//! in which a box is made; a fork of a process that did it once does not.
//!
//! One packet in: the namespaces, who owns them, the agent's end of its control socket, and perhaps the cgroup to be born into. One packet out: the
//! process's number or an error, and a descriptor of the process. The end of the socket is the end of the zygote. It holds no
//! state and nothing of any box, so killing it costs nothing but speed.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use box_wire::limits::{NO_OWNER, STARTER_DESCRIPTORS_MAX};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::thread::{CapabilitiesSecureBits, Uid};

use crate::{Network, control, sys};

/// Serves until the host hangs up. In a forked child, lives the life of an agent instead.
pub(crate) fn serve(host: OwnedFd) -> i32 {
    let _ = rustix::thread::set_name(c"strongbox-start");
    sys::forget_children();
    loop {
        let (request, mut descriptors) = match receive(&host) {
            Ok(Some((request, descriptors))) => (request, descriptors.into_iter()),
            Ok(None) => return 0,
            Err(_) => return 6,
        };
        let Some(control) = descriptors.next() else { return 7 };
        let cgroup = descriptors.next();
        let answered = match fork(&request, cgroup.as_ref().map(AsFd::as_fd)) {
            Ok(None) => {
                drop((host, cgroup, descriptors));
                let is_connected = request.namespaces & libc::CLONE_NEWNET != 0;
                return crate::be_agent(control, if is_connected { Network::Made } else { Network::Missing });
            }
            Ok(Some((pid, pidfd))) => answer(&host, pid, Some(&pidfd)),
            Err(error) => answer(&host, -error.raw_os_error().unwrap_or(libc::EIO), None),
        };
        if answered.is_err() {
            return 8;
        }
    }
}

/// The kind of process to fork.
struct Request {
    namespaces: i32,
    /// The host's user id that owns them, where that is not root.
    owner: Option<u32>,
}

/// Forks the first process of a box, as the owner of its namespaces: the kernel charges them to the user that makes them.
fn fork(request: &Request, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<(i32, OwnedFd)>> {
    let Some(owner) = request.owner else { return sys::fork_box(request.namespaces, cgroup) };
    // Keeps all capabilities while this process has another user id. A new user namespace starts without this bit.
    rustix::thread::set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::from_raw(owner), Uid::ROOT)?;
    let forked = sys::fork_box(request.namespaces, cgroup);
    if !matches!(forked, Ok(None)) {
        rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    }
    forked
}

/// The next request and its descriptors; nothing when the host has hung up.
fn receive(host: &OwnedFd) -> io::Result<Option<(Request, Vec<OwnedFd>)>> {
    let mut word = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STARTER_DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match rustix::net::recvmsg(host, &mut [IoSliceMut::new(&mut word)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    match received.bytes {
        0 => Ok(None),
        8 => {
            let [a, b, c, d, owner @ ..] = word;
            let owner = Some(u32::from_ne_bytes(owner)).filter(|owner| *owner != NO_OWNER);
            let request = Request { namespaces: i32::from_ne_bytes([a, b, c, d]), owner };
            Ok(Some((request, control::descriptors(&mut ancillary))))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
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
