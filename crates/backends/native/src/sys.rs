//! The system calls that no safe wrapper offers: making the first process of a box.
#![expect(unsafe_code, reason = "clone3 into new namespaces has no safe wrapper")]

use std::ffi::c_void;
use std::io;
use std::io::Write as _;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use box_host::sys::{SignalMask, clone_and_run};
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitiesSecureBits, Uid};

/// The descriptor under which the agent finds its socket.
const CONTROL_DESCRIPTOR: RawFd = 3;

/// Stack of a child between clone and exec.
const STACK_BYTES: usize = 64 << 10;

/// How readily the kernel ends a box before anything of the host when memory runs out.
const OOM_SCORE: &[u8] = b"500";

/// `CLONE_INTO_CGROUP`: the C library's constant does not fit its own type yet.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Namespaces that the first process starts in. The cgroup namespace it makes itself, once it is where it belongs.
const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// Who makes the network namespace of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkNamespace {
    /// The clone that starts the agent: what connects the namespace needs it before the agent gets its plan.
    Clone,
    /// The agent, before it reads its plan. The kernel takes as long for it as for all others together, and meanwhile the host
    /// prepares the plan.
    Agent,
}

/// What a process of the agent's program is started as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The first process of a box, in new namespaces.
    Agent,
    /// Who forks agents, in ours.
    Zygote,
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
    /// The host's user id that owns the box's user namespace, where that is not us. The kernel charges what the box takes of its
    /// limits per user (inotify instances, pending signals, …) to this id as well.
    pub(crate) owner: Option<u32>,
    pub(crate) network: NetworkNamespace,
}

impl Launch<'_> {
    /// The namespaces that the process is born into, as `CLONE_NEW*` flags.
    pub(crate) fn namespaces(&self) -> libc::c_int {
        match (self.role, self.network) {
            (Role::Zygote, _) => 0,
            (Role::Agent, NetworkNamespace::Clone) => NAMESPACES,
            (Role::Agent, NetworkNamespace::Agent) => NAMESPACES & !libc::CLONE_NEWNET,
        }
    }
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
    network: NetworkNamespace,
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
        network: launch.network,
        program: launch.program.as_raw_fd(),
        control: launch.control.as_raw_fd(),
        null: launch.null.as_raw_fd(),
    };
    let mut stack = vec![0_u8; STACK_BYTES];
    let mut pidfd: RawFd = -1;
    // SAFETY: all-zero is a valid clone_args.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    let flags = launch.namespaces() | libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
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
    let owner = launch.owner.map(ThreadOwner::assume).transpose()?;
    // SAFETY: the child runs `run_child` on a stack of its own with memory that stays valid, because this thread sleeps until
    // the child has executed the agent or died. `run_child` makes system calls only and never returns.
    let pid = unsafe { clone_and_run(&arguments, run_child, (&raw const child).cast()) };
    drop(owner);
    drop(masked);
    let pid = pid?;
    if launch.owner.is_some() {
        // The child may not write this file when it is not root. Losing it costs nothing but the kernel's choice.
        let score = std::fs::OpenOptions::new().write(true).open(format!("/proc/{pid}/oom_score_adj"));
        let _ = score.and_then(|mut score| score.write_all(OOM_SCORE));
    }
    // SAFETY: the kernel stored a descriptor that is ours alone.
    Ok(Launched { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// Makes this thread another user, without any loss of capabilities, until dropped.
struct ThreadOwner {
    secure_bits: CapabilitiesSecureBits,
    dumpable: DumpableBehavior,
}

impl ThreadOwner {
    fn assume(uid: u32) -> io::Result<Self> {
        let dumpable = rustix::process::dumpable_behavior()?;
        let secure_bits = rustix::thread::capabilities_secure_bits()?;
        let kept = secure_bits | CapabilitiesSecureBits::NO_SETUID_FIXUP;
        rustix::thread::set_capabilities_secure_bits(kept)?;
        let assumed = Self { secure_bits, dumpable };
        // The real id too: before 6.16, the kernel takes an effective id that differs from it for a set-user-id program, and exec
        // clears the ambient capabilities that the agent needs.
        let owner = Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(owner, owner, Uid::ROOT)?;
        Ok(assumed)
    }
}

impl Drop for ThreadOwner {
    fn drop(&mut self) {
        let restored = rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)
            .and_then(|()| rustix::thread::set_capabilities_secure_bits(self.secure_bits));
        if restored.is_err() {
            // A thread of the server that keeps the wrong user id would make files that the server cannot remove.
            std::process::abort();
        }
        // Changing the user made the whole process undumpable, which costs its operator a debugger and nothing else.
        let _ = rustix::process::set_dumpable_behavior(self.dumpable);
    }
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
        let word = match (child.role, child.network) {
            (Role::Zygote, _) => c"starter".as_ptr(),
            (Role::Agent, NetworkNamespace::Clone) => std::ptr::null(),
            (Role::Agent, NetworkNamespace::Agent) => c"unconnected".as_ptr(),
        };
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
