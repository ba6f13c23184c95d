//! What is on disk about a box before anything of it exists, so that the next start can remove what a crash left.

use box_host::network::Attachment;
use box_host::process::Process;
use box_wire::BoxId;
use serde::{Deserialize, Serialize};

/// Everything that exists, or is about to, because of one box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The box.
    pub(crate) id: BoxId,
    /// Name of its directories in the cgroup hierarchies.
    pub(crate) cgroup: String,
    /// Its range of ids, where it has one of its own.
    pub(crate) range: Option<u32>,
    /// Its way out, where it has one.
    pub(crate) network: Option<Attachment>,
    /// Its first process, once it was started.
    pub(crate) agent: Option<Process>,
}
