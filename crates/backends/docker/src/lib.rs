//! Boxes that are containers of Docker or Podman, over the engine API that both speak.
//!
//! [`container`](self) decides what a container is asked to be and touches nothing; `create` makes one, step by step, after its record
//! is on file; `destroy` removes by that record. Our agent is the first process of every container. Once it runs, the engine is
//! needed only to pause it and to remove it: everything else goes over the agent's own socket.

mod address;
mod backend;
mod cgroup;
mod client;
mod config;
mod connect;
mod container;
mod create;
mod destroy;
mod drift;
mod facts;
mod fault;
mod guarantee;
mod images;
mod labels;
mod live;
mod memory;
mod models;
mod network;
mod orphans;
mod podman;
mod pool;
mod probe;
mod record;
mod reference;
mod remote;
mod setup;
mod tmpfs;
mod transport;

pub use backend::Engine;
pub use box_core::PullPolicy;
pub use config::{EngineConfig, EngineKind, EngineSettings, OnDrift};
pub use fault::STEPS;
pub use images::{EngineImage, EngineImages, PullProgress};
