//! What every backend on this machine shares: who lives and who died, where boxes are remembered, how an agent is told what to
//! be, where its output is kept, and which system calls its commands have.
//!
//! Nothing here makes a box. A backend does that, in its own way, and then hands over to the agent in the way of this crate.

mod agent_file;

pub mod cgroup;
pub mod cgroup_files;
pub mod control_socket;
pub mod disk;
pub mod doctor;
pub mod guarantee;
pub mod handover;
pub mod host_root;
pub mod ids;
pub mod instance;
pub mod journal;
pub mod layout;
pub mod live;
pub mod local;
pub mod mounts;
pub mod network;
pub mod process;
pub mod program;
pub mod record;
pub mod seccomp;
pub mod standard;
pub mod storage;
pub mod sys;

pub use agent_file::{agent_file, agent_for_boxes, agent_program};
pub use instance::{InstanceKind, default_state_dir};
pub use mounts::WORKSPACE_OWNER;

use box_core::{Error, Result};

/// Runs system calls where waiting harms nobody.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match box_core::tasks::blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::io("running in the background", std::io::Error::other(error))),
    }
}
