//! The domain of Strongbox: what a box is, what it guarantees, who may mount what, and how one talks to its agent.

pub mod audit;
pub mod backend;
pub mod call;
pub mod caller;
pub mod environment;
pub mod error;
pub mod fault;
pub mod guarantee;
pub mod hexadecimal;
pub mod journal;
pub mod limits;
pub mod link;
pub mod mount_policy;
pub mod output;
pub mod profile;
pub mod safe_root;
pub mod service;
pub mod session;
pub mod shell;
pub mod spec;
pub mod store;
pub mod token;

pub use backend::{AgentStream, Backend, BackendName, Capabilities, Handle, Liveness, Stats};
pub use caller::{Caller, Ceiling, Scope, TenantId};
pub use error::{Error, Result};
pub use guarantee::{Dimension, Floors, Guarantee, Guarantees, Level};
pub use journal::{Chunk, Journal};
pub use link::{Attached, AttachedReader, AttachedWriter, ExecIo};
pub use mount_policy::{Grant, MountPolicy, Origin};
pub use output::{Clipped, Clipper, clip};
pub use profile::Profile;
pub use safe_root::SafeRoot;
pub use service::{Service, ServiceConfig};
pub use session::{SessionId, SessionRequest};
pub use spec::{BoxSpec, Image, MountMode, MountSpec, Network, Persistence, SyscallSet};
pub use store::Store;
