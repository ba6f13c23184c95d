//! What boxes that are made here really enforce, told from what was applied and found.

use box_core::{BoxSpec, Dimension, Guarantees, Level, MountMode, Network};
use box_wire::message::Verified;

use crate::cgroup::Enforced;
use crate::network::Method;
use crate::standard;

/// Everything that was found to be true of a finished box.
#[derive(Debug)]
pub struct Findings<'a> {
    /// What the kernel says of its cgroups.
    pub enforced: &'a Enforced,
    /// What the agent found from inside.
    pub verified: &'a Verified,
    /// Its way out, where it has one.
    pub method: Option<Method>,
}

/// Said of everything that only a cgroup can hold.
pub const NO_CGROUP: &str = "it needs a cgroup; `strongbox doctor` says how to get one";

/// What is held firmly or not at all.
pub fn held(held: bool) -> Level {
    if held { Level::Hard } else { Level::Absent }
}

/// What does not depend on how a box is launched: limits, network, and a root about which `note` is said too.
pub fn common(spec: &BoxSpec, findings: &Findings<'_>, note: &str) -> Guarantees {
    let mut guarantees = Guarantees::default();
    set_limits(&mut guarantees, spec, findings.enforced);
    let (level, network) = match (spec.network, findings.method) {
        (Network::Off, _) => (Level::Hard, "an empty network namespace".to_owned()),
        (Network::On, Some(method)) => method.separation(),
        (Network::On, None) => (Level::Hard, "a network namespace of its own without a way out".to_owned()),
    };
    guarantees.set(Dimension::Network, level, network);
    let landlock = match findings.verified.landlock_abi {
        0 => "no Landlock in this kernel".to_owned(),
        abi => format!("Landlock ABI {abi}"),
    };
    let mounts = findings.verified.read_only_mounts;
    let why = format!("a root of its own, {mounts} read-only mounts verified, {landlock}{note}");
    guarantees.set(Dimension::Rootfs, Level::Hard, why);
    guarantees.soften(Dimension::Rootfs, &standard::sockets_not_held(spec, findings.verified.landlock_abi));
    guarantees
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

/// The limits of what a box stores: `mb` and `inodes` of a `place`, as firmly as `level` says, and a note about them. Directories of
/// the host that it can write to are not held.
pub fn set_disk(
    guarantees: &mut Guarantees,
    spec: &BoxSpec,
    place: &str,
    (mb, inodes): (u64, u64),
    level: (Level, &str),
) {
    let open: Vec<&str> =
        spec.mounts.iter().filter(|mount| mount.mode == MountMode::Rw).map(|mount| mount.target.as_str()).collect();
    let (level, note) = if open.is_empty() {
        (level.0, level.1.to_owned())
    } else {
        (Level::Absent, format!("; the host's directory at {} has no limit of its own", open.join(", ")))
    };
    guarantees.set(Dimension::DiskBytes, level, format!("{place} of {mb} MiB{note}"));
    guarantees.set(Dimension::DiskInodes, level, format!("{place} of {inodes} files{note}"));
}
