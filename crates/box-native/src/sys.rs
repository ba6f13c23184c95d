//! The system calls that no safe wrapper offers: making the first process of a box, and changing what a mount is.
#![expect(unsafe_code, reason = "clone3 into new namespaces and mount_setattr have no safe wrapper")]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The descriptor under which the agent finds its socket.
const CONTROL_DESCRIPTOR: RawFd = 3;

/// Stack of a child between clone and exec.
const STACK_BYTES: usize = 64 << 10;

/// How readily the kernel ends a box before anything of the host when memory runs out.
const OOM_SCORE: &[u8] = b"500";

/// `CLONE_INTO_CGROUP`: the C library's constant does not fit its own type yet.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Namespaces that the first process starts in. The cgroup namespace it makes itself, once it is where it belongs.
pub(crate) const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// What a process of the agent's program is started as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The first process of a box, in new namespaces.
    Agent,
    /// Who forks agents, in ours.
    Starter,
}

/// What a process of the agent's program is started with.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    /// As what.
    pub(crate) role: Role,
    /// The agent, as a sealed file.
    pub(crate) program: BorrowedFd<'a>,
    /// Its end of the socket over which it gets its plan or its requests.
    pub(crate) control: BorrowedFd<'a>,
    /// What it gets as standard streams.
    pub(crate) null: BorrowedFd<'a>,
    /// The v2 cgroup that it is born into.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
}

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) pid: u32,
    pub(crate) pidfd: OwnedFd,
}

/// What the child needs, as plain numbers: it shares our memory and must not touch anything of ours.
struct Child {
    role: Role,
    program: RawFd,
    control: RawFd,
    null: RawFd,
}

/// Starts the agent's program.
///
/// Like vfork: the child shares our memory until it executes the agent, and this thread waits for that. So the cost does not
/// grow with our own size, and the other threads go on.
pub(crate) fn launch(launch: &Launch<'_>) -> io::Result<Launched> {
    let child = Child {
        role: launch.role,
        program: launch.program.as_raw_fd(),
        control: launch.control.as_raw_fd(),
        null: launch.null.as_raw_fd(),
    };
    let mut stack = vec![0_u8; STACK_BYTES];
    let mut pidfd: RawFd = -1;
    // SAFETY: all-zero is a valid clone_args.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    let namespaces = if launch.role == Role::Agent { NAMESPACES } else { 0 };
    let flags = namespaces | libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
    arguments.flags = u64::from(flags.cast_unsigned());
    arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    arguments.pidfd = (&raw mut pidfd) as u64;
    arguments.stack = stack.as_mut_ptr() as u64;
    arguments.stack_size = STACK_BYTES as u64;
    if let Some(cgroup) = launch.cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    }
    let masked = SignalMask::block_all()?;
    // SAFETY: the child runs `run_child` on a stack of its own with memory that stays valid, because this thread sleeps until
    // the child has executed the agent or died. `run_child` makes system calls only and never returns.
    let result = unsafe { clone_and_run(&arguments, run_child, (&raw const child).cast()) };
    drop(masked);
    let pid = u32::try_from(result).map_err(|_| errno_of(result))?;
    // SAFETY: the kernel stored a descriptor that is ours alone.
    Ok(Launched { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// clone3 whose child calls `function(argument)` on the stack of `arguments` instead of returning.
///
/// # Safety
/// `arguments.stack` must be a free stack; `function` must not return and must be sound in a child that shares our memory.
#[cfg(target_arch = "x86_64")]
unsafe fn clone_and_run(
    arguments: &libc::clone_args,
    function: unsafe extern "C" fn(*const c_void) -> !,
    argument: *const c_void,
) -> i64 {
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
    result
}

/// The child between clone and exec. System calls only: no allocation, no lock, nothing that our threads could hold.
///
/// # Safety
/// `argument` must point to a [`Child`] that stays valid until exec.
unsafe extern "C" fn run_child(argument: *const c_void) -> ! {
    // SAFETY: the caller keeps the child's description alive while its thread sleeps.
    let child = unsafe { &*argument.cast::<Child>() };
    // SAFETY: only async-signal-safe system calls on numbers and literals follow; every pointer is to a literal, to a live
    // local or into `child`. Failures end the child; the parent then reads an end of file from the socket.
    unsafe {
        let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
        libc::write(score, OOM_SCORE.as_ptr().cast(), OOM_SCORE.len());
        for standard in 0..=2 {
            if libc::dup2(child.null, standard) < 0 {
                libc::_exit(121);
            }
        }
        if libc::dup2(child.control, CONTROL_DESCRIPTOR) < 0 {
            libc::_exit(122);
        }
        // Everything else goes when the agent is executed, the agent's own file included.
        let first = CONTROL_DESCRIPTOR.cast_unsigned() + 1;
        if libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) < 0 {
            libc::_exit(123);
        }
        if child.role == Role::Agent {
            keep_capabilities();
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        let word = if child.role == Role::Starter { c"starter".as_ptr() } else { std::ptr::null() };
        let arguments = [c"strongbox-agent".as_ptr(), word, std::ptr::null()];
        let environment = [std::ptr::null::<libc::c_char>()];
        libc::syscall(
            libc::SYS_execveat,
            child.program,
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
        libc::_exit(124)
    }
}

/// Carries the capabilities of the new user namespace over exec. Its ids are not mapped yet, so nobody is root in it, and
/// ambient capabilities are the only ones that survive.
///
/// # Safety
/// Only to be called in a child before exec; makes plain system calls.
unsafe fn keep_capabilities() {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    /// `_LINUX_CAPABILITY_VERSION_3`.
    const VERSION: u32 = 0x2008_0522;
    let mut header = Header { version: VERSION, pid: 0 };
    let mut data = [Data { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: both structures have the layout of version 3 and are live locals.
    unsafe {
        libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr());
        for half in &mut data {
            half.inheritable = half.permitted;
        }
        libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr());
        for capability in 0..=63_u64 {
            let held = data[usize::from(capability >= 32)].permitted >> (capability % 32) & 1;
            if held == 1 {
                libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0);
            }
        }
    }
}

/// All signals blocked for this thread until dropped: a handler of ours must not run in the child, on our memory.
struct SignalMask(libc::sigset_t);

impl SignalMask {
    fn block_all() -> io::Result<Self> {
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

/// Shows the files of a detached mount with the ids that a user namespace gives them.
pub(crate) fn map_mount_ids(mount: impl AsFd, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let userns_fd = u64::from(user_namespace.as_raw_fd().cast_unsigned());
    mount_setattr(mount, libc::mount_attr { attr_set: libc::MOUNT_ATTR_IDMAP, attr_clr: 0, propagation: 0, userns_fd })
}

/// Cuts a detached mount off from where it was copied: what the host mounts below that later does not appear here.
pub(crate) fn make_mount_private(mount: impl AsFd) -> io::Result<()> {
    mount_setattr(mount, libc::mount_attr { attr_set: 0, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 })
}

fn mount_setattr(mount: impl AsFd, attributes: libc::mount_attr) -> io::Result<()> {
    // SAFETY: the path is a NUL-terminated literal, the attributes outlive the call and their true size is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A process that does nothing but keep a user namespace in existence, until dropped.
#[derive(Debug)]
pub(crate) struct NamespaceHolder {
    pub(crate) pid: u32,
    pidfd: OwnedFd,
    /// The child sleeps on it; freed after the child is gone.
    _stack: Vec<u8>,
}

impl NamespaceHolder {
    /// Starts the process in a new user namespace without maps.
    pub(crate) fn start() -> io::Result<Self> {
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
        // SAFETY: the child only sleeps, with all signals blocked, on a stack that outlives it.
        let result = unsafe { clone_and_run(&arguments, sleep_forever, std::ptr::null()) };
        drop(masked);
        let pid = u32::try_from(result).map_err(|_| errno_of(result))?;
        // SAFETY: the kernel stored a descriptor that is ours alone.
        Ok(Self { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) }, _stack: stack })
    }
}

impl Drop for NamespaceHolder {
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
        // The child was cloned without an exit signal, so only this flag finds it.
        // SAFETY: waitid on our own child; a null result pointer is allowed.
        unsafe {
            let number = self.pidfd.as_raw_fd().cast_unsigned();
            libc::waitid(libc::P_PIDFD, number, std::ptr::null_mut(), libc::WEXITED | libc::__WALL);
        }
    }
}

unsafe extern "C" fn sleep_forever(_: *const c_void) -> ! {
    loop {
        // SAFETY: pause takes nothing and touches nothing.
        unsafe { libc::pause() };
    }
}

fn errno_of(result: i64) -> io::Error {
    io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO))
}
