//! Boxes around which nsjail puts namespaces, with our agent as its child.
//!
//! [`layout`](self) decides and touches nothing; `create` makes; `box_host::local` is the backend around it, and removes by the record that was
//! written before anything was made. What a box of this machine is besides its namespaces (cgroups, ids, disks, the way out) is what it is for the native
//! backend, and comes from `box_host`.

mod backend;
mod control_socket;
mod create;
mod guarantee;
mod ids;
mod jail;
mod launch;
mod layout;
mod probe;
mod stage;
mod sys;
mod text;
mod trees;
mod trial;

pub mod fault;

pub use backend::{Jails, Nsjail, NsjailConfig};
