//! Boxes that are sandboxes of E2B, in its cloud or self-hosted.
//!
//! A sandbox is a machine of the provider. The agent is uploaded into it, receives its setup over the standard streams
//! of a process, and is dialed by a second copy of itself that runs in the sandbox: from then on the box is like every
//! other. [`api`](self) holds the requests to the provider, `envd` those to one sandbox, `carrier` a stream to the
//! agent; `sync` carries trees of the host in and their changes out again.

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
