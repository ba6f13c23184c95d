//! Boxes made of Linux namespaces and cgroups, on a plain machine with nothing installed.
//!
//! One kernel concept, one module. [`plan`](self) decides and touches nothing; `spawn` makes; `box_host::local` is the
//! backend around it, and removes by the record that was written before anything was made.

mod backend;
mod guarantee;
mod plan;
mod skeleton;
mod snapshot;
mod spawn;
mod sys;
mod trees;
mod zygote;

pub mod fault;

pub use backend::{Namespaces, Native};
pub use box_host::local::LocalConfig as NativeConfig;
