//! Programs of the host that carry a box's packets: started confined, awaited, and ended by certain identity.
//!
//! Each has a guard, a small process that ends it together with its box if the server is gone.
#![expect(unsafe_code, reason = "a helper is confined between fork and exec, which only system calls can do")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use box_core::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Gid, Pid, PidfdFlags, Signal, Uid, WaitId, WaitIdOptions};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use serde::{Deserialize, Serialize};

use super::{Namespaces, Obstacle, Target, failure, routes};
use crate::process::start_time_ticks;

/// How long a helper may take until the box's interface is up.
const READY_DEADLINE: Duration = Duration::from_secs(5);

/// How often we look whether it is.
const READY_POLL: Duration = Duration::from_millis(2);

/// How long a killed helper may take to be gone.
const END_DEADLINE_SEC: i64 = 5;

/// How much of a helper's complaints is kept. It cannot write more.
const COMPLAINTS_BYTES_MAX: u64 = 16 * 1024;

const TUNNEL_DEVICE: &str = "/dev/net/tun";

/// A process, by an identity that is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelperProcess {
    /// Its number, which can be given again to another process.
    pub pid: u32,
    /// When it started, in ticks since the machine did.
    pub start_time_ticks: u64,
}

/// Where a helper writes something as soon as it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// To its standard output.
    OnStdout,
    /// To the descriptor that its arguments name.
    OnDescriptor,
}

/// Whether a helper can make the box's interface.
pub(super) fn check() -> Result<(), Obstacle> {
    if !Path::new(TUNNEL_DEVICE).exists() {
        return Err(Obstacle::new(format!("{TUNNEL_DEVICE} does not exist"), "run `modprobe tun` as root"));
    }
    if rustix::process::geteuid().is_root() || tunnel_is_open_to_all() {
        return Ok(());
    }
    let fix = format!("run `chmod 0666 {TUNNEL_DEVICE}` as root; a tunnel needs privilege over its namespace anyway");
    Err(Obstacle::new(format!("{TUNNEL_DEVICE} may only be opened by root"), fix))
}

fn tunnel_is_open_to_all() -> bool {
    rustix::fs::stat(TUNNEL_DEVICE).is_ok_and(|stat| stat.st_mode & 0o006 == 0o006)
}

/// A helper, and what ends it with its box.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guarded {
    pub(super) helper: HelperProcess,
    pub(super) guard: HelperProcess,
}

/// Starts a helper for a box and waits until the box has a way out.
///
/// `arguments` gets the number of the descriptor for [`Ready::OnDescriptor`].
pub(super) fn start(
    program: &Path,
    arguments: impl FnOnce(RawFd) -> Vec<String>,
    ready: Ready,
    namespaces: &Namespaces,
    target: Target<'_>,
) -> Result<Guarded> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let context = |what: &str| format!("{what} for {name}");
    let ready_file = memory_file("ready", None).map_err(|source| Error::io(context("make a file"), source))?;
    let complaints = memory_file("complaints", Some(COMPLAINTS_BYTES_MAX))
        .map_err(|source| Error::io(context("make a file"), source))?;
    let confinement = Confinement {
        own_tunnel_device: rustix::process::geteuid().is_root() && !tunnel_is_open_to_all(),
        kept: Some(ready_file.as_raw_fd()),
        ..Confinement::new(namespaces, target)?
    };

    let clone =
        |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(|source| Error::io(context("copy a descriptor"), source));
    let stdout = match ready {
        Ready::OnStdout => Stdio::from(clone(ready_file.as_fd())?),
        Ready::OnDescriptor => Stdio::null(),
    };
    let mut command = Command::new(program);
    command.args(arguments(ready_file.as_raw_fd())).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    command.stdin(clone(namespaces.net.as_fd())?).stdout(stdout).stderr(clone(complaints.as_fd())?);
    // SAFETY: `apply` makes system calls only, on what was made before the fork.
    unsafe { command.pre_exec(move || confinement.apply()) };
    let mut child = command.spawn().map_err(|source| Error::io(format!("start {}", program.display()), source))?;
    let mut guard = match start_guard(child.id(), namespaces, target) {
        Ok(guard) => guard,
        Err(source) => {
            end_child(&mut child);
            return Err(Error::io(context("start a guard"), source));
        }
    };

    let outcome = wait_until_ready(&mut child, &ready_file, target.agent_pid)
        .and_then(|()| Ok(Guarded { helper: HelperProcess::of(child.id())?, guard: HelperProcess::of(guard.id())? }));
    outcome.map_err(|reason| {
        end_child(&mut child);
        end_child(&mut guard);
        failure(format!("{name} {reason}; it says: {}", read_complaints(&complaints)))
    })
}

/// Kills and reaps a child. Both fail only if it is gone already, which is fine.
fn end_child(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Starts the process that ends a helper when the agent has ended. It is the helper's equal: neither has rights on the host.
fn start_guard(helper_pid: u32, namespaces: &Namespaces, target: Target<'_>) -> io::Result<Child> {
    let open = |pid: u32| {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(rustix::io::Errno::SRCH)?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty())
    };
    let (agent, helper) = (open(target.agent_pid)?, open(helper_pid)?);
    let confinement = Confinement::new(namespaces, target).map_err(io::Error::other)?;
    let program = box_agent_image::sealed()?;
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg("guard").env_clear().current_dir("/");
    command.stdin(agent).stdout(helper).stderr(Stdio::null());
    // SAFETY: `apply` makes system calls only, on what was made before the fork.
    unsafe { command.pre_exec(move || confinement.apply()) };
    command.spawn()
}

fn wait_until_ready(child: &mut Child, ready_file: &File, agent_pid: u32) -> Result<(), String> {
    let deadline = Instant::now() + READY_DEADLINE;
    let box_process = format!("/proc/{agent_pid}");
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("ended at once with {status}"));
        }
        let reported = ready_file.metadata().is_ok_and(|metadata| metadata.len() > 0);
        if reported && routes::has_default(&box_process) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(format!("did not bring the network up within {} s", READY_DEADLINE.as_secs()));
        }
        std::thread::sleep(READY_POLL);
    }
}

/// A file without a name; with a size, one that cannot grow beyond it.
fn memory_file(name: &str, bytes_max: Option<u64>) -> io::Result<File> {
    let file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    if let Some(bytes) = bytes_max {
        file.set_len(bytes)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::GROW)?;
    }
    Ok(file)
}

fn read_complaints(file: &File) -> String {
    let mut bytes = vec![0; 4096];
    let count = file.read_at(&mut bytes, 0).unwrap_or(0);
    let text: Vec<u8> = bytes.into_iter().take(count).take_while(|byte| *byte != 0).collect();
    match String::from_utf8_lossy(&text).trim() {
        "" => "nothing".to_owned(),
        words => words.replace('\n', " / "),
    }
}

/// What a helper or guard becomes before its program starts: root of the box's user namespace, without rights on the host.
struct Confinement {
    user_namespace: OwnedFd,
    cgroup_processes: Option<OwnedFd>,
    own_tunnel_device: bool,
    kept: Option<RawFd>,
}

impl Confinement {
    fn new(namespaces: &Namespaces, target: Target<'_>) -> Result<Self> {
        let open = |directory: BorrowedFd<'_>| {
            rustix::fs::openat(directory, "cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        };
        let cgroup_processes = target.helper_cgroup.map(open).transpose();
        Ok(Self {
            user_namespace: namespaces.user.try_clone().map_err(|source| Error::io("copy a descriptor", source))?,
            cgroup_processes: cgroup_processes.map_err(|source| Error::io("open the helper's cgroup.procs", source))?,
            own_tunnel_device: false,
            kept: None,
        })
    }

    /// Runs in the child, between fork and exec.
    fn apply(&self) -> io::Result<()> {
        rustix::process::setsid()?;
        if let Some(processes) = &self.cgroup_processes {
            rustix::io::write(processes, b"0")?;
        }
        if self.own_tunnel_device {
            replace_tunnel_device()?;
        }
        rustix::thread::move_into_link_name_space(self.user_namespace.as_fd(), Some(LinkNameSpaceType::User))?;
        // An ordinary user's namespace forbids this, and then there is nothing to give up.
        let _ = rustix::thread::set_thread_groups(&[]);
        rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
        rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
        rustix::thread::set_no_new_privs(true)?;
        close_on_exec_from(3)?;
        if let Some(kept) = self.kept {
            // SAFETY: the caller of `spawn` holds this descriptor open until the fork is over.
            let kept = unsafe { BorrowedFd::borrow_raw(kept) };
            rustix::io::fcntl_setfd(kept, rustix::io::FdFlags::empty())?;
        }
        Ok(())
    }
}

/// Some machines let only root open the tunnel device. The helper is not root, so it sees a device of its own, in a mount
/// namespace of its own. What it can do with it is still bounded by its capabilities, which end at the box.
fn replace_tunnel_device() -> io::Result<()> {
    // SAFETY: between fork and exec nothing else shares this process's view of the file system.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    rustix::mount::mount("tmpfs", "/dev/net", "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, c"mode=0755,size=4k")?;
    let device = rustix::fs::makedev(10, 200);
    let mode = Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, TUNNEL_DEVICE, FileType::CharacterDevice, mode, device)?;
    // The mask of file modes may have taken something away.
    rustix::fs::chmod(TUNNEL_DEVICE, mode)?;
    Ok(())
}

fn close_on_exec_from(first: libc::c_uint) -> io::Result<()> {
    // SAFETY: marks descriptors and takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl HelperProcess {
    /// Takes down the identity of a process that is certain to exist, such as an unreaped child.
    fn of(pid: u32) -> Result<Self, String> {
        let start_time_ticks = start_time_ticks(pid).ok_or_else(|| "disappeared".to_owned())?;
        Ok(Self { pid, start_time_ticks })
    }

    /// Kills the process if it is still the same one, and returns when it is gone.
    pub(super) fn end(&self) -> Result<()> {
        let context = || format!("end the network helper {}", self.pid);
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        let process = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(source) => return Err(Error::io(context(), source)),
        };
        // Looked at after the process is held: from here on the number cannot change its meaning unnoticed.
        if start_time_ticks(self.pid) != Some(self.start_time_ticks) {
            return Ok(());
        }
        match rustix::process::pidfd_send_signal(&process, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(source) => return Err(Error::io(context(), source)),
        }
        let timeout = Timespec { tv_sec: END_DEADLINE_SEC, tv_nsec: 0 };
        let gone = rustix::event::poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout));
        if gone.map_err(|source| Error::io(context(), source))? == 0 {
            return Err(failure(format!("the network helper {} survived SIGKILL for {END_DEADLINE_SEC} s", self.pid)));
        }
        // Fails if it is not a child of this process; then its parent reaps it.
        let _ = rustix::process::waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[test]
    fn a_helper_is_ended_once_and_reaped() {
        let mut child = sleeper();
        let helper = HelperProcess::of(child.id()).unwrap();
        helper.end().unwrap();
        assert!(!Path::new(&format!("/proc/{}", child.id())).exists());
        helper.end().unwrap();
        assert!(child.wait().is_err(), "it was reaped");
    }

    #[test]
    fn a_stranger_with_the_same_number_is_spared() {
        let mut child = sleeper();
        let mut helper = HelperProcess::of(child.id()).unwrap();
        helper.start_time_ticks += 1;
        helper.end().unwrap();
        assert_eq!(child.try_wait().unwrap(), None, "it still runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
