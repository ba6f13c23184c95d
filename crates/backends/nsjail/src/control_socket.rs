//! The control socket: a socket in a directory of the box's, at which the host waits for the agent, once.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use box_core::{Error, Result};
use box_host::handover;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, Gid, Mode, Uid};

use crate::launch::Launched;
use crate::layout::CONTROL;

/// The directory of the control socket in that of the box.
const NAME: &str = "door";

/// How long nsjail may take until the agent is at the control socket. Real ones take milliseconds, on a busy machine a second.
const WAIT: Duration = Duration::from_secs(20);

/// A control socket at which nobody has been yet.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    pub(crate) directory: OwnedFd,
    listener: UnixListener,
}

impl ControlSocket {
    /// Makes the control socket, for an agent that the host knows by these ids; for one of our own id without.
    pub(crate) fn make(box_directory: &OwnedFd, agent: Option<(u32, u32)>) -> Result<Self> {
        let failed = |error: rustix::io::Errno| Error::io("making the control socket of a box", error);
        rustix::fs::mkdirat(box_directory, NAME, Mode::from_raw_mode(0o700)).map_err(failed)?;
        let directory = box_host::instance::open_directory(box_directory, NAME).map_err(failed)?;
        let listener = UnixListener::from(handover::listen(&directory, CONTROL)?);
        rustix::fs::chmodat(&directory, CONTROL, Mode::from_raw_mode(0o600), AtFlags::empty()).map_err(failed)?;
        if let Some((uid, gid)) = agent {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::chownat(&directory, CONTROL, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(failed)?;
            // Others may pass through and not look around.
            rustix::fs::fchmod(&directory, Mode::from_raw_mode(0o711)).map_err(failed)?;
        }
        Ok(Self { directory, listener })
    }

    /// Where the door's directory is.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        let link = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        std::fs::read_link(link).map_err(|error| Error::io("finding the control socket of a box", error))
    }

    /// Waits for the agent, which is nsjail's own child, and closes the control socket behind it. Answers its number too.
    pub(crate) fn admit(self, jail: &Launched) -> Result<(UnixStream, u32)> {
        let failed = |error: io::Error| Error::io("waiting for the agent", error);
        self.wait(jail)?;
        let (control, _) = self.listener.accept().map_err(failed)?;
        drop(self.listener);
        rustix::fs::unlinkat(&self.directory, CONTROL, AtFlags::empty())
            .map_err(|error| Error::io("closing the control socket of a box", error))?;
        control.set_nonblocking(false).map_err(failed)?;
        let peer = rustix::net::sockopt::socket_peercred(control.as_fd()).map_err(|error| failed(error.into()))?;
        let pid = u32::try_from(peer.pid.as_raw_pid()).unwrap_or(0);
        if parent_of(pid) != Some(jail.pid) {
            let reason = format!("process {pid} is at the control socket, which is not the child of nsjail");
            return Err(Error::Setup { step: "agent".to_owned(), reason });
        }
        Ok((control, pid))
    }

    fn wait(&self, jail: &Launched) -> Result<()> {
        let mut polled = [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&jail.pidfd, PollFlags::IN)];
        let wait = Timespec { tv_sec: i64::try_from(WAIT.as_secs()).unwrap_or(20), tv_nsec: 0 };
        let ready = loop {
            match rustix::event::poll(&mut polled, Some(&wait)) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other.map_err(|error| Error::io("waiting for the agent", error))?,
            }
        };
        let step = "nsjail".to_owned();
        if ready == 0 {
            let reason = format!("the agent was not started within {} s: {}", WAIT.as_secs(), jail.log.reason());
            return Err(Error::Setup { step, reason });
        }
        if polled[0].revents().is_empty() {
            return Err(Error::Setup { step, reason: jail.log.reason() });
        }
        Ok(())
    }
}

/// The number of a process's parent.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so the fields are counted from its end: state, then parent.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}
