//! The store as its users see it.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod mcp_servers;
mod model;
mod processes;
mod rows;
mod sandboxes;
mod schemas;
mod store;
mod templates;
mod volumes;
