//! How the service stands, for people and programs that watch it.

use jiff::Timestamp;
use serde::Serialize;

use super::Service;
use crate::backend::FindingState;
use crate::caller::Caller;
use crate::{BackendName, Capabilities, Error, Result};

/// How the service stands, for people and programs that watch it.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct StatusInfo {
    /// Whether the operator wants boxes to be made here.
    pub enabled: bool,
    /// Whether they can be made now.
    pub available: bool,
    /// Why they cannot.
    pub reason: Option<String>,
    /// What would change that.
    pub fix: Option<String>,
    /// Where boxes live.
    #[schema(value_type = String, example = "native")]
    pub backend: BackendName,
    /// Profile of sessions that name none.
    pub default_profile: String,
    /// Errors of the caller's tenant that are remembered; see `GET /v1/errors`.
    pub recent_error_count: usize,
    /// Sessions of the caller's tenant.
    pub active_sessions: usize,
    /// Running managed processes of the caller's tenant.
    pub managed_processes: usize,
    /// Running commands of the caller's tenant.
    pub execs_running: usize,
    /// Idle time after which a session is removed.
    pub session_ttl_sec: u64,
    /// Most sessions at once, of all tenants together.
    pub max_sessions: usize,
    /// Most managed processes at once, of all tenants together.
    pub max_managed_processes: usize,
    /// The version of this program.
    pub version: String,
    /// Since when the service runs.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
}

impl Service {
    /// How the service stands, as far as the caller's tenant is concerned.
    pub async fn status(&self, caller: &Caller) -> Result<StatusInfo> {
        let (backend, found) = self.backend_info(caller).await?;
        let sessions = self.inner.sessions_of(caller);
        let config = self.inner.config();
        let standing = Condition::of(self.inner.present(), found);
        Ok(StatusInfo {
            enabled: standing.enabled,
            available: standing.available,
            reason: standing.reason,
            fix: standing.fix,
            backend,
            default_profile: config.default_profile.clone(),
            recent_error_count: self.inner.watched.errors_of(&caller.tenant).len(),
            active_sessions: sessions.len(),
            managed_processes: sessions.iter().map(|session| session.processes_running()).sum(),
            execs_running: sessions.iter().map(|session| session.execs_running()).sum(),
            session_ttl_sec: config.session_ttl_sec,
            max_sessions: config.max_sessions,
            max_managed_processes: config.max_managed_processes,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.inner.started_at,
        })
    }
}

/// Whether boxes can be made, and why not.
#[derive(Debug)]
struct Condition {
    enabled: bool,
    available: bool,
    reason: Option<String>,
    fix: Option<String>,
}

impl Condition {
    /// From whether the backend is there, and what it says of itself.
    fn of(presence: Result<()>, found: Capabilities) -> Self {
        let enabled = !matches!(presence, Err(Error::Disabled));
        let missing: Vec<_> =
            found.findings.into_iter().filter(|finding| finding.state == FindingState::Missing).collect();
        let (reason, fix) = match presence {
            Ok(()) if found.available => (None, None),
            Err(Error::Unavailable { reason, fix, .. }) => (Some(reason), Some(fix)),
            _ => {
                let reasons: Vec<_> = missing.iter().map(|finding| finding.detail.clone()).collect();
                let fixes: Vec<_> = missing.into_iter().filter_map(|finding| finding.fix).collect();
                (Some(reasons.join("; ")), (!fixes.is_empty()).then(|| fixes.join("; ")))
            }
        };
        Self { enabled, available: reason.is_none(), reason, fix }
    }
}
