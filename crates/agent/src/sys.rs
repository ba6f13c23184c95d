//! The system calls that no safe wrapper offers. The only `unsafe` code of the agent.
#![expect(unsafe_code, reason = "raw system calls; everything else of the agent is safe code on top")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
#[cfg(not(test))]
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;

/// Where the C library enters. Rust's own runtime is left out: it looks at the whole memory map, prepares for stack overflow
/// reports and checks descriptors, which takes a tenth of the time that a box takes to be made, and nothing here needs it.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(count: libc::c_int, arguments: *const *const libc::c_char) -> libc::c_int {
    // SAFETY: SIG_IGN is a valid disposition. A write to a closed pipe must be an error, not a signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    // SAFETY: the C library hands over `count` pointers to strings that end with NUL and live as long as the process.
    let argument = |index: usize| unsafe { std::ffi::CStr::from_ptr(*arguments.add(index)).to_bytes() };
    let count = usize::try_from(count).unwrap_or(0);
    if count > 0 && argument(0).rsplit(|byte| *byte == b'/').next() == Some(b"sudo") {
        return crate::run(crate::Role::Sudo((1..count).map(|index| argument(index).to_vec()).collect()));
    }
    crate::run(match (count, (1..count.min(3)).map(argument).collect::<Vec<_>>().as_slice()) {
        (_, [b"lodge", socket]) => crate::Role::Lodger(std::ffi::OsStr::from_bytes(socket).into()),
        (_, [b"dial"]) => crate::Role::Dialler,
        (_, [b"attach"]) => crate::Role::Attacher,
        (_, [b"guard"]) => crate::Role::Guard,
        (_, [b"unconnected"]) => crate::Role::Agent(crate::Network::Missing),
        (0 | 1, _) => crate::Role::Agent(crate::Network::Made),
        _ => crate::Role::Zygote,
    })
}

/// The end of a reaped child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reaped {
    pub(crate) pid: i32,
    pub(crate) status: i32,
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
    pub(crate) resident_bytes_max: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// `CLONE_INTO_CGROUP`: the C library's constant does not fit its own type yet.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Takes ownership of a descriptor that this process was started with, and keeps it from whatever this process starts.
pub(crate) fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes plain numbers; it fails when the number is not an open descriptor.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and nothing else in this process knows of it: it is taken once, first thing in main.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Runs a function with the file rights of a user of the host, and with none of this process's own.
pub(crate) fn with_files_of<T>(
    user: box_wire::User,
    work: impl FnOnce() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    become_for_files(user)?;
    let done = work();
    become_for_files(box_wire::User::ROOT)?;
    done
}

fn become_for_files(user: box_wire::User) -> rustix::io::Result<()> {
    // SAFETY: the calls take plain numbers and change ids of this thread, the only one. They return the previous id and
    // ignore an invalid one, so a call with an invalid id is the only way to read the current id.
    let (uid, gid) = unsafe {
        libc::setfsgid(user.gid);
        libc::setfsuid(user.uid);
        (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX))
    };
    if (uid.cast_unsigned(), gid.cast_unsigned()) == (user.uid, user.gid) { Ok(()) } else { Err(Errno::PERM) }
}

/// Makes this cgroup the root of a new cgroup namespace.
pub(crate) fn unshare_cgroup() -> io::Result<()> {
    unshare(libc::CLONE_NEWCGROUP)
}

/// Moves this process to a network namespace of its own.
pub(crate) fn unshare_network() -> io::Result<()> {
    unshare(libc::CLONE_NEWNET)
}

fn unshare(namespace: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes a plain number; these namespaces change nothing that memory safety rests on.
    if unsafe { libc::unshare(namespace) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets attributes of the mount behind a descriptor, and of all below it.
pub(crate) fn mount_restrict(mount: impl AsFd, set: u64) -> io::Result<()> {
    mount_setattr(mount, set, libc::AT_RECURSIVE)
}

/// Makes the mount behind a descriptor read-only, and only that one.
pub(crate) fn mount_seal(mount: impl AsFd) -> io::Result<()> {
    mount_setattr(mount, libc::MOUNT_ATTR_RDONLY, 0)
}

fn mount_setattr(mount: impl AsFd, set: u64, flags: i32) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
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

/// Forks, into a cgroup if one is given. `None` in the child.
///
/// The agent has a single thread, so the child may do everything a process may.
pub(crate) fn fork(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<i32>> {
    // SAFETY: an all-zero clone_args is valid: fork without any sharing.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.exit_signal = libc::SIGCHLD as u64;
    clone_single(arguments, cgroup)
}

/// clone3 without shared memory, from the only thread there is.
fn clone_single(mut arguments: libc::clone_args, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<i32>> {
    if let Some(directory) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::try_from(directory.as_raw_fd()).unwrap_or(u64::MAX);
    }
    // SAFETY: without CLONE_VM this is fork(2): the child gets a copy of everything and returns here on its own copy of the
    // stack. There is one thread, so no lock can be held by another one.
    let mut result = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) };
    if result < 0 && last_errno() == Errno::NOSYS && arguments.flags == 0 {
        // Engines hide clone3 from what they run, because they cannot look into its arguments. This is the same fork.
        // SAFETY: as above.
        result = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    }
    match i32::try_from(result) {
        Ok(0) => Ok(None),
        Ok(pid) if pid > 0 => Ok(Some(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Forks the first process of a box into new namespaces, named by their `CLONE_NEW*` flags. `None` in the child.
pub(crate) fn fork_box(namespaces: i32, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<(i32, OwnedFd)>> {
    let mut pidfd: libc::c_int = -1;
    // SAFETY: an all-zero clone_args is valid: fork without any sharing.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from((namespaces | libc::CLONE_PIDFD).cast_unsigned());
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.pidfd = (&raw mut pidfd) as u64;
    match clone_single(arguments, cgroup)? {
        None => Ok(None),
        // SAFETY: the kernel stored a new descriptor without another owner.
        Some(pid) => Ok(Some((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))),
    }
}

/// Lets the kernel reap children at once: those who need their status watch them through a pidfd.
pub(crate) fn forget_children() {
    // SAFETY: SIG_IGN is a valid disposition.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Ends the process at once, without running anything.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes any number and does not return.
    unsafe { libc::_exit(code) }
}

/// Replaces the process image. Returns only when that failed.
pub(crate) fn execve(path: &CString, arguments: &[CString], environment: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (argv, envp) = (pointers(arguments), pointers(environment));
    // SAFETY: all strings are NUL-terminated and outlive the call; both lists end with a null pointer.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    last_errno()
}

/// Installs one classic BPF program as a system call filter of this thread.
pub(crate) fn install_filter(program: &[u8]) -> io::Result<()> {
    let length = program.len() / size_of::<libc::sock_filter>();
    let length = u16::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut instructions = vec![libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 }; length.into()];
    for (instruction, bytes) in instructions.iter_mut().zip(program.chunks_exact(size_of::<libc::sock_filter>())) {
        *instruction = libc::sock_filter {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            jt: bytes[2],
            jf: bytes[3],
            k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        };
    }
    let filter = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    // SAFETY: the program outlives the call, and its true length is passed; the kernel checks and copies it.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The Landlock ABI of the kernel; 0 when it has none.
pub(crate) fn landlock_abi() -> u32 {
    const VERSION: libc::c_long = 1;
    // SAFETY: with this flag the call takes no attributes and only answers with a number.
    let result = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    u32::try_from(result).unwrap_or(0)
}

/// Blocks `signals` and returns a descriptor from which they can be read.
pub(crate) fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use, and all pointers are to live locals.
    let descriptor = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: signalfd just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The next pending signal, and whether it was sent from outside of the box.
pub(crate) fn read_signal(descriptor: impl AsFd) -> Option<(i32, bool)> {
    // SAFETY: all-zero is a valid signalfd_siginfo.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    // SAFETY: the buffer is a live local of exactly the size that is passed.
    let count = unsafe {
        libc::read(descriptor.as_fd().as_raw_fd(), (&raw mut info).cast(), size_of::<libc::signalfd_siginfo>())
    };
    let whole = usize::try_from(count).is_ok_and(|count| count == size_of::<libc::signalfd_siginfo>());
    // A sender outside of the pid namespace shows as pid 0. A process inside can queue a signal with any pid, but
    // cannot fake `SI_USER`.
    let is_from_outside = info.ssi_pid == 0 && info.ssi_code == libc::SI_USER;
    whole.then(|| (i32::try_from(info.ssi_signo).unwrap_or(0), is_from_outside))
}

/// Restores the default action of all signals, because ignored signals are inherited across exec. SIGPIPE stays
/// ignored: a write to a closed pipe must be an error, not a signal.
pub(crate) fn default_signals() {
    for signal in (1..=64).filter(|&signal| signal != libc::SIGPIPE) {
        // SAFETY: SIG_DFL is a valid disposition; signals that cannot be changed answer EINVAL, which is fine.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Lets all signals through again in a new process.
pub(crate) fn unblock_signals() {
    // SAFETY: SIG_DFL is a valid disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // SAFETY: the set is initialised by sigemptyset before use, and the pointers are to live locals.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// The next child that ended, if any. `block` waits for one.
pub(crate) fn reap(block: Block) -> io::Result<Option<Reaped>> {
    let mut status = 0;
    // SAFETY: all-zero is a valid rusage, and both pointers are to live locals.
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let options = if block == Block::Yes { 0 } else { libc::WNOHANG };
        (libc::wait4(-1, &raw mut status, options, &raw mut usage), usage)
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    let number = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    let micros = |time: libc::timeval| number(time.tv_sec) * 1_000_000 + number(time.tv_usec);
    Ok((pid > 0).then(|| Reaped {
        pid,
        status,
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        resident_bytes_max: number(usage.ru_maxrss) * 1024,
        read_bytes: number(usage.ru_inblock) * 512,
        written_bytes: number(usage.ru_oublock) * 512,
    }))
}

/// A child that was stopped since this was last asked.
pub(crate) fn stopped_child() -> Option<i32> {
    // SAFETY: an all-zero siginfo is valid, and the pointer is to a live local; its pid is read only after a success that told of one.
    unsafe {
        let mut told: libc::siginfo_t = std::mem::zeroed();
        let result = libc::waitid(libc::P_ALL, 0, &raw mut told, libc::WSTOPPED | libc::WNOHANG);
        (result == 0 && told.si_pid() > 0).then(|| told.si_pid())
    }
}

/// Whether a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block {
    Yes,
    No,
}

/// Removes every capability but `kept`, a bit for each, from the bounding set: no program that is ever started can have another.
pub(crate) fn drop_bounding_set_but(kept: u64) {
    for capability in (0..=63).filter(|capability| kept & 1 << capability == 0) {
        // SAFETY: the call takes plain numbers; it answers EINVAL past the last capability that the kernel knows.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } < 0 && last_errno() == Errno::INVAL {
            break;
        }
    }
}

/// The capabilities that are left in the bounding set, a bit for each.
pub(crate) fn bounding_set() -> u64 {
    // SAFETY: the call takes plain numbers; it answers -1 past the last capability that the kernel knows.
    let has = |capability: &u64| unsafe { libc::prctl(libc::PR_CAPBSET_READ, *capability, 0, 0, 0) } > 0;
    (0..=63).filter(has).fold(0, |set, capability| set | 1 << capability)
}

/// Sends a signal to a process by number. Only for children that have not been reaped, whose number cannot be reused.
pub(crate) fn signal_child(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes plain numbers.
    if unsafe { libc::kill(pid, signal) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Ends every other process of the namespace whose first process this is.
pub(crate) fn kill_everybody() {
    let _ = signal_child(-1, libc::SIGKILL);
}

/// Closes everything but the standard streams on exec, whatever flags the descriptors were opened with.
pub(crate) fn keep_standard_streams_only() -> io::Result<()> {
    // SAFETY: marks descriptors, closes none.
    let result = unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Closes every descriptor of this process but the three standard streams.
pub(crate) fn close_all_but_standard_streams() -> io::Result<()> {
    // SAFETY: the caller lives in a forked copy that goes on with the standard streams alone and never drops the owners of the
    // others: it only leaves by `exit_now`.
    if unsafe { libc::close_range(3, u32::MAX, 0) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Closes every descriptor of this process but the three standard streams and one more, which it returns under a new number.
pub(crate) fn close_all_but_standard_streams_and(keep: &OwnedFd) -> io::Result<OwnedFd> {
    const KEPT: i32 = 3;
    // SAFETY: dup2 replaces whatever stood there; the caller lives in a forked copy that goes on with nothing but the standard streams
    // and the returned descriptor and never drops the owners of the others: it only leaves by `exit_now`.
    if unsafe { libc::dup2(keep.as_raw_fd(), KEPT) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    if unsafe { libc::close_range(KEPT.cast_unsigned() + 1, u32::MAX, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    inherited(KEPT)
}

/// Closes every descriptor of this process but one, which it returns under a new number.
pub(crate) fn close_all_but(keep: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: dup2 onto 0 replaces whatever stood there; this process never reads from it again.
    if unsafe { libc::dup2(keep.as_raw_fd(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller lives in a forked copy that goes on with nothing but the returned descriptor and never drops the
    // owners of the others: it only leaves by `exit_now`.
    if unsafe { libc::close_range(1, u32::MAX, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: 0 is open since the dup2 above and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(0) })
}

/// Closes every descriptor of this process but the three standard streams and those in `kept`.
pub(crate) fn close_others(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut numbers: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).filter(|number| *number > 2).collect();
    numbers.sort_unstable();
    let mut first = 3;
    for number in numbers.iter().map(|number| number.cast_unsigned()) {
        if first < number {
            close_range(first, number - 1)?;
        }
        first = number + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: the caller lives in a forked copy that goes on with nothing but what it keeps and never drops the owners of the
    // others: it only leaves by `exit_now`.
    if unsafe { libc::close_range(first, last, 0) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The process and the user that connected to a socket, as they were then. The process is 0 when it has no number here.
pub(crate) fn peer_of(stream: impl AsFd) -> io::Result<(i32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: the buffer is a live local of exactly the size that is passed.
    let result = unsafe {
        libc::getsockopt(
            stream.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok((peer.pid, peer.uid)) }
}

/// A received message and its sender.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: usize,
    /// The process that sent it, as the kernel says; 0 when it has no number here.
    pub(crate) pid: i32,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Receives bytes from a socket with `SO_PASSCRED`, and the descriptors that came with them, without waiting.
pub(crate) fn receive_from(stream: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut place = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // Words, so that headers are aligned: room for credentials and four descriptors. The kernel closes those that have no room.
    let mut space = [0_u64; 8];
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut place;
    message.msg_iovlen = 1;
    message.msg_control = space.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&space);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: all pointers in the message are to live locals with the lengths that it says.
    let count = unsafe { libc::recvmsg(stream.as_fd().as_raw_fd(), &raw mut message, flags) };
    let bytes = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let mut received = Received { bytes, pid: 0, descriptors: Vec::new() };
    // SAFETY: the kernel filled in the message and its control data, which both live on.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: the header is one that the kernel wrote, with as much data behind it as it says; descriptors in it are new.
        unsafe {
            let data = libc::CMSG_DATA(header);
            let length = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for index in 0..length / size_of::<RawFd>() {
                        let number = data.add(index * size_of::<RawFd>()).cast::<RawFd>().read_unaligned();
                        received.descriptors.push(OwnedFd::from_raw_fd(number));
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if length >= size_of::<libc::ucred>() => {
                    received.pid = data.cast::<libc::ucred>().read_unaligned().pid;
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(received)
}

/// Keeps every signal that can be kept from this process.
pub(crate) fn block_signals() {
    // SAFETY: the set is initialised by sigfillset before use, and the pointers are to live locals.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Sends a signal to the group of a child that leads one and has not been reaped.
pub(crate) fn signal_group(leader: i32, signal: i32) -> io::Result<()> {
    // Other numbers would mean all processes, or this process's own group.
    if leader < 2 { Err(Errno::SRCH.into()) } else { signal_child(-leader, signal) }
}

/// Ends this process by a signal, as far as the signal ends processes.
pub(crate) fn end_by(signal: i32) {
    // SAFETY: SIG_DFL is a valid disposition; signals that cannot be changed answer EINVAL, which is fine.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    unblock_signals();
    let _ = signal_child(std::process::id().cast_signed(), signal);
}

/// Brings the loopback interface of this network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *slot = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or_default();
    // SAFETY: the request is a live local of the type that SIOCSIFFLAGS expects.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
