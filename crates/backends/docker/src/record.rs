//! The record of a box on disk. It is written before the container exists, so that the next start can remove what a
//! crash left.

use box_core::BoxSpec;
use box_host::process::Process;
use box_wire::BoxId;
use serde::{Deserialize, Serialize};

/// Everything that exists, or is about to, because of one box.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The box.
    pub(crate) id: BoxId,
    /// Name of its container, once it is asked for.
    pub(crate) container_name: String,
    /// The engine's id of the container, once it exists.
    pub(crate) container: Option<String>,
    /// Its first process, once it was started and where it can be seen.
    pub(crate) agent: Option<Process>,
    /// What was requested; none while the container waits in the pool.
    pub(crate) spec: Option<BoxSpec>,
    /// A digest of how the container was made.
    pub(crate) config_hash: String,
}

impl Record {
    /// Whether the container waits in the pool.
    pub(crate) fn is_waiting(&self) -> bool {
        self.spec.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use box_core::{BackendName, Dimension, Handle, Image, MountMode, MountSpec, Origin};
    use box_wire::User;

    use super::*;
    use crate::live::Locator;

    #[derive(Deserialize)]
    struct Fixture {
        records: BTreeMap<String, Record>,
        handles: BTreeMap<String, Handle>,
    }

    fn mount(source: &str, target: &str, mode: MountMode, origin: Origin) -> MountSpec {
        MountSpec { source: source.into(), target: target.parse().unwrap(), mode, origin }
    }

    /// Boxes of the first release run under newer servers. The fixture never changes; a new field needs a default.
    #[test]
    fn records_and_handles_of_released_versions_are_read() {
        let found: Fixture = serde_json::from_str(include_str!("../fixtures/boxes-1.json")).unwrap();
        let agent = Some(Process { pid: 4242, start_time_ticks: 987_654 });
        let image = "python:3.11-slim".to_owned();
        let spec = BoxSpec {
            network: box_core::Network::On,
            image: Image::Named(image.clone()),
            image_name: image,
            backend: Some(BackendName::Docker),
            session: Some("s".to_owned()),
            mounts: vec![
                mount("/srv/a", "/workspace", MountMode::Rw, Origin::Caller),
                mount("/srv/b", "/mnt/b", MountMode::Ro, Origin::Within(vec![PathBuf::from("/srv")])),
            ],
            cpus: 1.5,
            memory_mb: 512,
            pids_limit: 256,
            disk_mb: 1024,
            read_only_rootfs: true,
            user: User { uid: 1000, gid: 1000 },
            home: "/workspace".parse().unwrap(),
            root_capabilities: false,
            syscalls: box_core::SyscallSet::Default,
            persistence: box_core::Persistence::Memory,
            snapshot: None,
            dies_with_maker: false,
            keeps_journal: true,
            floors: box_core::Floors(vec![Dimension::Memory]),
        };
        let waiting = Record {
            id: "s-1".parse().unwrap(),
            container_name: "strongbox-1a2b-s-1".to_owned(),
            container: Some("0123abcd".to_owned()),
            agent: None,
            spec: None,
            config_hash: "00ff".to_owned(),
        };
        let used = Record { agent, spec: Some(spec), ..waiting.clone() };
        assert!(found.records["waiting"].is_waiting());
        assert_eq!(found.records, [("waiting".to_owned(), waiting), ("used".to_owned(), used)].into());
        for (name, backend, agent) in [("docker", BackendName::Docker, agent), ("podman", BackendName::Podman, None)] {
            let handle = &found.handles[name];
            assert_eq!((handle.backend, handle.agent.check()), (backend, Ok(())), "{name}");
            let locator = Locator { container: "0123abcd".to_owned(), agent };
            assert_eq!(serde_json::from_str::<Locator>(&handle.locator).unwrap(), locator, "{name}");
        }
    }
}
