//! What the suites share: a runner, a ground to make boxes on, and eyes on the host.
//!
//! Start reading at [`suite`] (how cases are listed, run and reported) and [`ground`] (how a case gets a box).

pub mod corpus;
pub mod daemon;
pub mod e2b;
pub mod engines;
pub mod events;
mod eventually;
pub mod ground;
pub mod host;
pub mod http;
pub mod isolation;
pub mod leaks;
pub mod matrix;
pub mod mcp;
pub mod report;
pub mod restart_server;
pub mod server;
pub mod sinks;
pub mod suite;
pub mod system;
pub mod traits;
pub mod zip;

pub use eventually::eventually;
pub use ground::{Ground, Output, TestBox};
pub use leaks::Leaks;
pub use server::TestServer;
pub use suite::{Case, Skip, Suite};
pub use traits::Difference;
