//! What a box really enforces, told from what was applied and found.

use box_core::{BoxSpec, Dimension, Guarantees, Level, MountMode, Network, Persistence};
use box_host::cgroup::Enforced;
use box_host::network::Method;
use box_host::standard;
use box_host::storage;
use box_wire::message::Verified;

use crate::layout::{self, MountMethod};

/// Everything that was found to be true of a finished box.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    /// What the kernel says of its cgroups.
    pub(crate) enforced: &'a Enforced,
    /// What the agent found from inside.
    pub(crate) verified: &'a Verified,
    /// How nsjail came by what it mounted, which is also whose ids the box has.
    pub(crate) way: MountMethod,
    /// Its way out, where it has one.
    pub(crate) method: Option<Method>,
}

/// Said of everything that only a cgroup can hold.
const NO_CGROUP: &str = "there is no cgroup for it; `strongbox doctor` says how to get one";

/// What a box really enforces.
pub(crate) fn compute(spec: &BoxSpec, findings: &Findings<'_>) -> Guarantees {
    let mut guarantees = Guarantees::default();
    set_limits(&mut guarantees, spec, findings.enforced);
    set_disk(&mut guarantees, spec, findings.way);
    let (level, network) = match (spec.network, findings.method) {
        (Network::Off, _) => (Level::Hard, "an empty network namespace".to_owned()),
        (Network::On, Some(method)) => method.separation(),
        (Network::On, None) => (Level::Hard, "a network namespace of its own without a way out".to_owned()),
    };
    guarantees.set(Dimension::Network, level, network);
    set_rootfs(&mut guarantees, spec, findings);
    guarantees.set(
        Dimension::Syscalls,
        held(findings.verified.workload_confined),
        "an allow-list of system calls behind nsjail's own filter, no capability in any set, no_new_privs",
    );
    let (level, why) = match findings.way {
        MountMethod::Staged => (
            Level::Hard,
            "a range of ids of its own; no account of the host is in it; root is charged for the inotify instances of all boxes",
        ),
        MountMethod::Paths => (
            Level::Soft,
            "agent and workload share the id of the user who runs strongbox; run strongbox as root for ranges of their own",
        ),
    };
    let root = if spec.root_capabilities { box_host::standard::NO_ROOT_CAPABILITIES } else { "" };
    guarantees.set(Dimension::Identity, level, format!("{why}{root}"));
    guarantees
}

fn held(held: bool) -> Level {
    if held { Level::Hard } else { Level::Absent }
}

fn set_limits(guarantees: &mut Guarantees, spec: &BoxSpec, enforced: &Enforced) {
    let by_cgroup = |held: bool, what: String| if held { format!("{what}, by cgroup") } else { NO_CGROUP.to_owned() };
    guarantees.set(Dimension::Cpu, held(enforced.cpu), by_cgroup(enforced.cpu, format!("{} processors", spec.cpus)));
    let memory = by_cgroup(enforced.memory, format!("{} MiB without swap", spec.memory_mb));
    guarantees.set(Dimension::Memory, held(enforced.memory), memory);
    if enforced.pids {
        guarantees.set(Dimension::Pids, Level::Hard, by_cgroup(true, format!("{} processes", spec.pids_limit)));
    } else {
        let why = format!("{} processes by a limit per user; {NO_CGROUP}", spec.pids_limit);
        guarantees.set(Dimension::Pids, Level::Soft, why);
    }
    if enforced.kill {
        guarantees.set(Dimension::Kill, Level::Hard, "one cgroup per exec, killed as a whole");
    } else {
        let why = format!("a walk over descendants, then the whole box; {NO_CGROUP}");
        guarantees.set(Dimension::Kill, Level::Soft, why);
    }
}

fn set_disk(guarantees: &mut Guarantees, spec: &BoxSpec, way: MountMethod) {
    let place = match (way, spec.persistence) {
        (MountMethod::Staged, Persistence::Disk) => "ext4 image",
        (MountMethod::Staged, Persistence::Memory) | (MountMethod::Paths, _) => "tmpfs",
    };
    let (bytes, inodes) = match way {
        MountMethod::Staged => (spec.disk_bytes_max() >> 20, spec.disk_inodes_max()),
        MountMethod::Paths => {
            let home_mb = layout::division(spec).shares(spec).home_mb;
            (home_mb, storage::files_of(home_mb))
        }
    };
    let open: Vec<&str> =
        spec.mounts.iter().filter(|mount| mount.mode == MountMode::Rw).map(|mount| mount.target.as_str()).collect();
    let (level, note) = match (open.is_empty(), way) {
        (false, _) => (Level::Absent, format!("; the host's directory at {} has no limit of its own", open.join(", "))),
        (true, MountMethod::Staged) => (Level::Hard, String::new()),
        (true, MountMethod::Paths) => {
            let note = " at home, and no more at each other place; run strongbox as root for one limit of all";
            (Level::Soft, note.to_owned())
        }
    };
    guarantees.set(Dimension::DiskBytes, level, format!("{place} of {bytes} MiB{note}"));
    guarantees.set(Dimension::DiskInodes, level, format!("{place} of {inodes} files{note}"));
}

fn set_rootfs(guarantees: &mut Guarantees, spec: &BoxSpec, findings: &Findings<'_>) {
    let landlock = match findings.verified.landlock_abi {
        0 => "no Landlock in this kernel".to_owned(),
        abi => format!("Landlock ABI {abi}"),
    };
    let mounts = findings.verified.read_only_mounts;
    let note = match (findings.way, spec.read_only_rootfs) {
        (MountMethod::Paths, false) => "; the host's programs stay read-only although the root can be written",
        _ => "",
    };
    let why = format!("a root of its own, {mounts} read-only mounts verified, {landlock}{note}");
    guarantees.set(Dimension::Rootfs, Level::Hard, why);
    guarantees.soften(Dimension::Rootfs, &standard::sockets_not_held(spec, findings.verified.landlock_abi));
}
