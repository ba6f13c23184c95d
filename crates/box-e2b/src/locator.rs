//! What finds a box again after a restart: plain data in its handle.

use box_core::{Error, Handle, MountSpec, Result};
use box_e2b_wire::SandboxId;
use box_wire::GuestPath;
use serde::{Deserialize, Serialize};

/// What finds a box again. The key and the token of the sandbox are not in it: whoever has the key is told the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Locator {
    /// The sandbox.
    pub(crate) sandbox: SandboxId,
    /// The directory of ours in it; nothing where the box was found by the provider's list and not by us.
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
