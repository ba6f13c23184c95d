//! Keeps some of a container's memory for its agent.
//!
//! An engine holds agent and commands to one limit together. A workspace in memory that is full would leave the agent none, and the
//! kernel would end it with the first thing that it does. So commands get a cgroup of their own inside the container's, a little
//! narrower; the engine removes it with the container. This needs root and a hierarchy of version 1: in version 2 no cgroup that has
//! members can limit those below it.

use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::path::Path;

use box_host::cgroup_files::{self, Version};
use rustix::fs::{Mode, OFlags};

/// Memory for the agent and its state of each command.
pub(crate) const AGENT_BYTES: u64 = 8 << 20;

/// The cgroup of the commands, inside of the container's.
const NAME: &str = "commands";

/// Files that the agent must be able to write: to send a command there, and to measure how much it took.
const WRITTEN: [&str; 2] = ["tasks", "memory.max_usage_in_bytes"];

/// Makes the cgroup for the commands of the container whose first process this is, and gives it to them. Nothing where that cannot be
/// done: then they share the container's.
pub(crate) fn apart(pid: u32, memory_bytes_max: u64, (uid, gid): (u32, u32)) -> Option<OwnedFd> {
    let container = cgroup_files::directories(pid).memory?;
    if container.version != Version::V1 || container.path == container.top || !rustix::process::geteuid().is_root() {
        return None;
    }
    let directory = container.path.join(NAME);
    make(&directory, memory_bytes_max.saturating_sub(AGENT_BYTES), (uid, gid)).ok()
}

fn make(directory: &Path, bytes_max: u64, (uid, gid): (u32, u32)) -> std::io::Result<OwnedFd> {
    std::fs::create_dir(directory)?;
    std::fs::write(directory.join("memory.limit_in_bytes"), bytes_max.to_string())?;
    // Where swap is counted at all, there is none on top.
    let _ = std::fs::write(directory.join("memory.memsw.limit_in_bytes"), bytes_max.to_string());
    // Buffers of sockets are counted only where they have a limit.
    let _ = std::fs::write(directory.join("memory.kmem.tcp.limit_in_bytes"), bytes_max.to_string());
    for name in WRITTEN {
        chown(directory.join(name), Some(uid), Some(gid))?;
    }
    Ok(rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}
