//! The way to the agent for a host that shares no file system with the container: the engine runs this program beside the agent,
//! and it carries bytes between its standard streams and the agent's socket until either side has nothing more to say.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use crate::sys;

/// The abstract name of the agent's socket, in the network namespace of the container. Landlock keeps the workload from
/// it where the kernel can. A process that reaches it anyway gains nothing: it can already run commands in the
/// container.
pub(crate) const NAME: &[u8] = b"strongbox-agent";

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Makes the agent's socket. Called before the agent gives up the right to show itself.
pub(crate) fn listen() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(NAME)?)?;
    rustix::net::listen(&socket, 128)?;
    Ok(socket)
}

/// Carries bytes until the agent hangs up. The exit code says only whether it got that far.
pub(crate) fn carry() -> i32 {
    match try_carry() {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn try_carry() -> io::Result<()> {
    let (input, output) = (sys::inherited(0)?, sys::inherited(1)?);
    let agent = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&agent, &SocketAddrUnix::new_abstract_name(NAME)?)?;
    let mut input = Some(input);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let mut polled = vec![PollFd::new(&agent, PollFlags::IN)];
        polled.extend(input.as_ref().map(|input| PollFd::new(input, PollFlags::IN)));
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        if ready[0] && pass(&agent, &output, &mut buffer)? == 0 {
            return Ok(());
        }
        if ready.get(1) == Some(&true)
            && let Some(source) = &input
        {
            match hand_over(source, &agent, &mut buffer) {
                Ok(0) => {
                    input = None;
                    rustix::net::shutdown(&agent, Shutdown::Write)?;
                }
                Ok(_) => {}
                // The agent takes no more, but what it said before it hung up has still to be passed on.
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::PIPE | Errno::CONNRESET)) => {
                    input = None;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Passes what can be read now to the agent; 0 at the end. An agent that closed its end is not an error.
fn hand_over(from: &OwnedFd, agent: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    let count = read(from, buffer)?;
    let mut rest = &buffer[..count];
    while !rest.is_empty() {
        let written = rustix::net::send(agent, rest, SendFlags::NOSIGNAL)?;
        rest = &rest[written..];
    }
    Ok(count)
}

fn read(from: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(from, &mut *buffer) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(0),
            other => return Ok(other?),
        }
    }
}

/// Passes on what can be read now; 0 at the end.
fn pass(from: &OwnedFd, to: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    let count = read(from, buffer)?;
    let mut rest = &buffer[..count];
    while !rest.is_empty() {
        let written = rustix::io::write(to.as_fd(), rest)?;
        rest = &rest[written..];
    }
    Ok(count)
}
