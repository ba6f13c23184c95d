//! MCP: stdio servers in boxes, one endpoint for all of them, and our own tools as a server.
//!
//! What an operator writes becomes a [`definition`]; how such a server is run in a box is decided by functions that touch nothing
//! but what they are given: where its project lies ([`workspace`]), what must be installed ([`dependencies`]), and what
//! follows from whatever went wrong ([`retry`]). The [`supervisor`] does it, the [`gateway`] shows what came of it, and [`http`] lets clients in.

pub mod definition;
pub mod dependencies;
pub mod gateway;
pub mod http;
pub mod import;
pub mod limits;
pub mod own;
mod random;
pub mod retry;
pub mod stdio;
pub mod supervisor;
#[cfg(test)]
mod testing;
mod text;
pub mod upstream;
pub mod workspace;
