//! What a box really enforces, told from what was applied and found.

use box_core::{BoxSpec, Dimension, Guarantees, Level, Persistence};
use box_host::guarantee::{self, Findings, NO_CGROUP, held};
use box_host::ids::Writer;
use box_wire::RootCapability;

/// What a box really enforces, whose ids were mapped by this writer.
pub(crate) fn compute(spec: &BoxSpec, findings: &Findings<'_>, writer: Writer) -> Guarantees {
    let mut guarantees = guarantee::common(spec, findings, "");
    let (enforced, root) = (findings.enforced, &findings.verified.root_capabilities);
    if !enforced.pids && root.contains(&RootCapability::Setuid) {
        let why = format!("{} processes by a limit per user, and root can be many users; {NO_CGROUP}", spec.pids_limit);
        guarantees.set(Dimension::Pids, Level::Absent, why);
    }
    let place = match spec.persistence {
        Persistence::Memory => "tmpfs",
        Persistence::Disk => "ext4 image",
    };
    let size = (spec.disk_bytes_max() >> 20, spec.disk_inodes_max());
    guarantee::set_disk(&mut guarantees, spec, place, size, (Level::Hard, ""));
    guarantees.set(
        Dimension::Syscalls,
        held(findings.verified.workload_confined),
        if root.is_empty() {
            "an allow-list of system calls, no capability in any set, no_new_privs"
        } else {
            "an allow-list of system calls, no capability but root's over what is the box's own, no_new_privs"
        },
    );
    set_identity(&mut guarantees, spec, writer, root);
    guarantees
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
    use box_core::{MountMode, MountSpec, Origin, Profile};
    use box_host::cgroup::Enforced;
    use box_wire::message::Verified;

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
            let findings = Findings { enforced: &enforced, verified: &verified, method: None };
            assert_eq!(compute(spec, &findings, Writer::Ourselves).level(Dimension::Rootfs), level, "{landlock_abi}");
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
