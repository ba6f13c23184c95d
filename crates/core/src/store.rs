//! What is remembered across restarts of the server. The service holds the truth while it runs; this is its memory.

mod table;
mod template;

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use async_trait::async_trait;
use box_wire::{BoxId, ExecId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{ExecInfo, ProcessCall, ProcessId};
use crate::caller::TenantId;
use crate::mcp::McpServerName;
use crate::session::{SessionConfig, SessionId, SessionState};
use crate::token::TokenRow;
use crate::{BackendName, Handle, Result};

use table::{tables, word};

pub use table::{Effect, Row, StoredRow, Table};
pub use template::{TemplateBase, TemplateDefaults, TemplateKey, TemplateOrigin, TemplateRow, TemplateState};

tables! {
    sessions(tenant, id) "session": PutSession(SessionRow[key]) / DeleteSession(key: SessionKey),
        state = |row| word(&row.state);
    execs(tenant, session, id) "exec": PutExec(ExecRow[key, info.exec_id]) / DeleteExec(key: SessionKey, id: ExecId),
        state = |row| word(&row.info.status);
    processes(tenant, session, id) "process": PutProcess(ProcessRow[key, call.process_id])
        / DeleteProcess(key: SessionKey, id: ProcessId);
    tokens(id) "token": PutToken(TokenRow[id]), tenant = |row| row.tenant.to_string();
    mcp_servers(tenant, name) "MCP server": PutMcpServer(McpServerRow[key]) / DeleteMcpServer(key: McpServerKey),
        state = |row| if row.enabled { "enabled" } else { "disabled" }.to_owned();
    mcp_approvals(tenant, name) "list of approved tools": PutMcpApprovals(McpApprovalsRow[key])
        / DeleteMcpApprovals(key: McpServerKey);
    sandboxes(tenant, id) "sandbox": PutSandbox(SandboxRow[key]) / DeleteSandbox(key: SessionKey),
        template = |row| row.template.clone();
    volumes(tenant, id) "volume": PutVolume(VolumeRow[tenant, id]) / DeleteVolume(tenant: TenantId, id: String),
        name = |row| row.name.clone();
    templates(tenant, id) "template": PutTemplate(TemplateRow[key]) / DeleteTemplate(key: TemplateKey),
        name = |row| row.name.clone().unwrap_or_default();
}

/// What a writer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Room in the queue: a `kill -9` in the next milliseconds may forget it.
    Queued,
    /// That a `kill -9` cannot make it forgotten.
    Committed,
}

/// What a deletion does that would leave no token at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastToken {
    /// It deletes nothing.
    Kept,
    /// It deletes the last token too.
    Deleted,
}

/// Everything that is remembered of sessions.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// All sessions.
    pub sessions: Vec<SessionRow>,
    /// Sessions whose rows cannot be read, and why.
    pub unreadable: Vec<(SessionKey, String)>,
    /// All commands.
    pub execs: Vec<ExecRow>,
    /// All managed processes.
    pub processes: Vec<ProcessRow>,
}

impl Loaded {
    const TABLES: [&'static Table; 3] = [SessionRow::TABLE, ExecRow::TABLE, ProcessRow::TABLE];

    /// The owner of a session that cannot be read learns that it is lost.
    fn parse(stored: Vec<Vec<StoredRow>>) -> Self {
        let mut stored = stored.into_iter();
        let mut next = || stored.next().unwrap_or_default();
        let (sessions, bad) = table::parse::<SessionRow>(next());
        let unreadable = bad.into_iter().filter_map(|row| Some((SessionKey::of_columns(&row.keys)?, row.reason)));
        let (mut execs, mut processes) = (table::parse::<ExecRow>(next()).0, table::parse::<ProcessRow>(next()).0);
        // What belongs to a session that could not be read is left out with it.
        let known: HashSet<&SessionKey> = sessions.iter().map(|session| &session.key).collect();
        execs.retain(|exec| known.contains(&exec.key));
        processes.retain(|process| known.contains(&process.key));
        Self { unreadable: unreadable.collect(), execs, processes, sessions }
    }
}

/// Which session: ids are unique within a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionKey {
    /// Whose it is.
    pub tenant: TenantId,
    /// The caller's name for it.
    pub id: SessionId,
}

impl SessionKey {
    fn of_columns(columns: &[String]) -> Option<Self> {
        let [tenant, id] = columns else { return None };
        Some(Self { tenant: tenant.parse().ok()?, id: id.parse().ok()? })
    }
}

/// What is remembered of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRow {
    /// Which one.
    pub key: SessionKey,
    /// How it stood.
    pub state: SessionState,
    /// What it is.
    pub config: SessionConfig,
    /// The box that is or was to be made for it.
    pub box_id: BoxId,
    /// Where that lives or was to live. Rows of versions that knew only one place have none.
    #[serde(default)]
    pub backend: Option<BackendName>,
    /// What finds the box, once it is made.
    pub handle: Option<Handle>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last used, as far as that was written down.
    pub last_used_at: Timestamp,
    /// Why it was lost.
    pub lost_reason: Option<String>,
}

impl SessionRow {
    /// The backend of its box.
    pub fn backend_name(&self) -> BackendName {
        let named = self.handle.as_ref().map(|handle| handle.backend);
        named.or(self.backend).unwrap_or(BackendName::Native)
    }
}

/// What is remembered of a command. Also of each run of a managed process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecRow {
    /// Its session.
    pub key: SessionKey,
    /// What callers see of it; holds its id.
    pub info: ExecInfo,
    /// Most characters of each stream in its result.
    pub output_limit_chars: usize,
    /// The first so many bytes of each stream are in its result, instead.
    #[serde(default)]
    pub output_head_bytes: Option<usize>,
    /// What its passed deadline does to the session.
    pub destroys_on_timeout: bool,
    /// The managed process whose run this is.
    pub process: Option<ProcessId>,
    /// The caller's key, and what the call looked like.
    pub idempotency: Option<(String, String)>,
    /// What the door through which it came noted of it.
    #[serde(default)]
    pub note: Option<String>,
    /// Whether it ends when no client is attached to it for long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_unattended: bool,
}

/// What is remembered of a managed process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Its session.
    pub key: SessionKey,
    /// What was asked.
    pub call: ProcessCall,
    /// The exec of each of its runs that is still kept, oldest first, with its number.
    pub runs: Vec<(u32, ExecId)>,
    /// How often it was started again.
    pub restarts: u32,
    /// Whether somebody asked it to stop.
    pub stopping: bool,
}

/// Which MCP server: names are unique within a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct McpServerKey {
    /// Whose it is.
    pub tenant: TenantId,
    /// What they call it.
    pub name: McpServerName,
}

/// What is remembered of an MCP server that a caller defined.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct McpServerRow {
    /// Which one.
    pub key: McpServerKey,
    /// Its definition, secrets included.
    pub definition: Value,
    /// Whether it is to run.
    pub enabled: bool,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

impl fmt::Debug for McpServerRow {
    /// Without the definition, which holds secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, enabled, updated_at, .. } = self;
        let mut shown = f.debug_struct("McpServerRow");
        shown.field("key", key).field("enabled", enabled).field("updated_at", updated_at).finish_non_exhaustive()
    }
}

/// The stored record of approved tools of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpApprovalsRow {
    /// The server.
    pub key: McpServerKey,
    /// Its approved tools, each with a fingerprint of its definition.
    pub tools: BTreeMap<String, String>,
    /// The time of the last approval.
    pub approved_at: Timestamp,
}

/// What is remembered of a sandbox: what its door knows and its session does not. The session has the same id.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRow {
    /// Its session.
    pub key: SessionKey,
    /// The template that it was made from, as its maker called it.
    pub template: String,
    /// What its maker wrote on it, to find it by.
    pub metadata: BTreeMap<String, String>,
    /// Variables of everything that runs in it.
    pub env: BTreeMap<String, String>,
    /// When it was made.
    pub started_at: Timestamp,
    /// When it ends; of one that is stopped, when that was.
    pub ends_at: Timestamp,
    /// For how long it was made, in seconds; one that goes on by itself has this long again.
    pub timeout_sec: u64,
    /// Whether its end only stops it where it is.
    pub auto_pause: bool,
    /// Whether it goes on when somebody wants something of it.
    pub auto_resume: bool,
    /// What opens its inside.
    pub access_token: String,
    /// What opens its ports, where not everybody may.
    pub traffic_token: Option<String>,
    /// Whether it was to have a way out, as its maker said.
    pub allow_internet_access: Option<bool>,
    /// What else was said about its network, as it was said.
    pub network: Option<Value>,
    /// Directories that outlive it, by name, and where it has them.
    #[serde(default)]
    pub volume_mounts: Vec<SandboxVolume>,
    /// What its template says holds in it.
    #[serde(default)]
    pub defaults: TemplateDefaults,
    /// The key of the call that made it, and a digest of what was asked.
    #[serde(default)]
    pub idempotency: Option<(String, String)>,
}

/// A directory that outlives a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxVolume {
    /// What it is called.
    pub name: String,
    /// Where it is in the sandbox.
    pub path: String,
}

impl fmt::Debug for SandboxRow {
    /// Without tokens and variables, which are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, template, started_at, ends_at, .. } = self;
        let mut shown = f.debug_struct("SandboxRow");
        shown.field("key", key).field("template", template).field("started_at", started_at);
        shown.field("ends_at", ends_at).finish_non_exhaustive()
    }
}

/// What is remembered of a volume: a directory of ours that outlives the sandboxes that have it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRow {
    /// Whose it is.
    pub tenant: TenantId,
    /// What tells it from others. Its directory is called so.
    pub id: String,
    /// What its maker calls it.
    pub name: String,
    /// What opens its files.
    pub token: String,
    /// When it was made.
    pub created_at: Timestamp,
}

impl fmt::Debug for VolumeRow {
    /// Without the token, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, id, name, created_at, .. } = self;
        let mut shown = f.debug_struct("VolumeRow");
        shown.field("tenant", tenant).field("id", id).field("name", name);
        shown.field("created_at", created_at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_volume_is_not_printed() {
        let row = VolumeRow {
            tenant: TenantId::default(),
            id: "v1".into(),
            name: "data".into(),
            token: "sesame".into(),
            created_at: Timestamp::UNIX_EPOCH,
        };
        let shown = format!("{:?}", Change::PutVolume(Box::new(row)));
        assert!(shown.contains("data") && !shown.contains("sesame"), "{shown}");
    }

    #[test]
    fn the_secrets_of_a_sandbox_are_not_printed() {
        let row = SandboxRow {
            key: SessionKey { tenant: TenantId::default(), id: "i1".parse().unwrap() },
            template: "base".into(),
            metadata: BTreeMap::new(),
            env: [("KEY".to_owned(), "sesame".to_owned())].into(),
            started_at: Timestamp::UNIX_EPOCH,
            ends_at: Timestamp::UNIX_EPOCH,
            timeout_sec: 300,
            auto_pause: false,
            auto_resume: false,
            access_token: "sesame".into(),
            traffic_token: Some("sesame".into()),
            allow_internet_access: None,
            network: Some(serde_json::json!({ "egressProxy": { "password": "sesame" } })),
            volume_mounts: Vec::new(),
            defaults: TemplateDefaults::default(),
            idempotency: None,
        };
        let shown = format!("{:?}", Change::PutSandbox(Box::new(row)));
        assert!(shown.contains("base") && !shown.contains("sesame"), "{shown}");
    }

    #[test]
    fn the_definition_of_an_mcp_server_is_not_printed() {
        let row = McpServerRow {
            key: McpServerKey { tenant: TenantId::default(), name: "time".parse().unwrap() },
            definition: serde_json::json!({ "command": "uvx", "env": { "KEY": "sesame" } }),
            enabled: true,
            updated_at: Timestamp::UNIX_EPOCH,
        };
        let shown = format!("{:?}", Change::PutMcpServer(Box::new(row)));
        assert!(shown.contains("time") && !shown.contains("sesame") && !shown.contains("uvx"), "{shown}");
    }
}
