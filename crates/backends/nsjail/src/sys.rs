//! The system calls that no safe wrapper offers: leaving our mounts behind, and what a child does before it becomes nsjail.
#![expect(unsafe_code, reason = "unshare, and code between fork and exec, have no safe wrapper")]

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::fs::{Mode, OFlags};
use rustix::thread::UnshareFlags;

/// How readily the kernel ends a box before anything of the host when memory runs out.
const OOM_SCORE: &[u8] = b"500";

/// Gives this thread mounts of its own, copied from ours. It must not do anything else for the program afterwards.
pub(crate) fn leave_mounts() -> io::Result<()> {
    // SAFETY: the flag does not unshare the table of descriptors, which is the one thing that could surprise owners.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?)
}

/// Starts a program in a session of its own, and in the cgroups whose entrances are given: whoever writes `0` to one is in it.
pub(crate) fn spawn(command: &mut Command, entrances: Vec<OwnedFd>) -> io::Result<Child> {
    let prepare = move || -> io::Result<()> {
        rustix::process::setsid()?;
        for entrance in &entrances {
            rustix::io::write(entrance, b"0")?;
        }
        // Best effort, as everywhere: a machine may forbid it.
        if let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        {
            let _ = rustix::io::write(file, OOM_SCORE);
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls on open descriptors and constant paths, and nothing else: it takes
    // no lock and asks for no memory.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}
