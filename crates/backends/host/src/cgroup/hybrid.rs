//! Limits where each controller has a hierarchy of its own (v1), while kill, freeze and clone-into come from v2.
//!
//! The agent itself is a member of these directories: what it starts inherits the membership, so no exec pays for a move. All
//! but the limit of memory, where the kernel would pick the agent as readily as the command that filled it: that is one directory
//! further down, and each exec enters it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use box_core::{Error, Result, Stats};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};

use super::top::Top;
use super::{Enforced, LOAD, Limits, PERIOD_US, file, quota_us};

/// The agent counts as a process of its box here.
const AGENT_PROCESSES: u64 = 1;
/// Largest number that the kernel takes for `pids.max`.
const PIDS_MAX: u64 = 1 << 22;

/// One of the v1 hierarchies that we use. Several controllers can share one.
#[derive(Debug, Clone)]
pub(super) struct Hierarchy {
    pub(super) top: Arc<Top>,
    pub(super) memory: bool,
    pub(super) pids: bool,
    pub(super) cpu: bool,
}

/// The directory of one box in one hierarchy.
#[derive(Debug)]
pub(super) struct Membership {
    directory: OwnedFd,
    /// The file of the memory limit, in the memory hierarchy. Missing if its maker died halfway.
    load: Option<OwnedFd>,
    hierarchy: Hierarchy,
}

impl Hierarchy {
    /// Makes the directory of a box. Limits are a step of their own, so that a failure leaves something to remove.
    pub(super) fn make(&self, name: &str) -> Result<Membership> {
        Ok(Membership { directory: self.top.make(name)?, load: None, hierarchy: self.clone() })
    }

    /// Opens the directory of a box if it exists.
    pub(super) fn find(&self, name: &str) -> Result<Option<Membership>> {
        let found = self.top.find(name)?;
        Ok(found.map(|directory| {
            let load = file::open_directory(&directory, LOAD).ok().filter(|_| self.memory);
            Membership { directory, load, hierarchy: self.clone() }
        }))
    }
}

impl Membership {
    /// Sets the limits of the controllers that this hierarchy carries.
    pub(super) fn apply(&mut self, limits: &Limits) -> Result<()> {
        if self.hierarchy.memory {
            self.limit_memory(limits.memory_bytes_max)?;
        }
        let directory = self.directory.as_fd();
        if self.hierarchy.pids {
            file::set(directory, "pids.max", &pids_max(limits).to_string())?;
        }
        if self.hierarchy.cpu {
            // The period is the kernel's default; `verify` reads it back.
            file::set(directory, "cpu.cfs_quota_us", &quota_us(limits.cpus).to_string())?;
        }
        Ok(())
    }

    fn limit_memory(&mut self, bytes_max: u64) -> Result<()> {
        let made = rustix::fs::mkdirat(&self.directory, LOAD, Mode::from_raw_mode(0o755))
            .and_then(|()| file::open_directory(&self.directory, LOAD))
            .map_err(|errno| Error::io("making the memory cgroup of a box", errno))?;
        let load = self.load.insert(made);
        let bytes = bytes_max.to_string();
        file::set(&*load, "memory.limit_in_bytes", &bytes)?;
        // Buffers of sockets are counted only where they have a limit. Not every kernel has one.
        let _ = file::write(&*load, "memory.kmem.tcp.limit_in_bytes", &bytes);
        // Memory and swap together at the same figure: no swap on top. Kernels that do not count swap lack the file.
        match file::write(&*load, "memory.memsw.limit_in_bytes", &bytes) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::NOENT) => file::set(&*load, "memory.swappiness", "0"),
            Err(errno) => Err(Error::io("setting the cgroup's limit of memory and swap", errno)),
        }
    }

    /// Moves a process here.
    pub(super) fn admit(&self, pid: u32) -> Result<()> {
        file::set(&self.directory, "cgroup.procs", &pid.to_string())
    }

    /// The file through which a thread moves itself here, by writing `0`.
    pub(super) fn entrance(&self) -> Result<OwnedFd> {
        file::open(&self.directory, "tasks", OFlags::WRONLY)
            .map_err(|errno| Error::io("opening the cgroup's tasks file", errno))
    }

    /// Gives the agent what it needs to let commands enter and to read what became of their memory. An ordinary user may not
    /// give files away; then the agent takes them.
    pub(super) fn delegate(&self, agent: (u32, u32)) -> Result<()> {
        let Some(load) = self.load.as_ref().filter(|_| rustix::process::geteuid().is_root()) else { return Ok(()) };
        for name in ["tasks", "memory.max_usage_in_bytes"] {
            let (uid, gid) = (Uid::from_raw(agent.0), Gid::from_raw(agent.1));
            rustix::fs::chownat(load, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| Error::io("handing the box's memory cgroup to its agent", errno))?;
        }
        Ok(())
    }

    /// Reads back what the kernel holds the box to, and whether the agent is held at all where it should be.
    pub(super) fn verify(&self, agent_pid: u32, limits: &Limits, enforced: &mut Enforced) {
        let member = file::holds(&self.directory, agent_pid);
        let mut told = Vec::new();
        let mut number = |name: &str| {
            let directory = self.load.as_ref().filter(|_| name.starts_with("memory.")).unwrap_or(&self.directory);
            let value = file::number(directory, name);
            told.push(format!("{name} {}", value.map_or_else(|| "none".to_owned(), |value| value.to_string())));
            value
        };
        if self.hierarchy.memory {
            let memory = number("memory.limit_in_bytes").is_some_and(|bytes| bytes <= limits.memory_bytes_max);
            let both = number("memory.memsw.limit_in_bytes").map(|bytes| bytes <= limits.memory_bytes_max);
            enforced.memory = member && memory && both.unwrap_or_else(|| number("memory.swappiness") == Some(0));
        }
        if self.hierarchy.pids {
            enforced.pids = member && number("pids.max").is_some_and(|count| count <= pids_max(limits));
        }
        if self.hierarchy.cpu {
            let quota = number("cpu.cfs_quota_us");
            enforced.cpu =
                member && quota == Some(quota_us(limits.cpus)) && number("cpu.cfs_period_us") == Some(PERIOD_US);
        }
        let membership = if member { "" } else { " (the agent is not a member)" };
        enforced.tell(&format!("cgroup v1: {}{membership}", told.join(", ")));
    }

    /// Where commands are held to their memory, where this is the hierarchy of memory.
    pub(super) fn memory(&self) -> Option<&OwnedFd> {
        self.load.as_ref()
    }

    /// Adds what this hierarchy knows of the box's consumption.
    pub(super) fn stats(&self, stats: &mut Stats) {
        if let Some(load) = &self.load {
            stats.memory_bytes = file::number(load, "memory.usage_in_bytes");
        }
        if self.hierarchy.pids {
            let count = file::number(&self.directory, "pids.current");
            stats.pids = count.map(|count| count.saturating_sub(AGENT_PROCESSES));
        }
    }

    pub(super) fn remove(&self, name: &str, deadline: Instant) -> Result<()> {
        let leaves: &[&str] = if self.hierarchy.memory { &[LOAD] } else { &[] };
        self.hierarchy.top.remove(name, leaves, deadline)
    }
}

fn pids_max(limits: &Limits) -> u64 {
    limits.pids_max.saturating_add(AGENT_PROCESSES).min(PIDS_MAX)
}
