//! The setup message for the agent of a container: pure, from the specification and what was mounted.

use box_core::limits::WORKSPACE;
use box_core::{BoxSpec, Grant, MountMode};
use box_host::{seccomp, standard};
use box_wire::plan::{Bounding, Lifeline, Memory, Sight, Tracking};
use box_wire::{ContainerSetup, GuestPath, User};

use crate::container::{known, places};

/// The setup message for the agent, without the descriptors that travel along.
pub(crate) fn setup(
    spec: &BoxSpec,
    workload: User,
    volumes: &[GuestPath],
    sights: Vec<Sight>,
    programs: Vec<Vec<u8>>,
) -> ContainerSetup {
    ContainerSetup {
        workload,
        agent: None,
        sights,
        directories: Vec::new(),
        rlimits: standard::rlimits(spec, true),
        landlock_writable: writable(spec, workload, volumes),
        landlock_sockets: standard::socket_places(spec),
        seccomp: programs,
        mode_guard: seccomp::mode_guard(spec),
        listener: None,
        tracking: Tracking::Ancestry,
        memory: Memory::Absent,
        oom_kills: None,
        journal: None,
        journal_in_box: None,
        lifeline: if spec.dies_with_maker { Lifeline::Maker } else { Lifeline::Detached },
        maker: None,
        bounding: Bounding::Empty,
    }
}

/// Paths that the workload may write: everything on a writable root, otherwise its places and mounts.
fn writable(spec: &BoxSpec, workload: User, volumes: &[GuestPath]) -> Vec<GuestPath> {
    if !spec.read_only_rootfs {
        return vec![GuestPath::root()];
    }
    let mut all = vec![known("/dev"), known("/proc"), known(WORKSPACE)];
    all.extend(places(spec, workload, volumes, 0).into_iter().map(|place| place.path));
    all.extend(spec.mounts.iter().filter(|mount| mount.mode == MountMode::Rw).map(|mount| mount.target.clone()));
    all.sort();
    all.dedup();
    all
}

/// The mounts that the agent must find if the engine mounted by path.
pub(crate) fn sights(spec: &BoxSpec, grants: &[Grant]) -> Vec<Sight> {
    let sight = |(mount, grant): (&box_core::MountSpec, &Grant)| Sight {
        path: mount.target.clone(),
        device: grant.device,
        inode: grant.inode,
        read_only: mount.mode == MountMode::Ro,
    };
    spec.mounts.iter().zip(grants).map(sight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::{MountSpec, Origin, Profile};

    #[test]
    fn the_second_lock_opens_where_the_first_one_does() {
        let mount = |target: &str, mode| MountSpec {
            source: "/srv".into(),
            target: target.parse().unwrap(),
            mode,
            origin: Origin::Caller,
        };
        let mut spec = Profile::default().spec();
        spec.mounts = vec![mount("/mnt/rw", MountMode::Rw), mount("/mnt/ro", MountMode::Ro)];
        let user = User { uid: 5, gid: 5 };
        let paths = |spec: &BoxSpec| {
            let setup = setup(spec, user, &[known("/data")], vec![], vec![]);
            setup.landlock_writable.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(paths(&spec), ["/data", "/dev", "/dev/shm", "/mnt/rw", "/proc", "/tmp", "/workspace"]);
        spec.read_only_rootfs = false;
        assert_eq!(paths(&spec), ["/"]);
    }
}
