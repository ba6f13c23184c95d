//! What finds a box again after a restart: plain data in its handle.

use box_core::{Error, Handle, MountSpec, Result};
use box_e2b_wire::SandboxId;
use box_wire::GuestPath;
use serde::{Deserialize, Serialize};

/// What finds a box again. It holds neither the API key nor the sandbox's token, which the provider returns for the
/// key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Locator {
    /// The sandbox.
    pub(crate) sandbox: SandboxId,
    /// The agent's directory in the sandbox; none if the box was found by the provider's list.
    pub(crate) home: Option<GuestPath>,
    /// What it sees of the host.
    pub(crate) mounts: Vec<MountSpec>,
}

impl Locator {
    pub(crate) fn of(handle: &Handle) -> Result<Self> {
        serde_json::from_str(&handle.locator)
            .map_err(|error| Error::Gone { reason: format!("nothing tells where it was: {error}") })
    }

    pub(crate) fn text(&self) -> Result<String> {
        let written = serde_json::to_string(self);
        written.map_err(|error| Error::io("writing down where a box is", std::io::Error::other(error)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use box_core::{BackendName, MountMode, Origin};

    use super::*;

    #[derive(Deserialize)]
    struct Fixture {
        handles: BTreeMap<String, Handle>,
    }

    /// Sandboxes of the first release run under newer servers. The fixture never changes; a new field needs a default.
    #[test]
    fn handles_of_released_versions_are_read() {
        let found: Fixture = serde_json::from_str(include_str!("../fixtures/boxes-1.json")).unwrap();
        let mount = MountSpec {
            source: "/srv/a".into(),
            target: "/workspace".parse().unwrap(),
            mode: MountMode::Rw,
            origin: Origin::Operator,
        };
        let sandbox: SandboxId = "i1a2b3c4d5e6f7g8h9i0j".to_owned().try_into().unwrap();
        let unfinished = Locator { sandbox, home: None, mounts: Vec::new() };
        let home = Some("/tmp/strongbox".parse().unwrap());
        let finished = Locator { home, mounts: vec![mount], ..unfinished.clone() };
        for (name, locator) in [("e2b", finished), ("unfinished", unfinished)] {
            let handle = &found.handles[name];
            assert_eq!((handle.backend, handle.agent.check()), (BackendName::E2b, Ok(())), "{name}");
            assert_eq!(Locator::of(handle).unwrap(), locator, "{name}");
        }
    }
}
