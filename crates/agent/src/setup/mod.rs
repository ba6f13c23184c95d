//! Turns fresh namespaces into a box, in an order that never changes. The first failure ends everything.

mod attaching;
mod charged;
mod confine;
mod container;
mod mounts;
mod restore;
mod root;
mod storage;

use std::fmt::Display;
use std::os::fd::OwnedFd;

use box_wire::message::Verified;
use box_wire::plan::{Bounding, Lifeline, Memory, ModeGuard, Tracking};
use box_wire::{Plan, User};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, Gid, Uid};

use crate::snapshot::Storage;
use crate::sudo;
use crate::sys;

pub(crate) use attaching::attach;
pub(crate) use confine::{become_user, confine_workload, install, keep_only_kill};
pub(crate) use container::move_in;
#[cfg(test)]
pub(crate) use restore::fill;

/// Which step failed and how.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) step: String,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(step: impl Into<String>, error: impl Display) -> Self {
        Self { step: step.into(), message: error.to_string() }
    }
}

/// Turns an error into the failure of a named step.
pub(crate) trait Step<T> {
    fn step(self, name: &str) -> Result<T, Failure>;
}

impl<T, E: Display> Step<T> for Result<T, E> {
    fn step(self, name: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(name, error))
    }
}

/// A finished box, ready to serve.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) listener: OwnedFd,
    pub(crate) callers: Callers,
    pub(crate) workload: User,
    /// Capabilities of root's commands. Commands of other users have none.
    pub(crate) root: CapabilitySet,
    /// What keeps every process of the box from gaining rights.
    pub(crate) bounding: Bounding,
    pub(crate) seccomp: Vec<Vec<u8>>,
    pub(crate) mode_guard: ModeGuard,
    pub(crate) tracking: Tracker,
    pub(crate) memory: MemoryTold,
    /// The directory of journals. Only the agent has a path to it.
    pub(crate) journal: Option<OwnedFd>,
    /// The storage of a box that can be saved. Only the agent has a path to it.
    pub(crate) storage: Option<Storage>,
    pub(crate) lifeline: Lifeline,
    /// The connection that ends with the maker, if not the control socket.
    pub(crate) maker: Option<OwnedFd>,
    /// The listening socket of `sudo`; the server takes it.
    pub(crate) sudo: Option<OwnedFd>,
    pub(crate) verified: Verified,
}

/// The peers whose requests are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callers {
    /// Every process that can reach the socket: the host, or one that can do no more than a command of the box.
    Anybody,
    /// Root of the container alone: the socket has a name that commands can see, and the agent can do more than they.
    Root,
}

/// How process trees are found again, with the descriptors in hand.
#[derive(Debug)]
pub(crate) enum Tracker {
    Cgroup(OwnedFd),
    Ancestry,
}

impl Tracker {
    fn directory(&self) -> Option<&OwnedFd> {
        match self {
            Self::Cgroup(directory) => Some(directory),
            Self::Ancestry => None,
        }
    }
}

/// The limit on the commands' memory, and the source of out-of-memory kills and peaks.
#[derive(Debug)]
pub(crate) enum MemoryTold {
    PerExec,
    PerBox {
        entrance: OwnedFd,
        oom_control: OwnedFd,
        peak: OwnedFd,
    },
    /// Commands start inside it, so it only counts OOM kills.
    Counted(OwnedFd),
    Absent,
}

/// Descriptors that came with the plan, each taken at most once.
struct Descriptors(Vec<Option<OwnedFd>>);

impl Descriptors {
    fn take(&mut self, index: u32) -> Result<OwnedFd, Failure> {
        let slot = usize::try_from(index).ok().and_then(|index| self.0.get_mut(index));
        slot.and_then(Option::take).ok_or_else(|| Failure::new("descriptors", format!("no descriptor {index}")))
    }
}

/// Applies the plan. What it returns holds no capability that it does not need.
pub(crate) fn apply(plan: Plan, descriptors: Vec<OwnedFd>) -> Result<Prepared, Failure> {
    let mut descriptors = Descriptors(descriptors.into_iter().map(Some).collect());
    let listener = descriptors.take(plan.listener)?;
    let tracking = match plan.tracking {
        Tracking::Cgroup(index) => Tracker::Cgroup(descriptors.take(index)?),
        Tracking::Ancestry => Tracker::Ancestry,
    };
    let memory = match plan.memory {
        Memory::PerBox(index) => Some(descriptors.take(index)?),
        Memory::PerExec | Memory::Absent => None,
    };
    let journal = plan.journal.map(|index| descriptors.take(index)).transpose()?;
    for &entrance in &plan.entrances {
        rustix::io::write(descriptors.take(entrance)?, b"0").step("cgroup")?;
    }
    become_root().step("identity")?;
    if let Tracker::Cgroup(directory) = &tracking {
        share(directory, &TRACKING_FILES, plan.agent).step("tracking")?;
    }
    if let Some(directory) = &memory {
        share(directory, &MEMORY_FILES, plan.agent).step("memory")?;
    }
    if let Some(directory) = &journal {
        share(directory, &JOURNAL_FILES, plan.agent).step("journal")?;
    }
    rustix::process::setsid().step("session")?;
    // Not at clone time: the namespace's root is the cgroup in which one is when it is made, and the host moves us first.
    sys::unshare_cgroup().step("cgroup_namespace")?;
    let limits = charged::Limits { execs: tracking.directory(), memory: memory.as_ref() };
    let (read_only_mounts, storage) = root::build(&plan, &mut descriptors, limits)?;
    rustix::system::sethostname(plan.hostname.as_bytes()).step("hostname")?;
    sys::loopback_up().step("loopback")?;
    set_limits(&plan.rlimits).step("rlimits")?;
    let own = [tracking.directory(), memory.as_ref(), journal.as_ref()];
    confine::confine_agent(&plan, own.into_iter().flatten())?;
    let memory = match memory {
        Some(directory) => open_memory(&directory).step("memory")?,
        None if plan.memory == Memory::PerExec => MemoryTold::PerExec,
        None => MemoryTold::Absent,
    };
    let root = confine::root_set(&plan.root_capabilities);
    let sudo = plan.sudo.then(sudo::listen).transpose().step("sudo")?;
    let verified = Verified {
        landlock_abi: sys::landlock_abi(),
        workload_confined: confine::verify_inheritance(root, Bounding::Empty).step("verify")?,
        root_capabilities: plan.root_capabilities,
        read_only_mounts,
    };
    let Plan { workload, seccomp, mode_guard, lifeline, .. } = plan;
    let bounding = Bounding::Empty;
    let maker = None;
    let callers = Callers::Anybody;
    Ok(Prepared {
        listener,
        callers,
        workload,
        root,
        bounding,
        seccomp,
        mode_guard,
        tracking,
        memory,
        journal,
        storage: Some(storage),
        lifeline,
        maker,
        sudo,
        verified,
    })
}

/// Files that the agent needs to create cgroups of execs, up to the common parent, and their modes.
const TRACKING_FILES: [(&str, u32); 4] =
    [("../cgroup.procs", 0o664), ("cgroup.procs", 0o664), ("cgroup.subtree_control", 0o664), (".", 0o775)];

/// Files that the agent needs of the box's memory cgroup on v1, and their modes.
const MEMORY_FILES: [(&str, u32); 2] = [(ENTRANCE, 0o664), (PEAK, 0o664)];
const ENTRANCE: &str = "tasks";
const PEAK: &str = "memory.max_usage_in_bytes";

/// The directory in which the agent creates journals, and its mode.
const JOURNAL_FILES: [(&str, u32); 1] = [(".", 0o770)];

/// Opens the files of the memory cgroup. It does so as the agent, because the kernel checks the credentials of the
/// process that opened the file.
fn open_memory(directory: &OwnedFd) -> rustix::io::Result<MemoryTold> {
    let open = |name, access| rustix::fs::openat(directory, name, access | OFlags::CLOEXEC, Mode::empty());
    Ok(MemoryTold::PerBox {
        entrance: open(ENTRANCE, OFlags::WRONLY)?,
        oom_control: open("memory.oom_control", OFlags::RDONLY)?,
        peak: open(PEAK, OFlags::RDWR)?,
    })
}

/// Opens files of a directory to the agent's group, if they belong to root of this namespace: then the maker is an
/// ordinary user, who may not change owners. They stay the maker's, who has to remove the directory.
fn share(directory: &OwnedFd, files: &[(&str, u32)], agent: User) -> rustix::io::Result<()> {
    if agent == User::ROOT || rustix::fs::fstat(directory)?.st_uid != 0 {
        return Ok(());
    }
    for &(name, mode) in files {
        rustix::fs::chownat(directory, name, None, Some(Gid::from_raw(agent.gid)), AtFlags::SYMLINK_NOFOLLOW)?;
        rustix::fs::chmodat(directory, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
    }
    Ok(())
}

/// Becomes root of the user namespace, so that new files have an owner that the box maps.
fn become_root() -> rustix::io::Result<()> {
    let (user, group) = (Uid::from_raw(0), Gid::from_raw(0));
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    Ok(())
}

fn set_limits(limits: &[(u32, u64, u64)]) -> rustix::io::Result<()> {
    for &(number, soft, hard) in limits {
        let Some(resource) = resource(number) else { continue };
        // Raising a hard limit takes a capability that the agent lacks; a limit that is already lower stays.
        let current = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let maximum = Some(hard.min(current));
        rustix::process::setrlimit(resource, Rlimit { current: Some(soft.min(current)), maximum })?;
    }
    Ok(())
}

fn resource(number: u32) -> Option<Resource> {
    Some(match number {
        libc::RLIMIT_CORE => Resource::Core,
        libc::RLIMIT_NOFILE => Resource::Nofile,
        libc::RLIMIT_NPROC => Resource::Nproc,
        libc::RLIMIT_MEMLOCK => Resource::Memlock,
        libc::RLIMIT_SIGPENDING => Resource::Sigpending,
        libc::RLIMIT_MSGQUEUE => Resource::Msgqueue,
        libc::RLIMIT_NICE => Resource::Nice,
        libc::RLIMIT_RTPRIO => Resource::Rtprio,
        libc::RLIMIT_RTTIME => Resource::Rttime,
        libc::RLIMIT_STACK => Resource::Stack,
        _ => return None,
    })
}
