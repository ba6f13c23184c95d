//! The system calls that no safe wrapper offers: changing what a mount is, making processes that share our memory, and
//! asking who is at the other end.
#![expect(unsafe_code, reason = "clone3 and mount_setattr have no safe wrapper")]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Stack of a process that only sleeps.
const STACK_BYTES: usize = 64 << 10;

/// Shows the files of a detached mount with the ids that a user namespace gives them.
pub fn map_mount_ids(mount: impl AsFd, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let userns_fd = u64::from(user_namespace.as_raw_fd().cast_unsigned());
    let attributes = libc::mount_attr { attr_set: libc::MOUNT_ATTR_IDMAP, attr_clr: 0, propagation: 0, userns_fd };
    mount_setattr(mount, 0, attributes)
}

/// Cuts a detached mount off from where it was copied: what the host mounts below that later does not appear here.
pub fn make_mount_private(mount: impl AsFd) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    mount_setattr(mount, 0, attributes)
}

/// Sets attributes (`MOUNT_ATTR_*`) of a detached mount, and of all below it.
pub fn restrict_mount(mount: impl AsFd, attr_set: u64) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    mount_setattr(mount, libc::AT_RECURSIVE, attributes)
}

fn mount_setattr(mount: impl AsFd, flags: i32, attributes: libc::mount_attr) -> io::Result<()> {
    // SAFETY: the path is a NUL-terminated literal, the attributes outlive the call and their true size is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Who connected a stream, by its number here; nothing where it lives outside of what we can see.
pub fn peer_pid(stream: &UnixStream) -> io::Result<Option<u32>> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or_default();
    // SAFETY: the buffer is a live local of exactly the size that is passed, and so is the length.
    let result = unsafe {
        let into = (&raw mut peer).cast();
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut length)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(peer.pid).ok().filter(|&pid| pid > 0))
}

/// A process that does nothing but keep a user namespace in existence, until dropped.
#[derive(Debug)]
pub struct NamespaceHolder {
    /// Its number.
    pub pid: u32,
    pidfd: OwnedFd,
    /// The child sleeps on it; freed after the child is gone.
    _stack: Vec<u8>,
}

impl NamespaceHolder {
    /// Starts the process in a new user namespace without maps.
    pub fn start() -> io::Result<Self> {
        let mut pidfd: RawFd = -1;
        let mut stack = vec![0_u8; STACK_BYTES];
        // SAFETY: all-zero is a valid clone_args.
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        let flags = libc::CLONE_NEWUSER | libc::CLONE_VM | libc::CLONE_PIDFD;
        arguments.flags = u64::from(flags.cast_unsigned());
        arguments.pidfd = (&raw mut pidfd) as u64;
        arguments.stack = stack.as_mut_ptr() as u64;
        arguments.stack_size = STACK_BYTES as u64;
        let masked = SignalMask::block_all()?;
        let parent = std::process::id() as usize as *const c_void;
        // SAFETY: the child makes plain system calls, with all signals blocked, on a stack that outlives it.
        let pid = unsafe { clone_and_run(&arguments, hold_until_parent_ends, parent) };
        drop(masked);
        let pid = pid?;
        // SAFETY: the kernel stored a new descriptor without another owner.
        Ok(Self { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) }, _stack: stack })
    }
}

impl Drop for NamespaceHolder {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
        // The child was cloned without an exit signal, so only this flag finds it.
        // SAFETY: waitid on a child of this process; a null result pointer is allowed.
        unsafe {
            let number = self.pidfd.as_raw_fd().cast_unsigned();
            libc::waitid(libc::P_PIDFD, number, std::ptr::null_mut(), libc::WEXITED | libc::__WALL);
        }
    }
}

/// The holder: it keeps no descriptor, because a copy of a lease's would keep the lease, and ends with the thread that made it.
///
/// # Safety
/// `parent` is the process id of the parent, as a number.
unsafe extern "C" fn hold_until_parent_ends(parent: *const c_void) -> ! {
    // SAFETY: plain system calls on numbers; nothing of our memory is touched.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
        // The parent may have died before the first call.
        if libc::getppid().cast_unsigned() as usize != parent as usize {
            libc::_exit(0);
        }
        loop {
            libc::pause();
        }
    }
}

/// clone3 whose child calls `function(argument)` on the stack of `arguments` instead of returning. Answers the child's number.
///
/// # Safety
/// `arguments.stack` must be a free stack; `function` must not return and must be sound in a child that shares our memory.
#[cfg(target_arch = "x86_64")]
pub unsafe fn clone_and_run(
    arguments: &libc::clone_args,
    function: unsafe extern "C" fn(*const c_void) -> !,
    argument: *const c_void,
) -> io::Result<u32> {
    let result: i64;
    // SAFETY: the child's stack pointer is the top of its own stack, 16-byte aligned as the call expects; it takes its two
    // registers from before the system call, which keeps them, and never falls through. The parent sees only rax change,
    // besides what `syscall` itself clobbers.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") std::ptr::from_ref(arguments),
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") function,
            in("r13") argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO)))
}

/// All signals blocked for this thread until dropped: a signal handler must not run in the child, on this process's
/// memory.
#[expect(missing_debug_implementations, reason = "a set of signals has no useful form")]
pub struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Blocks them.
    pub fn block_all() -> io::Result<Self> {
        // SAFETY: both sets are live locals; sigfillset initialises the one, pthread_sigmask the other.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) {
                0 => Ok(Self(before)),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

impl Drop for SignalMask {
    fn drop(&mut self) {
        // SAFETY: the set was filled by the kernel when the signals were blocked.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::read_dir;

    #[test]
    fn a_holder_keeps_no_descriptor_and_ends_with_its_thread() {
        let (made, holder) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let maker = std::thread::spawn(move || {
            let holder = NamespaceHolder::start().unwrap();
            let descriptors = format!("/proc/{}/fd", holder.pid);
            while read_dir(&descriptors).unwrap().next().is_some() {
                std::thread::yield_now();
            }
            made.send(holder).unwrap();
            wait.recv().unwrap();
        });
        let holder = holder.recv().unwrap();
        done.send(()).unwrap();
        maker.join().unwrap();
        let mut ended = [rustix::event::PollFd::new(&holder.pidfd, rustix::event::PollFlags::IN)];
        let most = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut ended, Some(&most)).unwrap(), 1);
    }
}
