//! What callers are shown, where it is more or less than what the service knows.

use std::collections::BTreeMap;

use box_core::backend::{Finding, FindingState};
use box_core::call::{ProcessId, ProcessInfo};
use box_core::session::{LeaseEnd, SessionInfo, SessionState};
use box_core::{BackendName, Capabilities, Stats};
use serde::Serialize;

// A plain `Vec<u8>` would be an array of numbers in the OpenAPI document, and generated clients would send and expect one.
/// Bytes, unencoded
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, format = Binary)]
pub(crate) struct Binary(#[expect(dead_code, reason = "only the document refers to it")] Vec<u8>);

/// A session.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SessionView {
    #[serde(flatten)]
    info: SessionInfo,
    /// How it stands in the words of the old API: `idle`, `running` while a command runs, or `closing`.
    #[schema(example = "idle")]
    status: &'static str,
    /// Names in the environment of every command. Values may be secrets, so `env` is always empty.
    env_keys: Vec<String>,
    /// Its managed processes by their ids, when one session is asked for and has some.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    managed_processes: BTreeMap<String, ProcessInfo>,
    /// The one that is called `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    managed_process: Option<ProcessInfo>,
}

impl SessionView {
    /// Shows a session without its processes.
    pub(super) fn new(mut info: SessionInfo) -> Self {
        let status = match info.state {
            SessionState::Destroying | SessionState::Lost => "closing",
            _ if info.execs_running > 0 => "running",
            SessionState::Creating | SessionState::Running | SessionState::Paused => "idle",
        };
        let env_keys = std::mem::take(&mut info.config.env).into_iter().map(|(name, _)| name).collect();
        // What a profile locks is told with the profiles.
        info.config.locked.clear();
        info.config.lease_end = LeaseEnd::Never;
        info.config.snapshot = None;
        // Callers do not learn where the server keeps a volume.
        info.config.volumes.iter_mut().for_each(|volume| volume.host_path.clear());
        Self { info, status, env_keys, managed_processes: BTreeMap::new(), managed_process: None }
    }

    /// Adds its processes.
    pub(super) fn with_processes(self, processes: Vec<ProcessInfo>) -> Self {
        let default = processes.iter().find(|process| process.process_id == ProcessId::default()).cloned();
        let by_id = processes.into_iter().map(|process| (process.process_id.to_string(), process)).collect();
        Self { managed_processes: by_id, managed_process: default, ..self }
    }
}

/// What the box of a session consumes now.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct StatsView {
    /// Processor time since it was made.
    cpu_us: Option<u64>,
    /// Memory now.
    memory_bytes: Option<u64>,
    /// Processes now.
    pids: Option<u64>,
}

impl From<Stats> for StatsView {
    fn from(stats: Stats) -> Self {
        Self { cpu_us: stats.cpu_us, memory_bytes: stats.memory_bytes, pids: stats.pids }
    }
}

/// That a session is gone.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct DeletedView {
    /// Its id.
    pub(super) deleted: String,
}

/// Whether boxes can be made.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct HealthView {
    /// Where boxes live.
    #[schema(value_type = String, example = "native")]
    pub(super) name: BackendName,
    /// Whether they can be made there.
    pub(super) available: bool,
}

/// That the server is there.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct LiveView {
    /// Always true.
    pub(super) live: bool,
    /// What it holds.
    pub(super) resources: ResourcesView,
}

/// Whether boxes can be made now.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ReadyView {
    /// Whether they can.
    ready: bool,
    /// `standard`, or `grant_enforced` where sandboxes of LangBot need grants.
    mode: String,
    /// Where boxes live, and whether they can be made there.
    #[schema(value_type = Object)]
    backend: serde_json::Value,
    /// What was looked at, and whether it is good.
    #[schema(value_type = Object)]
    checks: serde_json::Value,
    /// What the server holds.
    resources: ResourcesView,
    /// Why they cannot.
    #[schema(value_type = Option<Object>)]
    error: Option<serde_json::Value>,
}

/// What the server holds, of all tenants. Some of it is always 0 or empty: clients of other servers look for it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ResourcesView {
    /// Sessions.
    pub(super) sessions: u64,
    /// Managed processes that run.
    pub(super) managed_processes: u64,
    /// Always 0.
    pub(super) completed_processes: u64,
    /// Always 0.
    pub(super) creating_session_tasks: u64,
    /// Always 0.
    pub(super) closing_session_tasks: u64,
    /// What runs in the background for clients that stream.
    pub(super) background_tasks: u64,
    /// Always empty.
    #[schema(value_type = Object)]
    pub(super) event_loop: serde_json::Value,
    /// Always empty.
    #[schema(value_type = Object)]
    pub(super) blocking_executor: serde_json::Value,
}

/// What boxes hold on this machine.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct BackendView {
    /// Where boxes live.
    #[schema(value_type = String, example = "native")]
    name: BackendName,
    /// Whether they can be made there.
    available: bool,
    /// One entry for each thing that was looked at.
    findings: Vec<FindingView>,
}

/// One thing that was looked at.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct FindingView {
    /// What was looked at, as a stable word.
    name: String,
    /// How it stands: `good`, `weaker` or `missing`.
    #[schema(value_type = String, example = "good")]
    state: FindingState,
    /// What was found.
    detail: String,
    /// What would improve it.
    fix: Option<String>,
}

impl BackendView {
    /// Shows a backend.
    pub(super) fn new(name: BackendName, found: Capabilities) -> Self {
        Self { name, available: found.available, findings: found.findings.into_iter().map(FindingView::from).collect() }
    }
}

impl From<Finding> for FindingView {
    fn from(finding: Finding) -> Self {
        Self { name: finding.name, state: finding.state, detail: finding.detail, fix: finding.fix }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::{Guarantees, SessionRequest};
    use jiff::Timestamp;

    fn info() -> SessionInfo {
        let request = SessionRequest { env: vec![("KEY".into(), "value-of-key".into())], ..SessionRequest::default() };
        SessionInfo {
            session_id: "s".parse().unwrap(),
            state: SessionState::Running,
            backend_name: BackendName::Native,
            backend_session_id: "box".into(),
            config: request.resolve(&box_core::session::SessionDefaults::default(), None).unwrap(),
            created_at: Timestamp::UNIX_EPOCH,
            last_used_at: Timestamp::UNIX_EPOCH,
            expires_at: None,
            execs_running: 0,
            processes_running: 0,
            guarantees: Guarantees::default(),
            lost_reason: None,
        }
    }

    #[test]
    fn a_listing_never_shows_values_of_the_environment() {
        let shown = serde_json::to_value(SessionView::new(info())).unwrap();
        assert!(!shown.to_string().contains("value-of-key"));
        assert_eq!(shown["env_keys"], serde_json::json!(["KEY"]));
    }

    #[test]
    fn the_old_status_follows_from_the_state() {
        let status = |state, execs_running| SessionView::new(SessionInfo { state, execs_running, ..info() }).status;
        assert_eq!(status(SessionState::Running, 0), "idle");
        assert_eq!(status(SessionState::Running, 2), "running");
        assert_eq!(status(SessionState::Paused, 0), "idle");
        assert_eq!(status(SessionState::Destroying, 1), "closing");
    }

    #[test]
    fn a_session_without_processes_does_not_mention_any() {
        let shown = serde_json::to_value(SessionView::new(info()).with_processes(vec![])).unwrap();
        assert!(shown.get("managed_processes").is_none() && shown.get("managed_process").is_none());
    }
}
