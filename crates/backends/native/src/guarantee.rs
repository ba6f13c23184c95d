//! What a box really enforces, told from what was applied and found.

use box_core::{BoxSpec, Dimension, Guarantees, Level, MountMode, Network, Persistence};
use box_host::cgroup::Enforced;
use box_host::ids::Writer;
use box_host::network::Method;
use box_host::standard;
use box_wire::RootCapability;
use box_wire::message::Verified;

/// Everything that was found to be true of a finished box.
#[derive(Debug)]
pub(crate) struct Findings<'a> {
    /// What the kernel says of its cgroups.
    pub(crate) enforced: &'a Enforced,
    /// What the agent found from inside.
    pub(crate) verified: &'a Verified,
    /// How its ids were mapped.
    pub(crate) writer: Writer,
    /// Its way out, where it has one.
    pub(crate) method: Option<Method>,
}

/// Said of everything that only a cgroup can hold.
const NO_CGROUP: &str = "there is no cgroup for it; `strongbox doctor` says how to get one";

/// What a box really enforces.
pub(crate) fn compute(spec: &BoxSpec, findings: &Findings<'_>) -> Guarantees {
    let mut guarantees = Guarantees::default();
    let Findings { enforced, verified, writer, method } = findings;
    let held = |held: bool| if held { Level::Hard } else { Level::Absent };
    let by_cgroup = |held: bool, what: String| if held { format!("{what}, by cgroup") } else { NO_CGROUP.to_owned() };
    guarantees.set(Dimension::Cpu, held(enforced.cpu), by_cgroup(enforced.cpu, format!("{} processors", spec.cpus)));
    let memory = by_cgroup(enforced.memory, format!("{} MiB without swap", spec.memory_mb));
    guarantees.set(Dimension::Memory, held(enforced.memory), memory);
    if enforced.pids {
        guarantees.set(Dimension::Pids, Level::Hard, by_cgroup(true, format!("{} processes", spec.pids_limit)));
    } else if verified.root_capabilities.contains(&RootCapability::Setuid) {
        let why = format!("{} processes by a limit per user, and root can be many users; {NO_CGROUP}", spec.pids_limit);
        guarantees.set(Dimension::Pids, Level::Absent, why);
    } else {
        let why = format!("{} processes by a limit per user; {NO_CGROUP}", spec.pids_limit);
        guarantees.set(Dimension::Pids, Level::Soft, why);
    }
    set_disk(&mut guarantees, spec);
    let (level, network) = match (spec.network, method) {
        (Network::Off, _) => (Level::Hard, "an empty network namespace".to_owned()),
        (Network::On, Some(method)) => method.separation(),
        (Network::On, None) => (Level::Hard, "a network namespace of its own without a way out".to_owned()),
    };
    guarantees.set(Dimension::Network, level, network);
    let landlock = match verified.landlock_abi {
        0 => "no Landlock in this kernel".to_owned(),
        abi => format!("Landlock ABI {abi}"),
    };
    let rootfs = format!("a root of its own, {} read-only mounts verified, {landlock}", verified.read_only_mounts);
    guarantees.set(Dimension::Rootfs, Level::Hard, rootfs);
    guarantees.soften(Dimension::Rootfs, &standard::sockets_not_held(spec, verified.landlock_abi));
    guarantees.set(
        Dimension::Syscalls,
        held(verified.workload_confined),
        if verified.root_capabilities.is_empty() {
            "an allow-list of system calls, no capability in any set, no_new_privs"
        } else {
            "an allow-list of system calls, no capability but root's over what is the box's own, no_new_privs"
        },
    );
    set_identity(&mut guarantees, spec, *writer, &verified.root_capabilities);
    if enforced.kill {
        guarantees.set(Dimension::Kill, Level::Hard, "one cgroup per exec, killed as a whole");
    } else {
        let why = format!("a walk over descendants, then the whole box; {NO_CGROUP}");
        guarantees.set(Dimension::Kill, Level::Soft, why);
    }
    guarantees
}

fn set_disk(guarantees: &mut Guarantees, spec: &BoxSpec) {
    let place = match spec.persistence {
        Persistence::Memory => "tmpfs",
        Persistence::Disk => "ext4 image",
    };
    let (bytes, inodes) = (spec.disk_bytes_max() >> 20, spec.disk_inodes_max());
    let open: Vec<&str> =
        spec.mounts.iter().filter(|mount| mount.mode == MountMode::Rw).map(|mount| mount.target.as_str()).collect();
    let (level, note) = if open.is_empty() {
        (Level::Hard, String::new())
    } else {
        (Level::Absent, format!("; the host's directory at {} has no limit of its own", open.join(", ")))
    };
    guarantees.set(Dimension::DiskBytes, level, format!("{place} of {bytes} MiB{note}"));
    guarantees.set(Dimension::DiskInodes, level, format!("{place} of {inodes} files{note}"));
}

fn set_identity(guarantees: &mut Guarantees, spec: &BoxSpec, writer: Writer, root: &[RootCapability]) {
    let (level, why) = match writer {
        Writer::Ourselves => (Level::Hard, "a range of ids of its own; no account of the host is in it"),
        Writer::NewIdMap => (
            Level::Soft,
            "root of the box is the user who runs strongbox, without rights; run strongbox as root for ranges of their own",
        ),
        Writer::SingleId => (
            Level::Soft,
            "agent and workload share the id of the user who runs strongbox; install uidmap and add subordinate ids",
        ),
    };
    guarantees.set(Dimension::Identity, level, format!("{why}{}", told_of_root(spec, writer, root)));
}

/// What root of the box may do, where its profile says that it may do something.
fn told_of_root(spec: &BoxSpec, writer: Writer, root: &[RootCapability]) -> String {
    if !spec.root_capabilities {
        return String::new();
    }
    if writer == Writer::SingleId {
        return "; root and user are the same here, and root has no capability".to_owned();
    }
    let has = root.iter().map(|capability| capability.as_str()).collect::<Vec<_>>().join(", ");
    let lacks = if root.contains(&RootCapability::Kill) { "" } else { ", but not kill, for which cgroups are needed" };
    format!("; root of the box has {has} over what is the box's own{lacks}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::{MountSpec, Origin, Profile};

    #[test]
    fn without_landlock_a_box_that_writes_to_the_host_holds_its_files_softly() {
        let mount = MountSpec {
            source: "/srv/data".into(),
            target: "/workspace".parse().unwrap(),
            mode: MountMode::Rw,
            origin: Origin::Operator,
        };
        let plain = Profile::default().spec();
        let shared = BoxSpec { mounts: vec![mount], ..plain.clone() };
        for (spec, landlock_abi, level) in
            [(&plain, 0, Level::Hard), (&shared, 1, Level::Hard), (&shared, 0, Level::Soft)]
        {
            let verified =
                Verified { landlock_abi, workload_confined: true, root_capabilities: vec![], read_only_mounts: 9 };
            let enforced = Enforced::default();
            let findings =
                Findings { enforced: &enforced, verified: &verified, writer: Writer::Ourselves, method: None };
            assert_eq!(compute(spec, &findings).level(Dimension::Rootfs), level, "{landlock_abi}");
        }
    }

    #[test]
    fn what_root_may_do_is_told_where_its_profile_gives_it_something() {
        let (plain, given) = (Profile::default().spec(), Profile::built_in("e2b").unwrap().spec());
        let all = RootCapability::ALL;
        assert_eq!(told_of_root(&plain, Writer::Ourselves, &[]), "");
        assert_eq!(
            told_of_root(&given, Writer::Ourselves, &all),
            "; root of the box has chown, dac_override, fowner, setuid, setgid, kill, net_bind_service over what is the box's own"
        );
        let without_kill: Vec<_> = all.into_iter().filter(|one| *one != RootCapability::Kill).collect();
        assert!(
            told_of_root(&given, Writer::NewIdMap, &without_kill)
                .ends_with("but not kill, for which cgroups are needed")
        );
        assert!(told_of_root(&given, Writer::SingleId, &[]).contains("no capability"));
    }
}
