//! Boxes that are sandboxes of E2B, in its cloud or wherever somebody hosts it.
//!
//! A sandbox is a machine of somebody else's. Our agent is brought into it, told what to be over the standard streams of a process, and
//! dialled by a second copy of itself that the sandbox is asked to run: from then on the box is like every other. [`api`](self) is what is
//! asked of the provider, `envd` what is asked of one sandbox, `carrier` a stream to the agent, `sync` how trees of the host get in and
//! what was changed in them gets out again.

mod api;
mod backend;
mod boxes;
mod carrier;
mod config;
mod create;
mod endpoints;
mod envd;
mod events;
mod failure;
mod guarantee;
mod http;
mod lease_renewer;
mod limits;
mod listened;
mod locator;
mod parcel;
mod relay;
mod retry;
mod sandbox;
mod setup;
mod sync;
mod words;

pub use backend::E2b;
pub use config::{E2bConfig, E2bSettings, Secret};
