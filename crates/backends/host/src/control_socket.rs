//! The control socket of a box whose container an engine makes: a directory with one socket, which the engine shows to the container and at which
//! the agent connects once.
//!
//! The directory lies in the box's own, which only this user can enter, so only a container that mounts it can reach
//! the socket.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use box_core::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use crate::instance::open_directory;
use crate::sys;

/// The directory, in that of the box.
pub const DIRECTORY: &str = "door";

/// The socket in it.
pub const SOCKET: &str = "control.sock";

/// A control socket without a connection. The socket goes when this is dropped, the directory with the box's.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    directory: OwnedFd,
}

impl ControlSocket {
    /// Makes the control socket of a box, in the box's directory.
    pub fn make(box_directory: &OwnedFd) -> Result<Self> {
        let failed = |error: std::io::Error| Error::io("making the control socket of a box", error);
        let directory = make_directory(box_directory).map_err(|error| failed(error.into()))?;
        // By way of the descriptor, because a socket's path may only have 107 bytes.
        let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
        let listener = UnixListener::bind(path).map_err(failed)?;
        let control_socket = Self { listener, directory };
        control_socket.listener.set_nonblocking(true).map_err(failed)?;
        // The user of the container may connect, whichever it is.
        rustix::fs::chmodat(&control_socket.directory, SOCKET, Mode::from_raw_mode(0o666), AtFlags::empty())
            .map_err(|error| failed(error.into()))?;
        Ok(control_socket)
    }

    /// The directory as a path of the host, to be shown to the container.
    pub fn path(&self) -> Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
            .map_err(|error| Error::io("finding the control socket of a box", error))
    }

    /// Waits for the agent. Where its number on the host is known, connections of other processes are refused.
    ///
    /// Blocks. After a time-out it may be called again, as long as there is hope.
    pub fn accept(&self, timeout: Duration, expected_pid: Option<u32>) -> Result<UnixStream> {
        let failed = |error: std::io::Error| Error::io("waiting for the agent at the control socket", error);
        let deadline = Instant::now() + timeout;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let peer = sys::peer_pid(&stream).map_err(failed)?;
                    if expected_pid.is_none_or(|pid| peer == Some(pid)) {
                        stream.set_nonblocking(false).map_err(failed)?;
                        return Ok(stream);
                    }
                    tracing::warn!(peer.pid = ?peer, expected.pid = ?expected_pid, "a stranger at the control socket of a box was turned away");
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed(error)),
            }
            if !self.wait_until(deadline).map_err(|error| failed(error.into()))? {
                let reason = format!("it did not connect to the control socket within {} s", timeout.as_secs_f32());
                return Err(Error::Setup { step: "agent".to_owned(), reason });
            }
        }
    }

    /// Whether a connection came in time.
    fn wait_until(&self, deadline: Instant) -> rustix::io::Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
            match rustix::event::poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&left)) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(&self.directory, SOCKET, AtFlags::empty());
    }
}

fn make_directory(parent: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::fs::mkdirat(parent, DIRECTORY, Mode::from_raw_mode(0o700))?;
    let directory = open_directory(parent, DIRECTORY)?;
    // Once more without the mask of this process, which is not for us to change.
    rustix::fs::fchmod(&directory, Mode::from_raw_mode(0o755))?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    const LONG: Duration = Duration::from_secs(20);

    fn control_socket() -> (tempfile::TempDir, ControlSocket) {
        let place = tempfile::tempdir().unwrap();
        let directory = open_directory(rustix::fs::CWD, place.path()).unwrap();
        let control_socket = ControlSocket::make(&directory).unwrap();
        (place, control_socket)
    }

    #[test]
    fn everybody_who_is_shown_the_socket_may_connect() {
        let (place, control_socket) = control_socket();
        let path = control_socket.path().unwrap();
        assert_eq!(path, place.path().canonicalize().unwrap().join(DIRECTORY));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
        assert_eq!(std::fs::metadata(path.join(SOCKET)).unwrap().mode() & 0o777, 0o666);
        let mut agent = UnixStream::connect(path.join(SOCKET)).unwrap();
        let mut stream = control_socket.accept(LONG, Some(std::process::id())).unwrap();
        agent.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        drop(control_socket);
        assert!(!path.join(SOCKET).exists() && path.exists());
        let again = open_directory(rustix::fs::CWD, place.path()).unwrap();
        assert!(ControlSocket::make(&again).is_err(), "a box has one control socket, once");
    }

    #[test]
    fn a_stranger_is_turned_away_and_the_agent_is_still_heard() {
        let (_place, control_socket) = control_socket();
        let socket = control_socket.path().unwrap().join(SOCKET);
        let mut stranger = UnixStream::connect(&socket).unwrap();
        // The agent itself connects, as in a container.
        let directory = tempfile::tempdir().unwrap();
        let state = crate::instance::State::open(directory.path()).unwrap();
        let mut command = Command::new(crate::agent_file(&state).unwrap());
        let mut agent = command.arg("lodge").arg(&socket).stdin(Stdio::null()).spawn().unwrap();
        let stream = control_socket.accept(LONG, Some(agent.id())).unwrap();
        assert_eq!(sys::peer_pid(&stream).unwrap(), Some(agent.id()));
        assert_eq!(stranger.read(&mut [0]).unwrap(), 0, "hung up on");
        drop(stream);
        assert_eq!(agent.wait().unwrap().code(), Some(3), "it ends when its host is gone");
    }

    #[test]
    fn nobody_is_waited_for_without_end() {
        let (_place, control_socket) = control_socket();
        let error = control_socket.accept(Duration::from_millis(1), None).unwrap_err();
        assert_eq!(error.code(), "setup_failed");
        let _stranger = UnixStream::connect(control_socket.path().unwrap().join(SOCKET)).unwrap();
        assert!(control_socket.accept(Duration::from_millis(1), Some(1)).is_err(), "not the one who is waited for");
    }
}
