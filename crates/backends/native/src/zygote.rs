//! Processes that fork agents, kept at hand. The first box of a process is started without: who makes one box and ends, as
//! `strongbox run` does, has no use for it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use box_wire::limits::{NO_OWNER, STARTER_DESCRIPTORS_MAX};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Signal, WaitId, WaitIdOptions};

use crate::sys::{self, Launch, Launched, Role};

/// Zygotes at once. Whoever finds none free starts its agent itself.
const STARTERS_MAX: usize = 2;

/// The zygotes of one backend.
#[derive(Debug, Default)]
pub(crate) struct Zygotes(Mutex<Pool>);

#[derive(Debug, Default)]
struct Pool {
    idle: Vec<Zygote>,
    /// Those in use, and those that are being started.
    busy: usize,
    /// Whether a box was made before.
    warm: bool,
}

/// One process that forks agents. Dropping it ends it, and none of the agents.
#[derive(Debug)]
struct Zygote {
    socket: OwnedFd,
    process: Launched,
}

/// An agent on its way.
#[derive(Debug)]
pub(crate) enum Launching<'a> {
    /// It runs.
    Done(Launched),
    /// A zygote is at it.
    Asked(Borrowed<'a>),
}

/// A zygote in use. It goes back when it has answered; one that has not is ended, because nobody knows what it would say next.
#[derive(Debug)]
pub(crate) struct Borrowed<'a> {
    zygote: Option<Zygote>,
    home: &'a Zygotes,
}

impl Zygotes {
    /// Begins to start an agent: by a zygote where one is free, else right here.
    pub(crate) fn launch(&self, launch: &Launch<'_>) -> io::Result<Launching<'_>> {
        if let Some(borrowed) = self.borrow(launch)
            && borrowed.ask(launch).is_ok()
        {
            return Ok(Launching::Asked(borrowed));
        }
        sys::launch(launch).map(Launching::Done)
    }

    fn borrow(&self, launch: &Launch<'_>) -> Option<Borrowed<'_>> {
        let zygote = {
            let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !std::mem::replace(&mut pool.warm, true) || pool.idle.is_empty() && pool.busy >= STARTERS_MAX {
                return None;
            }
            pool.busy += 1;
            pool.idle.pop()
        };
        let mut borrowed = Borrowed { zygote, home: self };
        if borrowed.zygote.is_none() {
            borrowed.zygote = Zygote::start(launch).ok();
        }
        borrowed.zygote.is_some().then_some(borrowed)
    }
}

impl Launching<'_> {
    /// Waits until the agent runs.
    pub(crate) fn wait(self) -> io::Result<Launched> {
        match self {
            Self::Done(launched) => Ok(launched),
            Self::Asked(mut borrowed) => {
                let zygote = borrowed.zygote.take().ok_or(Errno::NOTCONN)?;
                // Whether it started an agent or was refused by the kernel, it has answered and can be asked again.
                let (zygote, answer) = zygote.answer()?;
                borrowed.zygote = Some(zygote);
                borrowed.give_back();
                answer
            }
        }
    }
}

impl Borrowed<'_> {
    fn ask(&self, launch: &Launch<'_>) -> io::Result<()> {
        self.zygote.as_ref().ok_or(Errno::NOTCONN)?.ask(launch)
    }

    fn give_back(mut self) {
        let zygote = self.zygote.take();
        self.home.0.lock().unwrap_or_else(PoisonError::into_inner).idle.extend(zygote);
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.home.0.lock().unwrap_or_else(PoisonError::into_inner).busy -= 1;
    }
}

impl Zygote {
    fn start(launch: &Launch<'_>) -> io::Result<Self> {
        let (socket, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let launch = Launch { role: Role::Zygote, control: theirs.as_fd(), cgroup: None, owner: None, ..*launch };
        Ok(Self { socket, process: sys::launch(&launch)? })
    }

    fn ask(&self, launch: &Launch<'_>) -> io::Result<()> {
        let descriptors: Vec<BorrowedFd<'_>> = [launch.control].into_iter().chain(launch.cgroup).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STARTER_DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let namespaces = launch.namespaces().to_ne_bytes();
        let owner = launch.owner.unwrap_or(NO_OWNER).to_ne_bytes();
        let request = [IoSlice::new(&namespaces), IoSlice::new(&owner)];
        rustix::net::sendmsg(&self.socket, &request, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Hears how it went. An error of the inner result is the kernel's; one of the outer is the end of the zygote.
    fn answer(self) -> io::Result<(Self, io::Result<Launched>)> {
        let mut word = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut into = [IoSliceMut::new(&mut word)];
            match rustix::net::recvmsg(&self.socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        if received.bytes != word.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        let number = i32::from_ne_bytes(word);
        let launched = match (u32::try_from(number), descriptor) {
            (Ok(pid), Some(pidfd)) => Ok(Launched { pid, pidfd }),
            (Ok(_), None) => return Err(io::ErrorKind::InvalidData.into()),
            (Err(_), _) => Err(io::Error::from_raw_os_error(number.wrapping_neg())),
        };
        Ok((self, launched))
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        // It holds nothing, so there is nothing to wait for but its number.
        let _ = rustix::process::pidfd_send_signal(&self.process.pidfd, Signal::KILL);
        let _ = rustix::process::waitid(WaitId::PidFd(self.process.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}
