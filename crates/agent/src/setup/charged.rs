//! Does work of set-up in a child that is held to the box's limits: what it stores in memory is then counted as the box's, and not as
//! the agent's, which has no limit.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::pipe::PipeFlags;

use super::ENTRANCE;
use crate::sys::{self, Block};

/// The cgroup of the child, among those of execs, of which there is none yet.
const NAME: &str = "seed";

/// The most that a child says.
const REASON_BYTES_MAX: u64 = 4096;

/// The cgroups of the box's limits, if any.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits<'a> {
    /// The parent of the cgroups of execs.
    pub(super) execs: Option<&'a OwnedFd>,
    /// The v1 cgroup of all execs' memory.
    pub(super) memory: Option<&'a OwnedFd>,
}

impl Limits<'_> {
    /// Does the work in a child, and returns the reason if it fails.
    pub(super) fn run(self, work: impl FnOnce() -> std::result::Result<(), String>) -> std::result::Result<(), String> {
        let told = |error: Errno| error.to_string();
        let (reason, said) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(told)?;
        let cgroup = self.execs.map(make_cgroup).transpose().map_err(told)?;
        let forked = sys::fork(cgroup.as_ref().map(AsFd::as_fd)).map_err(|error| error.to_string())?;
        if forked.is_none() {
            drop(reason);
            let done = self.enter().map_err(told).and_then(|()| work());
            sys::exit_now(match done {
                Ok(()) => 0,
                Err(reason) => File::from(said).write_all(reason.as_bytes()).map_or(2, |()| 1),
            })
        }
        drop(said);
        let ended = hear(reason);
        if let (Some(execs), Some(cgroup)) = (self.execs, cgroup) {
            drop(cgroup);
            // What is left of it goes with the box.
            let _ = rustix::fs::unlinkat(execs, NAME, AtFlags::REMOVEDIR);
        }
        ended
    }

    /// Enters the cgroup of the execs' memory, where it is one of its own.
    fn enter(self) -> Result<()> {
        let Some(directory) = self.memory else { return Ok(()) };
        let entrance = rustix::fs::openat(directory, ENTRANCE, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(entrance, b"0").map(drop)
    }
}

fn make_cgroup(execs: &OwnedFd) -> Result<OwnedFd> {
    rustix::fs::mkdirat(execs, NAME, Mode::RWXU)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(execs, NAME, flags, Mode::empty())
}

/// Waits for the one child that there is.
fn hear(reason: OwnedFd) -> std::result::Result<(), String> {
    let mut text = Vec::new();
    let _ = File::from(reason).take(REASON_BYTES_MAX).read_to_end(&mut text);
    let reaped = sys::reap(Block::Yes).map_err(|error| error.to_string())?;
    let status = reaped.map_or(-1, |child| child.status);
    if status == 0 {
        return Ok(());
    }
    if libc::WIFSIGNALED(status) {
        return Err(
            "there is not enough memory for it; give the box more with memory_mb, or keep it on disk".to_owned()
        );
    }
    Err(String::from_utf8_lossy(&text).into_owned())
}
