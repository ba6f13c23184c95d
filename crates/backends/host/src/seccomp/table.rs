//! The policy itself: which calls a box has, by what they are for.

use std::collections::BTreeMap;

use box_core::SyscallSet;

use crate::ids::AGENT_ID;

use super::compile::{Answer, Condition, Decision, Rule, error};

/// Calls that belong together.
type Calls = &'static [i64];

/// A call that is decided by its arguments: the rules, and what holds when none of them does.
pub(super) type Checked = (i64, &'static [Rule], Answer);

/// The error of a call that exists, but not for boxes.
const REFUSE: Answer = error(libc::EPERM);

/// The decision on every call that has one; all others do not exist.
pub(super) fn decisions(set: SyscallSet) -> BTreeMap<u32, Decision> {
    let debugging = match set {
        SyscallSet::Default => REFUSE,
        SyscallSet::Debug => Answer::Allow,
    };
    let always = |groups: &[Calls], answer: Answer| -> Vec<(i64, Decision)> {
        groups.iter().copied().flatten().map(|number| (*number, Decision::Always(answer))).collect()
    };
    always(ALLOWED, Answer::Allow)
        .into_iter()
        .chain(always(REFUSED, REFUSE))
        .chain(always(&[DEBUGGING], debugging))
        .chain(checked(CHECKED))
        .filter_map(|(number, decision)| Some((u32::try_from(number).ok()?, decision)))
        .collect()
}

pub(super) fn checked(calls: &'static [Checked]) -> impl Iterator<Item = (i64, Decision)> {
    calls.iter().map(|&(number, rules, otherwise)| (number, Decision::ByArguments { rules, otherwise }))
}

/// What every box can call.
const ALLOWED: &[Calls] = &[
    FILE_CONTENT,
    FILE_DESCRIPTORS,
    FILE_TREE,
    EXTENDED_ATTRIBUTES,
    FILE_WATCHES,
    MEMORY,
    PROCESSES,
    THREADS,
    SIGNALS,
    IDENTITY,
    LIMITS_AND_SCHEDULING,
    TIME,
    POLLING,
    SOCKETS,
    MESSAGES,
    SELF_RESTRICTION,
];

/// Calls that no box may make. Without this list they would be `ENOSYS`; `EPERM` shows the user why.
const REFUSED: &[Calls] =
    &[NAMESPACES, MOUNTS, FILE_HANDLES, KERNEL_CODE, KERNEL_SURFACE, KEYRINGS, OTHER_PROCESSES, MACHINE];

/// Numbers by name. Written with spaces, so that a group reads as a paragraph.
macro_rules! calls {
    ($($name:ident)*) => {
        &[$(number::$name),*]
    };
}

/// Reading and writing files, pipes and terminals.
const FILE_CONTENT: Calls = calls![
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2
    SYS_lseek SYS_sendfile SYS_splice SYS_tee SYS_vmsplice SYS_copy_file_range SYS_ftruncate SYS_truncate
    SYS_fallocate SYS_fadvise64 SYS_readahead SYS_cachestat SYS_sync SYS_fsync SYS_fdatasync SYS_syncfs
    SYS_sync_file_range
];

/// Opening, closing and passing on descriptors.
const FILE_DESCRIPTORS: Calls = calls![
    SYS_open SYS_openat SYS_openat2 SYS_creat SYS_close SYS_close_range SYS_dup SYS_dup2 SYS_dup3 SYS_flock
    SYS_pipe SYS_pipe2 SYS_memfd_create
];

/// Names, attributes and owners of files.
const FILE_TREE: Calls = calls![
    SYS_stat SYS_fstat SYS_lstat SYS_newfstatat SYS_statx SYS_access SYS_faccessat SYS_faccessat2 SYS_getdents
    SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir SYS_mkdir SYS_mkdirat SYS_rmdir SYS_link SYS_linkat SYS_symlink
    SYS_symlinkat SYS_unlink SYS_unlinkat SYS_rename SYS_renameat SYS_renameat2 SYS_readlink SYS_readlinkat
    SYS_chmod SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_chown SYS_fchown SYS_lchown SYS_fchownat SYS_umask SYS_utime
    SYS_utimes SYS_utimensat SYS_futimesat SYS_statfs SYS_fstatfs
];

/// Extended attributes. The kernel itself guards `security.*` and `trusted.*`.
const EXTENDED_ATTRIBUTES: Calls = calls![
    SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr
    SYS_flistxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr SYS_setxattrat SYS_getxattrat SYS_listxattrat
    SYS_removexattrat
];

/// Notifications about files.
const FILE_WATCHES: Calls = calls![
    SYS_inotify_init SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch
];

/// A process's own memory.
const MEMORY: Calls = calls![
    SYS_brk SYS_mmap SYS_munmap SYS_mprotect SYS_mremap SYS_msync SYS_madvise SYS_mincore SYS_mlock SYS_mlock2
    SYS_munlock SYS_mlockall SYS_munlockall SYS_remap_file_pages SYS_pkey_mprotect SYS_pkey_alloc SYS_pkey_free
    SYS_mseal SYS_map_shadow_stack SYS_mbind SYS_set_mempolicy SYS_get_mempolicy SYS_set_mempolicy_home_node
];

/// Making, replacing, waiting for and ending processes. `clone` is decided by its flags.
const PROCESSES: Calls = calls![
    SYS_fork SYS_vfork SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_getpid SYS_getppid
    SYS_gettid SYS_getpgid SYS_setpgid SYS_getpgrp SYS_getsid SYS_setsid SYS_pidfd_open SYS_prctl SYS_arch_prctl
    SYS_set_tid_address
];

/// What threads need to wait for one another.
const THREADS: Calls = calls![
    SYS_futex SYS_futex_waitv SYS_futex_wake SYS_futex_wait SYS_futex_requeue SYS_set_robust_list
    SYS_get_robust_list SYS_rseq SYS_membarrier SYS_sched_yield SYS_getcpu
];

/// Signals, to processes that the kernel lets the caller reach.
const SIGNALS: Calls = calls![
    SYS_kill SYS_tkill SYS_tgkill SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigpending SYS_rt_sigreturn
    SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_sigaltstack SYS_signalfd
    SYS_signalfd4 SYS_pidfd_send_signal SYS_pause SYS_restart_syscall
];

/// Users, groups and capabilities. Becoming another user is decided by whom.
const IDENTITY: Calls = calls![
    SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups SYS_setgid
    SYS_setregid SYS_setresgid SYS_setfsgid SYS_setgroups SYS_capget SYS_capset
];

/// Limits and scheduling. The kernel refuses to raise what was lowered, and real time.
const LIMITS_AND_SCHEDULING: Calls = calls![
    SYS_getrlimit SYS_setrlimit SYS_prlimit64 SYS_getrusage SYS_times SYS_sysinfo SYS_uname SYS_getpriority
    SYS_setpriority SYS_ioprio_get SYS_ioprio_set SYS_sched_setparam SYS_sched_getparam SYS_sched_setscheduler
    SYS_sched_getscheduler SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_rr_get_interval
    SYS_sched_setaffinity SYS_sched_getaffinity SYS_sched_setattr SYS_sched_getattr
];

/// Reading clocks and waiting.
const TIME: Calls = calls![
    SYS_time SYS_gettimeofday SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_alarm
    SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun
    SYS_timer_delete SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime
];

/// Waiting for descriptors.
const POLLING: Calls = calls![
    SYS_poll SYS_ppoll SYS_select SYS_pselect6 SYS_epoll_create SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_wait
    SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd SYS_eventfd2
];

/// Using sockets. Which ones can be made is decided by family, type and protocol.
const SOCKETS: Calls = calls![
    SYS_bind SYS_connect SYS_listen SYS_accept SYS_accept4 SYS_getsockname SYS_getpeername SYS_getsockopt
    SYS_setsockopt SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_shutdown
];

/// System V and POSIX shared memory, semaphores and queues, all in the box's own namespace.
const MESSAGES: Calls = calls![
    SYS_shmget SYS_shmat SYS_shmctl SYS_shmdt SYS_semget SYS_semop SYS_semctl SYS_semtimedop SYS_msgget SYS_msgsnd
    SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify
    SYS_mq_getsetattr
];

/// Randomness, and programs that confine themselves further.
const SELF_RESTRICTION: Calls = calls![
    SYS_getrandom SYS_seccomp SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
];

/// Tracing processes of the same box: refused, unless the box is made for debugging.
const DEBUGGING: Calls = calls![
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev
];

/// Other namespaces, which would open parts of the kernel that a box has no need of.
const NAMESPACES: Calls = calls![
    SYS_unshare SYS_setns
];

/// The mount tree.
const MOUNTS: Calls = calls![
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree SYS_open_tree_attr SYS_move_mount SYS_fsopen
    SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr
];

/// Opening files around the mount tree, and watching whole mounts.
const FILE_HANDLES: Calls = calls![
    SYS_name_to_handle_at SYS_open_by_handle_at SYS_fanotify_init SYS_fanotify_mark
];

/// Code and programs for the kernel.
const KERNEL_CODE: Calls = calls![
    SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_kexec_file_load SYS_bpf
];

/// Large interfaces with a history of holes.
const KERNEL_SURFACE: Calls = calls![
    SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_perf_event_open SYS_userfaultfd SYS_modify_ldt
];

/// Keys, which no namespace separates.
const KEYRINGS: Calls = calls![
    SYS_add_key SYS_request_key SYS_keyctl
];

/// Reaching into other processes.
const OTHER_PROCESSES: Calls = calls![
    SYS_kcmp SYS_pidfd_getfd SYS_process_madvise SYS_move_pages SYS_migrate_pages
];

/// The machine: its clock, names, log, ports, disks and power.
const MACHINE: Calls = calls![
    SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex SYS_sethostname SYS_setdomainname SYS_syslog
    SYS_iopl SYS_ioperm SYS_vhangup SYS_reboot SYS_swapon SYS_swapoff SYS_acct SYS_quotactl SYS_quotactl_fd
];

/// What is decided by arguments. `clone3` is absent from all lists: its flags cannot be read by a filter.
const CHECKED: &[Checked] = &[
    (libc::SYS_clone, CLONE, REFUSE),
    (libc::SYS_ioctl, IOCTL, Answer::Allow),
    (libc::SYS_fcntl, FCNTL, Answer::Allow),
    (libc::SYS_setuid, BECOME_ONE, Answer::Allow),
    (libc::SYS_setreuid, BECOME_TWO, Answer::Allow),
    (libc::SYS_setresuid, BECOME_THREE, Answer::Allow),
    (libc::SYS_setfsuid, BECOME_ONE, Answer::Allow),
    (libc::SYS_personality, PERSONALITY, REFUSE),
    (libc::SYS_mknod, MKNOD, REFUSE),
    (libc::SYS_mknodat, MKNODAT, REFUSE),
    (libc::SYS_socket, SOCKET, REFUSE),
    (libc::SYS_socketpair, SOCKET, REFUSE),
];

/// Every flag of `clone` that makes a namespace: mount, cgroup, uts, ipc, user, pid, net.
const NAMESPACE_FLAGS: u32 = 0x7E02_0000;

/// Processes and threads, but no namespaces.
const CLONE: &[Rule] = &[allow(&[masked(0, NAMESPACE_FLAGS, 0)])];

/// Everything but typing into a terminal on behalf of its user, and other line disciplines, which are drivers.
const IOCTL: &[Rule] = &[refuse(&[is(1, TIOCSTI)]), refuse(&[is(1, TIOCLINUX)]), refuse(&[is(1, TIOCSETD)])];
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
const TIOCSETD: u32 = 0x5423;

/// Everything but leases, which make every open of the file wait, on the host too where it is mounted; and the predecessor of inotify,
/// whose watches no account is charged for.
///
/// Open file description locks answer as in older kernels, so that programs use process locks: no account is charged
/// for either, and only process locks can be counted.
const FCNTL: &[Rule] = &[
    refuse(&[is(1, F_SETLEASE)]),
    refuse(&[is(1, F_NOTIFY)]),
    Rule { when: &[is(1, F_OFD_SETLK)], answer: error(libc::EINVAL) },
    Rule { when: &[is(1, F_OFD_SETLKW)], answer: error(libc::EINVAL) },
];
const F_OFD_SETLK: u32 = 37;
const F_OFD_SETLKW: u32 = 38;
const F_SETLEASE: u32 = 1024;
const F_NOTIFY: u32 = 1026;

/// Any user but the agent's: a process with that id could take the agent's limits and processor time away. Root of a
/// box may have the right to become any other user.
const BECOME_ONE: &[Rule] = &[refuse(&[is(0, AGENT_ID)])];
const BECOME_TWO: &[Rule] = &[refuse(&[is(0, AGENT_ID)]), refuse(&[is(1, AGENT_ID)])];
const BECOME_THREE: &[Rule] = &[refuse(&[is(0, AGENT_ID)]), refuse(&[is(1, AGENT_ID)]), refuse(&[is(2, AGENT_ID)])];

/// Plain Linux, its 32-bit and old-version disguises, and the question which one it is. Not: less randomization.
const PERSONALITY: &[Rule] = &[
    allow(&[is(0, 0)]),
    allow(&[is(0, 0x0000_0008)]),
    allow(&[is(0, 0x0002_0000)]),
    allow(&[is(0, 0x0002_0008)]),
    allow(&[is(0, 0xFFFF_FFFF)]),
];

/// Regular files, pipes and sockets. Not: devices.
const MKNOD: &[Rule] = &[
    allow(&[masked(1, libc::S_IFMT, 0)]),
    allow(&[masked(1, libc::S_IFMT, libc::S_IFREG)]),
    allow(&[masked(1, libc::S_IFMT, libc::S_IFIFO)]),
    allow(&[masked(1, libc::S_IFMT, libc::S_IFSOCK)]),
];
const MKNODAT: &[Rule] = &[
    allow(&[masked(2, libc::S_IFMT, 0)]),
    allow(&[masked(2, libc::S_IFMT, libc::S_IFREG)]),
    allow(&[masked(2, libc::S_IFMT, libc::S_IFIFO)]),
    allow(&[masked(2, libc::S_IFMT, libc::S_IFSOCK)]),
];

/// Sockets by family, type and protocol.
const SOCKET: &[Rule] = &[
    allow(&[is(0, UNIX)]),
    allow(&[is(0, NETLINK), is(2, NETLINK_ROUTE)]),
    allow(&[is(0, INET), kind(STREAM), is(2, ANY_PROTOCOL)]),
    allow(&[is(0, INET), kind(STREAM), is(2, TCP)]),
    allow(&[is(0, INET), kind(DATAGRAM), is(2, ANY_PROTOCOL)]),
    allow(&[is(0, INET), kind(DATAGRAM), is(2, UDP)]),
    allow(&[is(0, INET), kind(DATAGRAM), is(2, ICMP)]),
    allow(&[is(0, INET6), kind(STREAM), is(2, ANY_PROTOCOL)]),
    allow(&[is(0, INET6), kind(STREAM), is(2, TCP)]),
    allow(&[is(0, INET6), kind(DATAGRAM), is(2, ANY_PROTOCOL)]),
    allow(&[is(0, INET6), kind(DATAGRAM), is(2, UDP)]),
    allow(&[is(0, INET6), kind(DATAGRAM), is(2, ICMP6)]),
    // Programs that try multipath TCP first take this error as the sign to use TCP.
    Rule { when: &[is(2, MPTCP)], answer: error(libc::EPROTONOSUPPORT) },
];
const UNIX: u32 = 1;
const INET: u32 = 2;
const INET6: u32 = 10;
const NETLINK: u32 = 16;
const STREAM: u32 = 1;
const DATAGRAM: u32 = 2;
const ANY_PROTOCOL: u32 = 0;
const NETLINK_ROUTE: u32 = 0;
const ICMP: u32 = 1;
const TCP: u32 = 6;
const UDP: u32 = 17;
const ICMP6: u32 = 58;
const MPTCP: u32 = 262;

const fn allow(when: &'static [Condition]) -> Rule {
    Rule { when, answer: Answer::Allow }
}

pub(super) const fn refuse(when: &'static [Condition]) -> Rule {
    Rule { when, answer: REFUSE }
}

pub(super) const fn is(argument: u32, value: u32) -> Condition {
    masked(argument, u32::MAX, value)
}

/// All of these bits are set.
pub(super) const fn has(argument: u32, bits: u32) -> Condition {
    masked(argument, bits, bits)
}

const fn masked(argument: u32, mask: u32, value: u32) -> Condition {
    Condition { argument, mask, value }
}

/// The type of a socket, without the flags that are passed in the same argument.
const fn kind(value: u32) -> Condition {
    masked(1, 0xF, value)
}

/// The numbers of `libc`, and those that it does not name yet.
#[expect(non_upper_case_globals, reason = "these are named as libc names theirs")]
mod number {
    pub(super) use libc::*;

    pub(super) const SYS_cachestat: c_long = 451;
    pub(super) const SYS_map_shadow_stack: c_long = 453;
    pub(super) const SYS_futex_wake: c_long = 454;
    pub(super) const SYS_futex_wait: c_long = 455;
    pub(super) const SYS_futex_requeue: c_long = 456;
    pub(super) const SYS_setxattrat: c_long = 463;
    pub(super) const SYS_getxattrat: c_long = 464;
    pub(super) const SYS_listxattrat: c_long = 465;
    pub(super) const SYS_removexattrat: c_long = 466;
    pub(super) const SYS_open_tree_attr: c_long = 467;
}
