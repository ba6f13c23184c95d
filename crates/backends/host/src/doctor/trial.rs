//! Trying a facility of the kernel without changing the machine: in a child that exits at once, or by a pure question.
#![expect(unsafe_code, reason = "fork and the questions below have no safe form")]

use std::ffi::CStr;
use std::io;
use std::ptr;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, WaitOptions};
use rustix::thread::UnshareFlags;

/// `SECCOMP_GET_ACTION_AVAIL`.
const SECCOMP_GET_ACTION_AVAIL: libc::c_uint = 2;
/// `LANDLOCK_CREATE_RULESET_VERSION`.
const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;

/// Id maps of a single id, written out before a fork because a child must not allocate.
#[derive(Debug)]
pub(super) struct SingleMap {
    uid: String,
    gid: String,
}

impl SingleMap {
    /// Root of the new namespace is who we are now.
    pub(super) fn new() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { uid: format!("0 {uid} 1"), gid: format!("0 {gid} 1") }
    }

    /// Enters new namespaces and becomes root of them. To be called in a child.
    pub(super) fn enter(&self, others: UnshareFlags) -> rustix::io::Result<()> {
        unshare(UnshareFlags::NEWUSER | others)?;
        write(c"/proc/self/setgroups", "deny")?;
        write(c"/proc/self/uid_map", &self.uid)?;
        write(c"/proc/self/gid_map", &self.gid)
    }
}

/// Enters new namespaces. To be called in a child.
pub(super) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: no flag that we pass unshares the table of descriptors, which is the one thing that could surprise owners.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

fn write(path: &CStr, text: &str) -> rustix::io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, text.as_bytes()).map(drop)
}

/// Runs `attempt` in a child and returns its result. It may only make system calls: no allocation, no locks, no
/// descriptors of this process.
pub(super) fn in_child(attempt: impl FnOnce() -> rustix::io::Result<()>) -> io::Result<()> {
    // SAFETY: the child runs only `attempt`, which keeps to system calls, and then leaves without running any of our code.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // A copy of a lease's descriptor would keep the lease when the parent is killed.
        // SAFETY: a plain system call on numbers.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        let code = attempt().err().map_or(0, rustix::io::Errno::raw_os_error);
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(code) };
    }
    wait(child)
}

/// Runs `attempt` in a child of a child, which is where a new process namespace begins. To be called in a child.
pub(super) fn in_grandchild(attempt: impl FnOnce() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    let told = in_child(attempt);
    told.map_err(|error| rustix::io::Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// Waits for a child whose exit code is an error number.
fn wait(child: libc::pid_t) -> io::Result<()> {
    let pid = Pid::from_raw(child).filter(|_| child > 0).ok_or_else(io::Error::last_os_error)?;
    let status = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(pid), WaitOptions::empty()))?;
    match status.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code)),
        None => Err(io::Error::from_raw_os_error(libc::EINTR)),
    }
}

/// The version of Landlock that the kernel has.
pub(super) fn landlock_abi() -> io::Result<u32> {
    // SAFETY: with this flag the call takes no attributes and only answers.
    let abi = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, LANDLOCK_CREATE_RULESET_VERSION)
    };
    u32::try_from(abi).map_err(|_| io::Error::last_os_error())
}

/// Whether filters can kill a whole process, the newest of the actions that we use.
pub(super) fn seccomp_can_kill() -> io::Result<()> {
    let action: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: reads the action, which lives until the call returns.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether there is `mount_setattr`: asked without attributes, it complains about them only where it exists.
pub(super) fn has_mount_setattr() -> bool {
    // SAFETY: a size of 0 is refused before anything is read.
    let result = unsafe { libc::syscall(libc::SYS_mount_setattr, -1, c"".as_ptr(), 0, ptr::null::<u8>(), 0_usize) };
    result < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

/// Whether there is `clone3`: asked without arguments, it complains about them only where it exists.
pub(super) fn has_clone3() -> bool {
    // SAFETY: a size of 0 is refused before anything is read.
    let result = unsafe { libc::syscall(libc::SYS_clone3, ptr::null::<u8>(), 0_usize) };
    result < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}
