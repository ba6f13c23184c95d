//! Metrics of MCP servers.

use super::McpStatus;

/// Upper bounds of call durations, in seconds: from an in-memory server to one that asks a model.
pub const CALL_BOUNDS_SEC: [f64; 10] = [0.005, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0, 600.0];

/// Metrics of all tenants together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct McpNumbers {
    /// Number of servers by status.
    pub servers: Vec<(McpStatus, u64)>,
    /// Calls of tools.
    pub calls: Vec<McpCalls>,
    /// Call durations: how many within each of [`CALL_BOUNDS_SEC`], and those that took longer.
    pub durations: [u64; CALL_BOUNDS_SEC.len() + 1],
    /// Total duration of calls, in seconds.
    pub duration_sec: f64,
}

/// Tool calls of one server with one outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpCalls {
    /// The server's tenant. Empty for servers that are not counted separately.
    pub tenant: String,
    /// The server's name; `other` for those not counted separately.
    pub server: String,
    /// How the calls ended.
    pub outcome: &'static str,
    /// Number of calls.
    pub count: u64,
}
