//! How the service stands, for people and programs that watch it.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use jiff::Timestamp;
use serde::Serialize;

use super::session::lock;
use super::{Inner, Service, TenantLimit};
use crate::backend::Surveyed;
use crate::caller::{Caller, Scope};
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
    /// What the caller's tenant holds of what all tenants share, and how much it may hold. For a caller that is bound to
    /// sessions, `sessions` and `managed_processes` count only those.
    pub limits: Vec<TenantLimit>,
    /// The version of this program.
    pub version: String,
    /// Since when the service runs.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
}

/// One of the backends on which boxes can live.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct BackendInfo {
    /// Which one.
    #[schema(value_type = String, example = "docker")]
    pub name: BackendName,
    /// Whether boxes live on it that name no backend.
    pub chosen: bool,
    /// Why they do.
    pub why: Option<String>,
    /// Whether boxes can be made on it. `null` where nothing has needed it yet: then it is left alone, and nothing is known.
    pub available: Option<bool>,
    /// Why they cannot.
    pub reason: Option<String>,
    /// What would change that.
    pub fix: Option<String>,
}

impl From<Surveyed> for BackendInfo {
    fn from(surveyed: Surveyed) -> Self {
        let Surveyed { name, chosen, capabilities } = surveyed;
        let (reason, fix) = match &capabilities {
            Some(found) => found.absence().unzip(),
            None => (Some("nothing has needed it yet, so it was left alone".to_owned()), None),
        };
        let available = capabilities.map(|found| found.available);
        Self { name, chosen: chosen.is_some(), why: chosen, available, reason, fix: fix.filter(|fix| !fix.is_empty()) }
    }
}

impl Service {
    /// All backends, the chosen one and why. Looked at now and then: many ask, and looking costs. Those that nothing has needed yet
    /// are left alone.
    #[boxed]
    pub async fn backends(&self, caller: &Caller) -> Result<Vec<BackendInfo>> {
        caller.require(Scope::Exec)?;
        let survey = async {
            let surveyed = self.inner.backend.survey().await;
            Ok::<_, Error>(surveyed.into_iter().map(BackendInfo::from).collect::<Vec<_>>())
        };
        self.inner.surveys.get(survey).await
    }

    /// What the backend of that name says of itself. It is tried now if nothing has needed it before.
    #[boxed]
    pub async fn backend_info_of(&self, caller: &Caller, name: BackendName) -> Result<Capabilities> {
        if name == self.backend_name() {
            return Ok(self.backend_info(caller).await?.1);
        }
        caller.require(Scope::Exec)?;
        let looked_at = Arc::clone(lock(&self.inner.named).entry(name).or_insert_with(|| Arc::new(Inner::looked_at())));
        let backend = self.inner.backend_of(name);
        let probe = async {
            // Why it could not be opened is what it then says of itself.
            drop(backend.attempt().await);
            Ok::<_, Error>(backend.probe().await)
        };
        looked_at.get(probe).await
    }

    /// Backends that a caller may ask for by name.
    pub fn offered_backends(&self) -> Vec<BackendName> {
        self.inner.backend.offers()
    }

    /// How the service stands, as far as the caller's tenant is concerned.
    #[boxed]
    pub async fn status(&self, caller: &Caller) -> Result<StatusInfo> {
        let (backend, found) = self.backend_info(caller).await?;
        let mut sessions = self.inner.sessions_of(caller);
        // A bound caller must not count other sessions of its tenant, not even in what the tenant holds.
        sessions.retain(|session| caller.session.is_none() || caller.sees_session(&session.key.id));
        let config = self.inner.config();
        let standing = Condition::of(self.inner.present().and_then(|()| self.inner.check_writable()), &found);
        let processes: usize = sessions.iter().map(|session| session.processes_running()).sum();
        let limits = self.inner.tenant_limits(&caller.tenant, sessions.len() as u64, processes as u64);
        let seen: Vec<_> = sessions.iter().filter(|session| caller.sees_session(&session.key.id)).collect();
        Ok(StatusInfo {
            enabled: standing.enabled,
            available: standing.available,
            reason: standing.reason,
            fix: standing.fix,
            backend,
            default_profile: config.default_profile.clone(),
            recent_error_count: self.recent_errors(caller)?.len(),
            active_sessions: seen.len(),
            managed_processes: seen.iter().map(|session| session.processes_running()).sum(),
            execs_running: seen.iter().map(|session| session.execs_running()).sum(),
            session_ttl_sec: config.session_ttl_sec,
            max_sessions: config.max_sessions,
            max_managed_processes: config.max_managed_processes,
            limits,
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
    fn of(presence: Result<()>, found: &Capabilities) -> Self {
        let enabled = !matches!(presence, Err(Error::Disabled));
        let (reason, fix) = match presence {
            Ok(()) if found.available => (None, None),
            Err(Error::Unavailable { reason, fix, .. }) => (Some(reason), Some(fix)),
            Err(error @ (Error::DiskFull { .. } | Error::Unrecorded { .. } | Error::Io { .. })) => {
                (Some(error.to_string()), None)
            }
            _ => found.absence().map_or((Some(String::new()), None), |(reason, fix)| (Some(reason), Some(fix))),
        };
        let fix = fix.filter(|fix| !fix.is_empty());
        Self { enabled, available: reason.is_none(), reason, fix }
    }
}
