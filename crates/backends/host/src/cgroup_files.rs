//! Reads the cgroups of a process, also those that an engine made: where they are, usage and limits.
//!
//! Nothing here changes a cgroup. Numbers come from the kernel's own files, so that a guarantee rests on what is
//! enforced and not on what an engine was asked for.

mod mounted;

use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use box_core::Stats;

pub use mounted::{Hierarchy, parse_hierarchies};

/// Most that is read of one file.
const READ_BYTES_MAX: u64 = 256 << 10;

/// From here on a v1 limit means none: the kernel writes its largest number of pages.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// Which kind of hierarchy a directory is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One of several, with its own controllers.
    V1,
    /// The one that can carry all.
    V2,
}

/// The directory of a process in the hierarchy that carries a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Where it is.
    pub path: PathBuf,
    /// In what kind of hierarchy.
    pub version: Version,
    /// Where that is mounted: the last directory on the way up.
    pub top: PathBuf,
}

/// The directories of one process, controller by controller. Nothing where no hierarchy carries it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directories {
    /// Memory and swap.
    pub memory: Option<Directory>,
    /// Number of processes.
    pub pids: Option<Directory>,
    /// Processor time, rationed.
    pub cpu: Option<Directory>,
    /// Processor time, counted.
    pub cpuacct: Option<Directory>,
    /// Stopping all processes where they are.
    pub freezer: Option<Directory>,
}

/// What the kernel holds a process to: the narrowest of its own cgroup and all above it. Nothing means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Swap on top of it.
    pub swap_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Processor time in one window.
    pub cpu: Option<CpuQuota>,
}

/// Processor time that may be used in one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuQuota {
    /// What may be used.
    pub quota_us: u64,
    /// How long the window is.
    pub period_us: u64,
}

/// The directories of a process. The caller makes sure that the number still means the same process.
pub fn directories(pid: u32) -> Directories {
    let hierarchies = parse_hierarchies(&std::fs::read("/proc/self/mountinfo").unwrap_or_default());
    let membership = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    find(&hierarchies, &membership)
}

/// A file in which the kernel counts the processes of the same cgroup that were killed because memory ran out.
pub fn oom_counter(pid: u32) -> Option<OwnedFd> {
    let memory = directories(pid).memory?;
    let name = match memory.version {
        Version::V1 => "memory.oom_control",
        Version::V2 => "memory.events",
    };
    std::fs::File::open(memory.path.join(name)).ok().map(Into::into)
}

/// The current usage of a process's cgroup, with all of its processes. Empty for the root cgroup, which is the whole
/// machine.
pub fn stats(pid: u32) -> Stats {
    directories(pid).stats()
}

/// What the kernel holds a process to.
pub fn limits(pid: u32) -> Limits {
    directories(pid).limits()
}

impl Directories {
    /// What these cgroups consume now.
    pub fn stats(&self) -> Stats {
        let own = |directory: &Option<Directory>| directory.clone().filter(|one| one.path != one.top);
        let read = |directory: &Option<Directory>, v1: &str, v2: &str| own(directory)?.number(v1, v2);
        let cpu_us = own(&self.cpuacct).and_then(|counted| match counted.version {
            Version::V1 => counted.number("cpuacct.usage", "").map(|nanoseconds| nanoseconds / 1000),
            Version::V2 => keyed(&read_file(&counted.path.join("cpu.stat"))?, "usage_usec"),
        });
        Stats {
            cpu_us,
            memory_bytes: read(&self.memory, "memory.usage_in_bytes", "memory.current"),
            pids: read(&self.pids, "pids.current", "pids.current"),
        }
    }

    /// What these cgroups are held to.
    pub fn limits(&self) -> Limits {
        let narrowest = |directory: &Option<Directory>, one: fn(&Directory) -> Option<u64>| {
            directory.iter().flat_map(Directory::upwards).filter_map(|level| one(&level)).min()
        };
        let ration = |cpu: &CpuQuota| u128::from(cpu.quota_us) * 1_000_000 / u128::from(cpu.period_us.max(1));
        Limits {
            memory_bytes: narrowest(&self.memory, Directory::memory_bytes),
            swap_bytes: narrowest(&self.memory, Directory::swap_bytes),
            pids: narrowest(&self.pids, |one| one.number("pids.max", "pids.max")),
            cpu: self.cpu.iter().flat_map(Directory::upwards).filter_map(|one| one.quota()).min_by_key(ration),
        }
    }
}

impl Directory {
    /// This one and all above it, up to where the hierarchy is mounted.
    fn upwards(&self) -> Vec<Self> {
        let inside = self.path.ancestors().take_while(|path| path.starts_with(&self.top));
        inside.map(|path| Self { path: path.to_owned(), ..self.clone() }).collect()
    }

    /// A file that holds one number; `max`, -1 and whatever else is not one is nothing.
    fn number(&self, v1: &str, v2: &str) -> Option<u64> {
        let name = if self.version == Version::V1 { v1 } else { v2 };
        read_file(&self.path.join(name))?.trim().parse().ok()
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.number("memory.limit_in_bytes", "memory.max").filter(|&bytes| bytes < UNLIMITED_BYTES)
    }

    /// Swap that the processes may use on top of their memory, where that is limited.
    fn swap_bytes(&self) -> Option<u64> {
        let memory = self.memory_bytes()?;
        match self.version {
            // The file holds memory plus swap; without it, a cgroup that never swaps has no swap limit.
            Version::V1 => match self.number("memory.memsw.limit_in_bytes", "") {
                Some(both) => Some(both.saturating_sub(memory)).filter(|_| both < UNLIMITED_BYTES),
                None => self.number("memory.swappiness", "").filter(|&swappiness| swappiness == 0),
            },
            // A kernel without the file does not know swap.
            Version::V2 => match read_file(&self.path.join("memory.swap.max")) {
                Some(text) => text.trim().parse().ok(),
                None => Some(0),
            },
        }
    }

    fn quota(&self) -> Option<CpuQuota> {
        match self.version {
            Version::V1 => {
                let (quota_us, period_us) =
                    (self.number("cpu.cfs_quota_us", "")?, self.number("cpu.cfs_period_us", "")?);
                Some(CpuQuota { quota_us, period_us })
            }
            Version::V2 => {
                let text = read_file(&self.path.join("cpu.max"))?;
                let (quota, period) = text.trim().split_once(' ')?;
                Some(CpuQuota { quota_us: quota.parse().ok()?, period_us: period.parse().ok()? })
            }
        }
    }
}

/// Joins what is mounted with what `/proc/<pid>/cgroup` says.
fn find(hierarchies: &[Hierarchy], membership: &str) -> Directories {
    let of = |controller: &str| {
        let v1 = hierarchies.iter().filter(|one| one.carries(controller));
        let v2 = hierarchies.iter().filter(|one| one.v1_controllers.is_none());
        v1.chain(v2).find_map(|one| directory(one, controller, membership))
    };
    Directories {
        memory: of("memory"),
        pids: of("pids"),
        cpu: of("cpu"),
        cpuacct: of("cpuacct"),
        freezer: of("freezer"),
    }
}

fn directory(hierarchy: &Hierarchy, controller: &str, membership: &str) -> Option<Directory> {
    let version = if hierarchy.v1_controllers.is_some() { Version::V1 } else { Version::V2 };
    let line = membership.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let named = match version {
            Version::V1 => controllers.split(',').any(|one| one == controller),
            Version::V2 => controllers.is_empty(),
        };
        named.then_some(path)
    })?;
    let path = hierarchy.directory(line)?;
    let directory = Directory { path, version, top: hierarchy.point.clone() };
    (version == Version::V1 || directory.has_v2(controller)).then_some(directory)
}

impl Directory {
    /// Whether this part of v2 knows a controller. Time is counted and processes are stopped without one.
    fn has_v2(&self, controller: &str) -> bool {
        let given = || read_file(&self.top.join("cgroup.controllers")).unwrap_or_default();
        matches!(controller, "cpuacct" | "freezer") || given().split_ascii_whitespace().any(|one| one == controller)
    }
}

fn read_file(path: &Path) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(READ_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// One value of a file of `key value` lines.
fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
