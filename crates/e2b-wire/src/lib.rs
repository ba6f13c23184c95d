//! Words of E2B's protocol: ids, names of hosts, signatures, and the messages that go to and from a sandbox.
//!
//! Nothing here does I/O or decides anything. Whoever serves E2B's clients and whoever is one of them use the same words.

pub mod code;
pub mod envelope;
pub mod filesystem;
pub mod host;
pub mod id;
pub mod json;
pub mod limits;
pub mod process;
pub mod signature;
pub mod user;

pub use code::{Code, RpcError};
pub use envelope::{Decoder, Envelope, EnvelopeError, EnvelopeKind};
pub use host::SandboxHost;
pub use id::SandboxId;
pub use user::BoxUser;

/// The port under which a sandbox is asked for commands and files.
pub const ENVD_PORT: u16 = 49983;

/// The port under which a sandbox is asked to run code.
pub const INTERPRETER_PORT: u16 = 49999;

/// The version that we say our sandboxes have. Clients decide by it what they ask.
pub const ENVD_VERSION: &str = "0.6.13";
