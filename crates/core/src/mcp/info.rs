//! How an MCP server stands.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::McpServerName;
use crate::session::SessionId;

/// An MCP server, as callers see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct McpServerInfo {
    /// Its name, before `__` in the names of its tools.
    #[schema(value_type = String, example = "time")]
    pub name: McpServerName,
    /// Whether it is a program of ours or somebody else's server.
    pub kind: McpKind,
    /// Whether it is to run.
    pub enabled: bool,
    /// Where its definition is.
    pub source: McpSource,
    /// How it stands.
    pub status: McpStatus,
    /// Tools that it has; 0 while that is not known.
    pub tools: usize,
    /// What is known of its life.
    pub runtime_info: McpRuntimeInfo,
    /// Its definition, with the names of what is secret and no value of it.
    #[schema(value_type = Object)]
    pub definition: Value,
    /// When it was last changed; unknown of one in the configuration.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub updated_at: Option<Timestamp>,
}

/// What a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum McpKind {
    /// A program that speaks over its standard input and output, in a box.
    Stdio,
    /// A server elsewhere, that speaks over HTTP.
    Remote,
}

impl McpKind {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Remote => "remote",
        }
    }
}

/// Where a definition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum McpSource {
    /// In the configuration. Only the operator changes it, there.
    Config,
    /// In the store. Callers made it.
    Stored,
}

impl McpSource {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Stored => "stored",
        }
    }
}

/// How a server stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum McpStatus {
    /// It is being started, or waited for.
    #[default]
    Connecting,
    /// It answers.
    Connected,
    /// It does not work, and is not tried any more.
    Error,
    /// It is not to run.
    Disabled,
}

impl McpStatus {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Connecting, Self::Connected, Self::Error, Self::Disabled];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Error => "error",
            Self::Disabled => "disabled",
        }
    }
}

/// Where something went wrong in the life of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpErrorPhase {
    /// Its session could not be made.
    SessionCreate,
    /// What it depends on could not be installed.
    DepInstall,
    /// Its program could not be started, or ended at once.
    ProcessStart,
    /// Its streams could not be reached.
    RelayConnect,
    /// It did not answer the first message, or wrongly.
    McpInit,
    /// It was lost after it had answered.
    Runtime,
    /// One call of a tool failed.
    ToolCall,
    /// There is no box to run it in.
    BoxUnavailable,
}

impl McpErrorPhase {
    /// All of them, in the order in which a server goes through them.
    pub const ALL: [Self; 8] = [
        Self::SessionCreate,
        Self::DepInstall,
        Self::ProcessStart,
        Self::RelayConnect,
        Self::McpInit,
        Self::Runtime,
        Self::ToolCall,
        Self::BoxUnavailable,
    ];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SessionCreate => "session_create",
            Self::DepInstall => "dep_install",
            Self::ProcessStart => "process_start",
            Self::RelayConnect => "relay_connect",
            Self::McpInit => "mcp_init",
            Self::Runtime => "runtime",
            Self::ToolCall => "tool_call",
            Self::BoxUnavailable => "box_unavailable",
        }
    }

    /// Whether trying again may help.
    pub fn is_transient(self) -> bool {
        self != Self::BoxUnavailable
    }

    /// What somebody who reads of it can do.
    pub fn advice(self) -> &'static str {
        match self {
            Self::SessionCreate => {
                "look at the reason; the box options of the server may ask for what is not allowed or not there"
            }
            Self::DepInstall => {
                "look at the log of the server; it may need network: on, another image, or a larger startup_timeout_sec"
            }
            Self::ProcessStart => "check command and args; the program must be in the image, or below host_path",
            Self::RelayConnect => "restart the server; if that does not help, look at the log of Strongbox",
            Self::McpInit => {
                "check that the command starts an MCP server that speaks over standard input and output, and look at its stderr; \
                 a slow one needs a larger startup_timeout_sec"
            }
            Self::Runtime => "look at the last lines of stderr; it may need more memory_mb or pids_limit",
            Self::ToolCall => "look at the arguments of the call and at the stderr of the server",
            Self::BoxUnavailable => {
                "run strongbox doctor and make a backend available, or set mcp.host_fallback = true to run servers on the host without a box"
            }
        }
    }
}

impl fmt::Display for McpErrorPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of the life of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct McpRuntimeInfo {
    /// The session in which its process is.
    #[schema(value_type = Option<String>)]
    pub box_session_id: Option<SessionId>,
    /// Whether it is in a box. A remote one is not, and neither is one that the operator lets run on the host.
    pub box_enabled: bool,
    /// Where it last went wrong.
    pub error_phase: Option<McpErrorPhase>,
    /// What happened then, and what to do.
    pub error_message: Option<String>,
    /// Retries since it last worked.
    pub retry_count: u32,
    /// The last lines of its standard error. A stranger's words.
    pub stderr_tail: Vec<String>,
    /// How its tools differ from those that it first had. Whoever trusted those should look again.
    #[serde(default)]
    pub tools_changed: Option<McpToolsChanged>,
    /// Tools that clients do not see until they are approved; in a list of servers 32 at most, without their descriptions.
    #[serde(default)]
    pub held_tools: Vec<McpHeldTool>,
}

/// A tool that waits for being approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct McpHeldTool {
    /// Its name.
    pub name: String,
    /// Why it waits.
    pub change: McpToolChange,
    /// What its server says of it, shortened. A stranger's words.
    pub description: String,
    /// Of everything that is said of it. Whoever approves it names this, and so approves what was looked at.
    pub fingerprint: String,
}

/// Why a tool waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum McpToolChange {
    /// It was not there when tools were approved.
    Added,
    /// Its description, arguments or anything else is not what was approved.
    Changed,
}

/// How the tools of a server differ from those that it had when it was first connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct McpToolsChanged {
    /// When that was seen.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Tools that there were not; 32 names at most, here and below.
    pub added: Vec<String>,
    /// Tools that are gone.
    pub removed: Vec<String>,
    /// Tools whose description, arguments or anything else is not what it was.
    pub changed: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_written_as_they_are_told() {
        let words = McpErrorPhase::ALL.map(McpErrorPhase::as_str);
        let known = "session_create dep_install process_start relay_connect mcp_init runtime tool_call box_unavailable";
        assert!(words.iter().copied().eq(known.split(' ')), "clients know these words");
        for phase in McpErrorPhase::ALL {
            assert_eq!(serde_json::json!(phase), phase.as_str());
        }
        for status in [McpStatus::Connecting, McpStatus::Connected, McpStatus::Error, McpStatus::Disabled] {
            assert_eq!(serde_json::json!(status), status.as_str());
        }
        assert_eq!(serde_json::json!([McpKind::Stdio, McpSource::Config]), serde_json::json!(["stdio", "config"]));
        assert_eq!((McpKind::Remote.as_str(), McpSource::Stored.as_str()), ("remote", "stored"));
    }

    #[test]
    fn without_a_backend_one_is_told_both_ways_out_and_not_tried_again() {
        let advice = McpErrorPhase::BoxUnavailable.advice();
        assert!(advice.contains("strongbox doctor") && advice.contains("mcp.host_fallback = true"), "{advice}");
        let given_up: Vec<_> = McpErrorPhase::ALL.into_iter().filter(|phase| !phase.is_transient()).collect();
        assert_eq!(given_up, [McpErrorPhase::BoxUnavailable]);
    }
}
