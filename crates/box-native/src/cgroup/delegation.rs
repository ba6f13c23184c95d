//! Handing a part of v2 to the agent, which has no privilege on the host but must make one cgroup per exec.

use std::os::fd::AsFd;

use box_core::{Error, Result};
use rustix::fs::{AtFlags, Gid, Uid};
use rustix::io::Errno;

/// Whether the agent can make a cgroup per exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delegation {
    /// It owns what it needs.
    Done,
    /// We are not root and may not give files to the agent's id.
    Refused,
}

/// Gives `agent` what it needs to make directories in `load` and to start processes in them. The kernel asks for write
/// permission on `cgroup.procs` of the target and of the closest common parent of where the process is and where it goes.
/// Limits stay ours.
pub(super) fn delegate(
    directory: impl AsFd,
    agent_leaf: impl AsFd,
    load: impl AsFd,
    agent: (u32, u32),
) -> Result<Delegation> {
    if rustix::process::geteuid().as_raw() == agent.0 && !rustix::process::geteuid().is_root() {
        return Ok(Delegation::Done);
    }
    let give = |directory: &dyn AsFd, name: &str, flags: AtFlags| {
        let (uid, gid) = (Uid::from_raw(agent.0), Gid::from_raw(agent.1));
        rustix::fs::chownat(directory.as_fd(), name, Some(uid), Some(gid), flags)
    };
    let all = || -> rustix::io::Result<()> {
        give(&directory, "cgroup.procs", AtFlags::SYMLINK_NOFOLLOW)?;
        give(&agent_leaf, "cgroup.procs", AtFlags::SYMLINK_NOFOLLOW)?;
        give(&load, "cgroup.procs", AtFlags::SYMLINK_NOFOLLOW)?;
        give(&load, "cgroup.subtree_control", AtFlags::SYMLINK_NOFOLLOW)?;
        give(&load, "", AtFlags::EMPTY_PATH)
    };
    match all() {
        Ok(()) => Ok(Delegation::Done),
        Err(Errno::PERM | Errno::ACCESS) if !rustix::process::geteuid().is_root() => Ok(Delegation::Refused),
        Err(errno) => Err(Error::io("handing the box's cgroup to its agent", errno)),
    }
}
