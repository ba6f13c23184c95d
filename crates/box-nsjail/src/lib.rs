//! Boxes around which nsjail puts namespaces, with our agent as its child.
//!
//! [`house`](self) decides and touches nothing; `create` makes; `box_host::local` removes by the record that was written before anything was
//! made. What a box of this machine is besides its namespaces (cgroups, ids, disks, the way out) is what it is for the native
//! backend, and comes from `box_host`.

mod backend;
mod create;
mod door;
mod guarantee;
mod house;
mod ids;
mod jail;
mod launch;
mod probe;
mod stage;
mod sys;
mod text;
mod trees;
mod trial;

pub mod fault;

pub use backend::{Nsjail, NsjailConfig};
