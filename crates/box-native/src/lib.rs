//! Boxes made of Linux namespaces and cgroups, on a plain machine with nothing installed.
//!
//! One kernel concept, one module. [`plan`](self) decides and touches nothing; `spawn` makes; `destroy` removes by the
//! record that was written before anything was made.

mod backend;
mod destroy;
mod guarantee;
mod plan;
mod record;
mod skeleton;
mod spawn;
mod starter;
mod sys;
mod trees;

pub mod cgroup;
pub mod disk;
pub mod doctor;
pub mod fault;
pub mod host_root;
pub mod ids;
pub mod network;
pub mod program;

pub use backend::{Native, NativeConfig};
pub use box_host::WORKSPACE_OWNER;
pub use plan::{DEVICE_LINKS, DEVICES, MASKED, accounts, rlimits};
