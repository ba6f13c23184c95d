//! What a container really enforces, derived from the kernel, the agent and the engine.

use box_core::{BoxSpec, Dimension, Guarantees, Level, MountMode, Persistence};
use box_host::standard;
use box_wire::User;
use box_wire::message::Verified;

use crate::cgroup::Enforced;
use crate::container::MemoryMount;
use crate::facts::Ids;
use crate::network::{NetworkGuarantees, Separation};
use crate::tmpfs::Size;

/// Everything that was found to be true of a finished box.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    /// The limits of its cgroups.
    pub(crate) enforced: Enforced,
    /// The source of these limits.
    pub(crate) source: Source,
    /// Facts that the agent verified from inside.
    pub(crate) verified: &'a Verified,
    /// Whether ids of the container are the host's.
    pub(crate) ids: Ids,
    /// The workload's user, with ids as the container sees them.
    pub(crate) workload: User,
    /// Whom it can reach.
    pub(crate) network: NetworkGuarantees,
    /// Its places in memory, and their actual sizes.
    pub(crate) places: Vec<(MemoryMount, Option<Size>)>,
    /// Whether the engine bounds what is written to the root.
    pub(crate) root_quota: bool,
    /// The barrier between its system calls and the host.
    pub(crate) wall: Wall,
}

/// The barrier between the system calls of a container and the host, besides the filter of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wall {
    /// Nothing else.
    None,
    /// A filter for the container as a whole.
    Filter,
    /// A kernel of its own; no filter is needed then, and there is none.
    OwnKernel,
}

impl Wall {
    /// The wall that a profile is.
    pub(crate) fn of(profile: Option<&str>) -> Self {
        if profile.is_some() { Self::Filter } else { Self::None }
    }
}

/// The source of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// In the kernel's own files.
    Kernel,
    /// In what the engine says that it has set.
    Engine,
}

/// Said of limits that are not there.
const NO_LIMIT: &str = "the engine did not set it: an ordinary user needs cgroup v2 with delegation";

/// The guarantees of a box.
pub(crate) fn compute(spec: &BoxSpec, findings: &Findings<'_>) -> Guarantees {
    let mut guarantees = Guarantees::default();
    set_resources(&mut guarantees, spec, findings);
    set_disk(&mut guarantees, spec, findings);
    set_network(&mut guarantees, findings.network);
    let landlock = match findings.verified.landlock_abi {
        0 => "no Landlock in this kernel".to_owned(),
        abi => format!("Landlock ABI {abi}"),
    };
    let root = if spec.read_only_rootfs { "the image, read-only" } else { "the image, changes kept by the engine" };
    let rootfs = format!("{root}, {} read-only mounts verified, {landlock}", findings.verified.read_only_mounts);
    guarantees.set(Dimension::Rootfs, Level::Hard, rootfs);
    guarantees.soften(Dimension::Rootfs, &standard::sockets_not_held(spec, findings.verified.landlock_abi));
    let confined = if findings.verified.workload_confined { Level::Hard } else { Level::Absent };
    let wall = match findings.wall {
        Wall::None => "an allow-list of system calls",
        Wall::Filter => "an allow-list of system calls, in a container with a filter of its own",
        Wall::OwnKernel => "a kernel of its own, which answers every system call",
    };
    guarantees.set(Dimension::Syscalls, confined, format!("{wall}; no capability in any set, no_new_privs"));
    set_identity(&mut guarantees, spec, findings);
    let why =
        "descendants are found by a walk, then the whole container is killed: cgroups cannot be created inside of one";
    guarantees.set(Dimension::Kill, Level::Soft, why);
    guarantees
}

fn set_network(guarantees: &mut Guarantees, NetworkGuarantees { separation, host_is_shut }: NetworkGuarantees) {
    let (level, way) = match separation {
        Separation::Empty => (Level::Hard, "an empty network namespace"),
        Separation::Own => (
            Level::Soft,
            "a network namespace with a way out of its own; an address that the host gets later is closed a moment later, and only \
             while Strongbox runs",
        ),
        Separation::Isolated => (Level::Hard, "a port of a bridge that the kernel isolates from those of other boxes"),
        Separation::Divided => (
            Level::Soft,
            "a bridge that carries nothing between boxes, by rules of the engine that cannot be seen from here",
        ),
        Separation::Shared => (Level::Soft, "the operator's network, on which containers can reach each other"),
    };
    if host_is_shut {
        guarantees.set(Dimension::Network, level, way);
    } else {
        let why = format!("{way}; what listens on addresses of the host may answer");
        guarantees.set(Dimension::Network, level.min(Level::Soft), why);
    }
}

fn set_resources(guarantees: &mut Guarantees, spec: &BoxSpec, findings: &Findings<'_>) {
    let Enforced { memory, swap, cpu, pids } = findings.enforced;
    let by = match findings.source {
        Source::Kernel => "by cgroup",
        Source::Engine => "by cgroup, as the engine says",
    };
    let held = |held: bool, what: String| {
        if held { (Level::Hard, format!("{what}, {by}")) } else { (Level::Absent, NO_LIMIT.to_owned()) }
    };
    let (level, why) = held(cpu, format!("{} processors", spec.cpus));
    guarantees.set(Dimension::Cpu, level, why);
    let (level, why) = match (memory, swap) {
        (true, false) => (Level::Soft, format!("{} MiB, {by}, but this kernel does not count swap", spec.memory_mb)),
        (memory, _) => held(memory, format!("{} MiB without swap", spec.memory_mb)),
    };
    guarantees.set(Dimension::Memory, level, why);
    let (level, why) = held(pids, format!("{} processes", spec.pids_limit));
    guarantees.set(Dimension::Pids, level, why);
}

fn set_disk(guarantees: &mut Guarantees, spec: &BoxSpec, findings: &Findings<'_>) {
    let open = unbounded(spec, findings);
    let mib = |bytes: u64| bytes >> 20;
    let sizes = |text: &dyn Fn(&MemoryMount) -> String| {
        findings.places.iter().map(|(place, _)| text(place)).collect::<Vec<_>>()
    };
    let bytes = sizes(&|place| format!("{} MiB at {}", mib(place.bytes_max), place.path)).join(", ");
    let inodes = sizes(&|place| format!("{} files at {}", place.inodes_max, place.path)).join(", ");
    let holds = |fits: &dyn Fn(&MemoryMount, &Size) -> bool| {
        findings.places.iter().all(|(place, size)| size.as_ref().is_some_and(|size| fits(place, size)))
    };
    let has_bytes = holds(&|place, size| size.bytes_max <= place.bytes_max);
    let has_inodes = holds(&|place, size| size.inodes_max <= place.inodes_max);
    for (dimension, held, text) in
        [(Dimension::DiskBytes, has_bytes, bytes), (Dimension::DiskInodes, has_inodes, inodes)]
    {
        match (held, open.is_empty()) {
            (true, true) => guarantees.set(dimension, Level::Hard, format!("tmpfs of {text}")),
            (true, false) => guarantees.set(dimension, Level::Absent, format!("tmpfs of {text}; {}", open.join("; "))),
            (false, _) => guarantees.set(dimension, Level::Absent, "the engine sets no such limit for a tmpfs"),
        }
    }
}

/// Places where a box can store without a limit.
fn unbounded(spec: &BoxSpec, findings: &Findings<'_>) -> Vec<String> {
    let mut open = Vec::new();
    if !spec.read_only_rootfs && !findings.root_quota {
        open.push(
            "changes to the root have no limit: the engine's storage has no quotas, use read_only_rootfs".to_owned(),
        );
    }
    if spec.persistence == Persistence::Disk {
        open.push("/workspace is a directory of the host without a limit of its own".to_owned());
    }
    let writable = spec.mounts.iter().filter(|mount| mount.mode == MountMode::Rw);
    open.extend(writable.map(|mount| format!("the host's directory at {} has no limit of its own", mount.target)));
    open
}

fn set_identity(guarantees: &mut Guarantees, spec: &BoxSpec, findings: &Findings<'_>) {
    let User { uid, .. } = findings.workload;
    let own = rustix::process::geteuid();
    let (level, why) = match findings.ids {
        Ids::Mapped => (Level::Soft, "root of the box is an ordinary user of the host, without rights".to_owned()),
        Ids::Same if uid == box_host::WORKSPACE_OWNER => {
            (Level::Hard, "an id that no account of the host has, without rights; all boxes share it, and with it what the kernel gives out by user".to_owned())
        }
        Ids::Same if !own.is_root() && uid == own.as_raw() => {
            (Level::Soft, "the user who runs strongbox, without rights; run it as root for an id of its own".to_owned())
        }
        Ids::Same => {
            (Level::Soft, format!("user {uid} of the host, without rights; ask for no user to get one of its own"))
        }
    };
    let root = if spec.root_capabilities { standard::NO_ROOT_CAPABILITIES } else { "" };
    guarantees.set(Dimension::Identity, level, format!("{why}{root}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::places;
    use Level::{Absent, Hard, Soft};
    use box_core::Profile;

    fn findings<'a>(verified: &'a Verified, spec: &BoxSpec) -> Findings<'a> {
        let workload = User { uid: box_host::WORKSPACE_OWNER, gid: box_host::WORKSPACE_OWNER };
        let sized = |place: MemoryMount| {
            let size = Size { bytes_max: place.bytes_max, inodes_max: place.inodes_max };
            (place, Some(size))
        };
        Findings {
            enforced: Enforced { memory: true, swap: true, cpu: true, pids: true },
            source: Source::Kernel,
            verified,
            ids: Ids::Same,
            workload,
            network: NetworkGuarantees { separation: Separation::Empty, host_is_shut: true },
            places: places(spec, workload, &[], 0).into_iter().map(sized).collect(),
            root_quota: false,
            wall: Wall::Filter,
        }
    }

    static VERIFIED: Verified =
        Verified { landlock_abi: 7, workload_confined: true, root_capabilities: Vec::new(), read_only_mounts: 1 };

    #[test]
    fn a_hardened_container_holds_everything_but_the_kill() {
        let spec = Profile::default().spec();
        let guarantees = compute(&spec, &findings(&VERIFIED, &spec));
        for dimension in Dimension::ALL {
            let expected = if dimension == Dimension::Kill { Level::Soft } else { Level::Hard };
            assert_eq!(guarantees.level(dimension), expected, "{dimension}");
        }
        insta::assert_debug_snapshot!(guarantees);
    }

    #[test]
    fn what_was_not_found_is_not_promised() {
        let mut spec = Profile::default().spec();
        let mut found = findings(&VERIFIED, &spec);
        found.enforced = Enforced { memory: true, ..Enforced::default() };
        found.network = NetworkGuarantees { separation: Separation::Shared, host_is_shut: false };
        found.ids = Ids::Mapped;
        found.places.iter_mut().for_each(|(_, size)| *size = size.map(|size| Size { inodes_max: u64::MAX, ..size }));
        let guarantees = compute(&spec, &found);
        let levels = Dimension::ALL.map(|dimension| guarantees.level(dimension));
        assert_eq!(levels, [Absent, Soft, Absent, Hard, Absent, Soft, Hard, Hard, Soft, Soft]);
        spec.read_only_rootfs = false;
        let guarantees = compute(&spec, &findings(&VERIFIED, &spec));
        assert_eq!(guarantees.level(Dimension::DiskBytes), Level::Absent);
        let quota = Findings { root_quota: true, ..findings(&VERIFIED, &spec) };
        assert_eq!(compute(&spec, &quota).level(Dimension::DiskBytes), Level::Hard);
    }
}
