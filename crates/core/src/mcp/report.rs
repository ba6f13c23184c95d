//! What is told of servers besides how they stand: a test, an import, their log.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{McpKind, McpRuntimeInfo, McpServerInfo, McpServerName};

/// What is tested.
#[derive(Clone, PartialEq)]
pub enum McpTested {
    /// A definition that nobody keeps.
    Definition(Value),
    /// A server that is defined already. The one that runs is left alone.
    Named(McpServerName),
}

impl std::fmt::Debug for McpTested {
    /// Definitions hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Definition(_) => f.write_str("Definition(..)"),
            Self::Named(name) => write!(f, "Named({name})"),
        }
    }
}

/// What came of the test of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct McpTestReport {
    /// Whether it works: it was started, answered, and told what it has.
    pub ok: bool,
    /// Whether it is a program of ours or somebody else's server.
    pub kind: McpKind,
    /// What it calls itself. A stranger's words.
    pub server_name: Option<String>,
    /// Which version it says it is.
    pub server_version: Option<String>,
    /// The version of the protocol that was agreed on.
    pub protocol_version: Option<String>,
    /// Its tools.
    pub tools: Vec<McpToolSummary>,
    /// Prompts that it has.
    pub prompts: usize,
    /// Resources that it has.
    pub resources: usize,
    /// From the beginning until it had told everything, or failed.
    pub duration_ms: u64,
    /// Where it went wrong, if it did, and what it said then.
    pub runtime_info: McpRuntimeInfo,
}

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct McpToolSummary {
    /// As the server calls it.
    pub name: String,
    /// What it is for. A stranger's words.
    pub description: String,
}

/// What came of an import.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct McpImported {
    /// Servers that are defined now.
    pub servers: Vec<McpServerInfo>,
    /// Those of them that have another name than the document gave them.
    pub renamed: Vec<McpRenamed>,
    /// Entries that were not taken.
    pub skipped: Vec<McpSkipped>,
    /// What is other than the document says, or good to know, of those that were taken.
    #[serde(default)]
    pub remarks: Vec<McpRemark>,
}

/// Something to know of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct McpRemark {
    /// As the document has it.
    pub name: String,
    /// What to know.
    pub text: String,
}

/// A server whose name could not stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct McpRenamed {
    /// As the document has it.
    pub from: String,
    /// As it is now.
    #[schema(value_type = String)]
    pub to: McpServerName,
}

/// An entry that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct McpSkipped {
    /// As the document has it.
    pub name: String,
    /// Why, and what to do.
    pub reason: String,
}

/// A line of the log of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct McpLogLine {
    /// Who said it.
    pub source: McpLogSource,
    /// What was said.
    pub text: String,
}

/// Who says something in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum McpLogSource {
    /// Whoever runs the server: that it was started, lost, tried again.
    #[serde(rename = "keeper")]
    Supervisor,
    /// The installation of what it depends on.
    Install,
    /// Its standard error.
    Stderr,
}

impl McpLogSource {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Supervisor => "keeper",
            Self::Install => "install",
            Self::Stderr => "stderr",
        }
    }
}
