//! What all backends on this machine share: instances and their boxes, the setup of agents, journals of output, and the
//! system call filter.
//!
//! Nothing here makes a box. A backend does that, in its own way, and then starts the agent by the functions of this
//! crate.

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

/// Runs blocking system calls on a thread that may block.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match box_core::tasks::blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::io("running in the background", std::io::Error::other(error))),
    }
}
