//! MCP servers, as doors see them: what is defined for a tenant, how each stands, and what can be asked of whoever runs them.
//!
//! Nothing here speaks the protocol. A definition is kept as the JSON that it came in; what it means is known where servers are run.

mod access;
mod info;
mod name;
mod numbers;
mod report;

use std::collections::BTreeMap;
use std::fmt::Debug;

use async_trait::async_trait;
use serde_json::Value;

use crate::caller::Caller;
use crate::{Result, limits};

pub use access::{McpAccess, McpPattern};
pub use info::{
    McpErrorPhase, McpHeldTool, McpKind, McpRuntimeInfo, McpServerInfo, McpSource, McpStatus, McpToolChange,
    McpToolsChanged,
};
pub use name::McpServerName;
pub use numbers::{CALL_BOUNDS_SEC, McpCalls, McpNumbers};
pub use report::{
    McpImported, McpLogLine, McpLogSource, McpRemark, McpRenamed, McpSkipped, McpTestReport, McpTested, McpToolSummary,
};

/// Our own tools, where the name of a server could stand. No server is called so.
pub const OWN_TOOLS: &str = name::OURS;

/// The session of servers that want the box that most want. Those of others begin like it.
pub const SHARED_SESSION: &str = "mcp-shared";

/// How the session of a test begins.
pub const TEST_SESSION: &str = "mcp-test-";

/// Whether a session of this id is there for MCP servers.
pub fn is_of_servers(session: &str) -> bool {
    [SHARED_SESSION, TEST_SESSION].iter().any(|beginning| session.starts_with(beginning))
}

/// Who runs the MCP servers of all tenants.
///
/// A caller sees and changes those of its own tenant only. Definitions come in with everything that is in them; what goes out never has a
/// value of an environment or a header, neither in a definition nor in an error, a log line or a report. Rights, and how many servers a
/// tenant may have, are the service's matter: whoever implements this is asked only what is allowed.
#[async_trait]
pub trait McpServers: Send + Sync + Debug {
    /// All servers of the caller's tenant, by name.
    async fn list(&self, caller: &Caller) -> Result<Vec<McpServerInfo>>;

    /// One server, if there is one of that name.
    async fn get(&self, caller: &Caller, name: &McpServerName) -> Result<Option<McpServerInfo>>;

    /// Defines a server, or defines one anew that is kept in the store. Returns when that cannot be forgotten any more; that the server
    /// answers is not waited for.
    async fn put(&self, caller: &Caller, name: &McpServerName, definition: Value) -> Result<McpServerInfo>;

    /// Ends a server and forgets it.
    async fn remove(&self, caller: &Caller, name: &McpServerName) -> Result<()>;

    /// Lets a server run, or ends it and keeps what is known of it.
    async fn set_enabled(&self, caller: &Caller, name: &McpServerName, switch: McpSwitch) -> Result<McpServerInfo>;

    /// Defines all servers of an `mcpServers` document, as desktop clients have it. Those that cannot be taken are told, and keep none of
    /// the others from being taken. `room` is how many of them may be new. Which names there are is known only here, so what the caller's
    /// lists keep from it is refused here too.
    async fn import(&self, caller: &Caller, document: Value, room: usize) -> Result<McpImported>;

    /// Starts a server apart from all others, asks what it has, and removes every trace of it. One that does not work is a report, not an
    /// error.
    async fn test(&self, caller: &Caller, tested: McpTested) -> Result<McpTestReport>;

    /// Ends a server and starts it anew, with all its retries before it.
    async fn restart(&self, caller: &Caller, name: &McpServerName) -> Result<McpServerInfo>;

    /// Approves held tools: those of these names that still have these fingerprints, or all.
    async fn approve(
        &self,
        caller: &Caller,
        name: &McpServerName,
        tools: Option<BTreeMap<String, String>>,
    ) -> Result<McpServerInfo>;

    /// The counters of all tenants.
    fn numbers(&self) -> McpNumbers {
        McpNumbers::default()
    }

    /// The last lines that were said by a server, or about it; at most as many as asked for, the oldest first.
    async fn logs(&self, caller: &Caller, name: &McpServerName, lines: usize) -> Result<Vec<McpLogLine>>;
}

/// Whether a server is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpSwitch {
    /// It is.
    Enabled,
    /// It is not.
    Disabled,
}

/// What can be wrong with what is asked of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// Nobody runs MCP servers here.
    #[error(
        "MCP servers are not available here: this server runs none; set enabled = true in [mcp] of its configuration and start it again"
    )]
    Unavailable,
    /// There is no server of that name.
    #[error("there is no MCP server {name}; {}", defined(.known))]
    NotFound {
        /// As the caller wrote it.
        name: McpServerName,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The server is the operator's.
    #[error(
        "the MCP server {name} is defined in the configuration; change [mcp.servers.{name}] there, or use another name"
    )]
    Fixed {
        /// Which one.
        name: McpServerName,
    },
    /// The token's lists keep the server, or a part of it, from the caller.
    #[error(
        "this token may not do that with the MCP server {name}: its lists do not allow all of it; use another name, or another token"
    )]
    Denied {
        /// Which one.
        name: McpServerName,
    },
    /// The server is there and cannot be used.
    #[error("the MCP server {name} cannot be used ({phase}): {reason}")]
    Failed {
        /// Which one.
        name: McpServerName,
        /// Where it failed.
        phase: McpErrorPhase,
        /// What happened, and what to do.
        reason: String,
    },
}

impl McpError {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable => "mcp_unavailable",
            Self::NotFound { .. } => "mcp_server_not_found",
            Self::Fixed { .. } => "mcp_server_fixed",
            Self::Denied { .. } => "mcp_server_denied",
            Self::Failed { .. } => "mcp_server_failed",
        }
    }

    /// That there is no server of that name among these, as far as the caller may know of them.
    pub fn not_found(caller: &Caller, name: &McpServerName, servers: &[McpServerInfo]) -> Self {
        let names = servers.iter().map(|server| server.name.as_str());
        let seen = names.filter(|name| caller.mcp.allows_some_of(name));
        let known = seen.take(limits::MCP_SERVERS_NAMED_MAX).map(ToOwned::to_owned).collect();
        Self::NotFound { name: name.clone(), known }
    }
}

fn defined(names: &[String]) -> String {
    match names {
        [] => "none is defined".to_owned(),
        names => format!("defined are {}", names.join(", ")),
    }
}
