//! Sandboxes as E2B's clients read them. What they call required is always there.

use std::collections::BTreeMap;

use box_core::limits::DISK_MB_DEFAULT;
use box_core::session::{SessionInfo, SessionState};
use box_core::store::{SandboxRow, SandboxVolume};
use box_e2b_wire::ENVD_VERSION;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// Machines have no names that clients could use; old ones want to read one.
const CLIENT: &str = "strongbox";

/// A sandbox for whoever makes it or connects to it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SandboxView {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    envd_version: &'static str,
    alias: String,
    envd_access_token: String,
    traffic_access_token: Option<String>,
    domain: Option<String>,
}

impl SandboxView {
    pub(super) fn new(row: &SandboxRow, domain: Option<&str>) -> Self {
        Self {
            template_id: row.template.clone(),
            sandbox_id: row.key.id.as_str().to_owned(),
            client_id: CLIENT,
            envd_version: ENVD_VERSION,
            alias: row.template.clone(),
            envd_access_token: row.access_token.clone(),
            traffic_access_token: row.traffic_token.clone(),
            domain: domain.map(str::to_owned),
        }
    }
}

/// How a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Running,
    Paused,
}

impl State {
    /// Nothing for one that is not there yet or any more.
    pub(super) fn of(state: SessionState) -> Option<Self> {
        match state {
            SessionState::Running => Some(Self::Running),
            SessionState::Paused => Some(Self::Paused),
            SessionState::Creating | SessionState::Destroying | SessionState::Lost => None,
        }
    }
}

/// A sandbox in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListedView {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: &'static str,
    started_at: Timestamp,
    end_at: Timestamp,
    envd_version: &'static str,
    cpu_count: u64,
    #[serde(rename = "memoryMB")]
    memory_mb: u64,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u64,
    state: State,
    alias: String,
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    volume_mounts: Vec<SandboxVolume>,
}

/// A sandbox with everything that is known of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DetailView {
    #[serde(flatten)]
    listed: ListedView,
    envd_access_token: String,
    domain: Option<String>,
    allow_internet_access: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Value>,
    lifecycle: LifecycleView,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LifecycleView {
    auto_resume: bool,
    on_timeout: &'static str,
}

impl ListedView {
    pub(super) fn new(row: &SandboxRow, session: &SessionInfo, state: State) -> Self {
        let config = &session.config;
        Self {
            template_id: row.template.clone(),
            sandbox_id: row.key.id.as_str().to_owned(),
            client_id: CLIENT,
            started_at: row.started_at,
            end_at: row.ends_at,
            envd_version: ENVD_VERSION,
            cpu_count: whole_processors(config.cpus),
            memory_mb: config.memory_mb,
            disk_size_mb: if config.workspace_quota_mb == 0 { DISK_MB_DEFAULT } else { config.workspace_quota_mb },
            state,
            alias: row.template.clone(),
            metadata: row.metadata.clone(),
            volume_mounts: row.volume_mounts.clone(),
        }
    }
}

impl DetailView {
    pub(super) fn new(row: &SandboxRow, session: &SessionInfo, state: State, domain: Option<&str>) -> Self {
        Self {
            listed: ListedView::new(row, session, state),
            envd_access_token: row.access_token.clone(),
            domain: domain.map(str::to_owned),
            allow_internet_access: row.allow_internet_access,
            network: row.network.clone(),
            lifecycle: LifecycleView {
                auto_resume: row.auto_resume,
                on_timeout: if row.auto_pause { "pause" } else { "kill" },
            },
        }
    }
}

/// Clients count whole processors: a part of one is one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few thousand at most, and never negative"
)]
pub(super) fn whole_processors(cpus: f64) -> u64 {
    cpus.ceil().max(1.0) as u64
}
