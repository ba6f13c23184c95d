//! What is on disk about a box before anything of it exists, so that the next start can remove what a crash left.

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
    /// What the engine calls the container, once it was made.
    pub(crate) container: Option<String>,
    /// Its first process, once it was started and where it can be seen.
    pub(crate) agent: Option<Process>,
    /// What was asked for; nothing while nobody has asked for it.
    pub(crate) spec: Option<BoxSpec>,
    /// A digest of how the container was made.
    pub(crate) config_hash: String,
}

impl Record {
    /// Whether the box was started ahead and nobody has asked for it yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.spec.is_none()
    }
}
