//! Handing a part of v2 to the agent, which has no privilege on the host but must make one cgroup per exec.

use std::os::fd::AsFd;

use box_core::{Error, Result};
use rustix::fs::{AtFlags, Gid, Uid};
use rustix::io::Errno;

/// Gives `agent` what it needs to make directories in `load` and to start processes in them. The kernel asks for write
/// permission on `cgroup.procs` of the target and of the closest common parent of where the process is and where it goes.
/// Limits stay the server's. An ordinary user may not give files away: the agent, which is root of a user namespace to
/// which that user belongs, then takes them itself.
pub(super) fn delegate(directory: impl AsFd, agent_leaf: impl AsFd, load: impl AsFd, agent: (u32, u32)) -> Result<()> {
    if rustix::process::geteuid().as_raw() == agent.0 && !rustix::process::geteuid().is_root() {
        return Ok(());
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
        Ok(()) => Ok(()),
        Err(Errno::PERM | Errno::ACCESS) if !rustix::process::geteuid().is_root() => Ok(()),
        Err(errno) => Err(Error::io("handing the box's cgroup to its agent", errno)),
    }
}
