//! The few system calls of the suites that have no safe form.

#![expect(unsafe_code, reason = "namespaces, identity and interface flags have no safe calls")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Moves this process, which must still have a single thread, to fresh mount and network namespaces.
pub fn unshare_mounts_and_network() -> io::Result<()> {
    // SAFETY: no memory is involved; the caller has one thread.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET) })
}

/// Switches the loopback interface of our network namespace on.
pub fn loopback_up() -> io::Result<()> {
    // SAFETY: no memory is involved.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(socket)?;
    // SAFETY: the descriptor was opened by the call above and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(io::Error::other)?;
    // SAFETY: the request lives until the call returns and has the type that this ioctl reads.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) })
}

/// Starts this program once more, with one argument, in a network namespace of its own. It dies with this thread.
///
/// It runs as the user that the parent is about to become: the kernel lets a dying parent signal only what it could
/// signal itself.
pub fn network_holder(argument: &str, user: Option<(u32, u32)>) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let enter = move || {
        // SAFETY: no memory is involved.
        check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        if let Some((uid, gid)) = user {
            become_user(uid, gid)?;
        }
        // SAFETY: no memory is involved.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })
    };
    // SAFETY: the closure makes a few system calls and allocates nothing.
    unsafe { command.pre_exec(enter) };
    command.spawn()
}

/// Becomes an ordinary user for good. The caller has one thread.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: the list is empty, so nothing is read.
    check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: no memory is involved.
    check(unsafe { libc::setgid(gid) })?;
    // SAFETY: no memory is involved.
    check(unsafe { libc::setuid(uid) })
}

/// Kills one process.
pub fn kill(pid: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::kill(pid, libc::SIGKILL) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
