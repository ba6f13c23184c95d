//! What callers can ask, one method each. Doors translate to these calls and do nothing else.
//!
//! The methods are in `sessions`, `execs`, `code`, `processes`, `file operations`, `ports`, `skills` and `mcp`; `session`, `exec` and `process` are what lives behind them. Everything
//! that outlasts a call runs in a tracked task: a caller who hangs up leaves nothing half-made. No lock is held while anything
//! is waited for.

mod budget;
mod code;
mod exec;
mod execs;
mod file_ops;
pub mod files;
mod follow;
mod journalled;
mod kept;
mod leases;
mod mcp;
mod ports;
mod process;
mod processes;
mod quota;
mod reaper;
mod recovery;
mod session;
mod sessions;
mod skills;
mod snapshots;
mod status;
mod to_the_end;
mod unattended;
mod volumes;
mod watch;
mod workplace;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use box_wire::User;
use jiff::Timestamp;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::AuditLog;
use crate::backend::{Finding, FindingState};
use crate::cached::Cached;
use crate::caller::{Caller, Scope, TenantId};
use crate::disk::StateDisk;
use crate::session::SessionId;
use crate::skills::Skills;
use crate::snapshots::SnapshotStore;
use crate::store::{SessionKey, Store};
use crate::tasks::Start as _;
use crate::volumes::Volumes;
use crate::{
    Backend, BackendName, BoxSpec, Capabilities, Error, Handle, ImagePolicy, Profile, Profiles, Result, limits,
};

use budget::Budgets;
pub use budget::{Buffered, Reservation, Resource, TenantLimit};
pub use code::CodeRun;
pub use file_ops::{FileBytes, FileCall, NO_INPUT};
pub use files::{RootHelp, SessionFiles};
pub use follow::Follow;
use mcp::Mcp;
pub use ports::PortStream;
use recovery::Recovery;
use session::{Session, lock};
pub use sessions::Created;
pub use snapshots::{ForkSource, SaveRequest};
pub use status::{BackendInfo, StatusInfo};
use to_the_end::ToTheEnd;
pub use volumes::{VOLUME_ROOT, VolumeFiles};
use watch::Watched;

/// What an operator can set. Everything but what was already decided for a session can be changed while the service runs.
#[derive(Debug, Clone)]
pub struct ServiceConfig {
    /// Idle time after which a session is removed, unless it says otherwise.
    pub session_ttl_sec: u64,
    /// Most sessions at once, of all tenants together.
    pub max_sessions: usize,
    /// Most running managed processes at once, of all sessions together.
    pub max_managed_processes: usize,
    /// Characters of each stream in a result, unless the call says otherwise.
    pub output_limit_chars: usize,
    /// Bytes of each stream of one command that are kept.
    pub journal_bytes_max: u64,
    /// Bytes of all finished commands of one session that are kept; the oldest go first.
    pub journal_session_bytes_max: u64,
    /// Bytes of output of all commands of one tenant that are kept, running ones included.
    pub journal_tenant_bytes_max: u64,
    /// Most that one tenant may hold of what all share, once there are several.
    pub tenant_share_percent: u64,
    /// The directory on whose disk everything is kept. Stays what it was at the start.
    pub state_dir: Option<PathBuf>,
    /// What is kept free on that disk for deletions and the audit log; at most a tenth of it.
    pub disk_reserve_mb: u64,
    /// The profiles that there are.
    pub profiles: Profiles,
    /// Profile of sessions that name none.
    pub default_profile: String,
    /// Directory of the host that is the workspace of sessions that name none. A real path, below an allowed root.
    pub default_workspace: Option<PathBuf>,
    /// Most that a workspace may hold, where neither the caller nor the profile says; 0 = no bound.
    pub workspace_quota_mb: u64,
    /// The directory of all volumes. Stays what it was at the start.
    pub volumes_dir: Option<PathBuf>,
    /// Most that each volume may hold. Stays what it was at the start.
    pub volume_mb: u64,
    /// Meanings of image names.
    pub images: BTreeMap<String, String>,
    /// Names of images in registries that callers may use, and patterns of them; see [`ImagePolicy`].
    pub allowed_images: Vec<String>,
    /// Images that engines use for boxes that name none. Naming them needs no permission.
    pub engine_images: Vec<String>,
    /// Which session a query of an agent works in, unless its pipeline says otherwise.
    pub session_template: String,
    /// The same, whatever pipelines say. Blank means that they may.
    pub forced_session_template: String,
    /// How long a terminal without a deadline goes on without an attached client.
    pub terminal_unattended: Duration,
    /// How often idle sessions are looked for.
    pub reap_every: Duration,
    /// How long an exited managed process can be asked about.
    pub exited_process_ttl: Duration,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        let images = ["python:3.11-slim", "rockchin/langbot-sandbox:latest"];
        Self {
            session_ttl_sec: 300,
            max_sessions: 1000,
            max_managed_processes: 256,
            output_limit_chars: 4000,
            journal_bytes_max: 16 << 20,
            journal_session_bytes_max: 256 << 20,
            journal_tenant_bytes_max: 4 << 30,
            tenant_share_percent: 50,
            state_dir: None,
            disk_reserve_mb: 256,
            profiles: Profiles::default(),
            default_profile: "default".to_owned(),
            default_workspace: None,
            workspace_quota_mb: 0,
            volumes_dir: None,
            volume_mb: 1024,
            images: images.map(|name| (name.to_owned(), "host".to_owned())).into(),
            allowed_images: Vec::new(),
            engine_images: Vec::new(),
            session_template: crate::tools::DEFAULT_TEMPLATE.to_owned(),
            forced_session_template: String::new(),
            terminal_unattended: Duration::from_secs(limits::TERMINAL_UNATTENDED_SEC),
            reap_every: Duration::from_secs(5),
            exited_process_ttl: Duration::from_mins(5),
        }
    }
}

impl ServiceConfig {
    /// What names of images mean, and which may be used.
    pub fn image_policy(&self) -> ImagePolicy<'_> {
        ImagePolicy { names: &self.images, allowed: &self.allowed_images, own: &self.engine_images }
    }
}

/// What becomes of boxes when the service stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Persistent sessions stay, all others are destroyed.
    KeepPersistent,
    /// All stay, for the next start to adopt.
    KeepAll,
    /// All are destroyed.
    DestroyAll,
}

/// What happened to sessions when the service stopped. Those without a box do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Sessions whose boxes keep running.
    pub kept: usize,
    /// Those that wait for the next start without a time limit.
    pub kept_persistent: usize,
    /// Commands and managed processes that keep running in them.
    pub running: usize,
    /// Sessions that were removed.
    pub removed: usize,
    /// Sessions that should have been removed, and could not be.
    pub not_removed: usize,
}

/// Something that went wrong lately.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct RecentError {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What was being done.
    pub operation: String,
    /// In which session.
    #[schema(value_type = Option<String>)]
    pub session_id: Option<SessionId>,
    /// Stable word.
    pub code: String,
    /// What happened.
    pub message: String,
    /// The query of an agent for which it was done, where that is known.
    pub query_id: Option<String>,
}

/// Numbers since the start of the service, and some of now, for metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Sessions that exist.
    pub sessions: u64,
    /// Sessions that were made.
    pub sessions_created: u64,
    /// Sessions that could not be made.
    pub sessions_failed: u64,
    /// Sessions that were removed because nobody used them.
    pub sessions_expired: u64,
    /// Sessions whose box vanished.
    pub sessions_lost: u64,
    /// Commands that run.
    pub execs_running: u64,
    /// Commands that were started.
    pub execs_started: u64,
    /// Commands whose deadline passed.
    pub execs_timed_out: u64,
    /// Managed processes that run.
    pub processes_running: u64,
    /// Managed processes that were started again.
    pub processes_restarted: u64,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputChunk {
    /// Offset of the first byte; behind what was asked for when that is not kept any more.
    pub start: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Bytes of the whole stream so far, kept or not.
    pub total: u64,
    /// Whether more can still come.
    pub running: bool,
}

/// What callers can ask. Cheap to clone; all clones are one service.
#[derive(Debug, Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

/// What all calls share.
#[derive(Debug)]
struct Inner {
    backend: Arc<dyn Backend>,
    store: Arc<dyn Store>,
    audit: Option<Arc<AuditLog>>,
    config: RwLock<Arc<ServiceConfig>>,
    sessions: Mutex<HashMap<SessionKey, Arc<Session>>>,
    /// Everything that outlasts a call.
    tasks: TaskTracker,
    /// Told when the service stops.
    stopping: CancellationToken,
    watched: Watched,
    budgets: Arc<Budgets>,
    volumes: Volumes,
    /// What the backend said of itself lately.
    capabilities: Cached<Capabilities>,
    /// What others said of themselves lately.
    named: Mutex<BTreeMap<BackendName, Arc<Cached<Capabilities>>>>,
    /// How every backend stood lately.
    surveys: Cached<Vec<BackendInfo>>,
    /// On which backends boxes of before are being looked for, or were.
    recoveries: Mutex<BTreeMap<BackendName, Recovery>>,
    started_at: Timestamp,
    /// The queues of code contexts.
    code_queues: code::ContextQueues,
    /// Where packages come from, if from anywhere.
    skills: OnceLock<Arc<dyn Skills>>,
    /// Who runs MCP servers, if anybody.
    mcp: OnceLock<Mcp>,
    /// Saved boxes, and where they are kept.
    snapshots: OnceLock<SnapshotStore>,
}

impl Service {
    /// Starts the service: what the store remembers is adopted or honestly lost, what nobody remembers is removed. Where a backend
    /// is not there yet, that is done when it comes, and until then whatever is asked of its sessions is refused with the reason.
    #[boxed]
    pub async fn open(
        backend: Arc<dyn Backend>,
        store: Arc<dyn Store>,
        audit: Option<Arc<AuditLog>>,
        config: ServiceConfig,
    ) -> Result<Self> {
        let inner = Inner {
            backend,
            audit,
            volumes: Volumes::new(config.volumes_dir.clone(), Arc::clone(&store)),
            store,
            config: RwLock::new(Arc::new(config)),
            sessions: Mutex::default(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            watched: Watched::default(),
            budgets: Arc::default(),
            capabilities: Inner::looked_at(),
            named: Mutex::default(),
            surveys: Cached::new(limits::CAPABILITIES_AGE_MAX),
            recoveries: Mutex::default(),
            started_at: Timestamp::now(),
            code_queues: code::ContextQueues::default(),
            skills: OnceLock::new(),
            mcp: OnceLock::new(),
            snapshots: OnceLock::new(),
        };
        let service = Self { inner: Arc::new(inner) };
        if service.inner.enabled().is_ok() {
            recovery::start(&service.inner).await?;
            service.inner.open_volumes().await;
        }
        reaper::start(&service.inner);
        Ok(service)
    }

    /// Changes what can be changed while sessions live. Where directories really are was looked up at the start.
    pub fn reload(&self, config: ServiceConfig) {
        let mut held = self.inner.config.write().unwrap_or_else(PoisonError::into_inner);
        let (default_workspace, state_dir) = (held.default_workspace.clone(), held.state_dir.clone());
        let (volumes_dir, volume_mb) = (held.volumes_dir.clone(), held.volume_mb);
        *held = Arc::new(ServiceConfig { state_dir, default_workspace, volumes_dir, volume_mb, ..config });
    }

    /// Where boxes live, unless something names another backend.
    pub fn backend_name(&self) -> BackendName {
        self.inner.backend.name()
    }

    /// Whether anything can be asked of sessions; if not, why. Asking costs nothing.
    pub fn presence(&self) -> Result<()> {
        self.inner.present()
    }

    /// Refuses what would write to the disk of the state directory while only its reserve is free, and what could not be written
    /// down in the audit log.
    pub fn check_writable(&self) -> Result<()> {
        self.inner.check_writable()
    }

    /// Whether boxes can be made here, and what they hold. Looked at now and then: many ask, and looking costs. While an
    /// engine does not answer, the probe goes on and the caller gets the last known state.
    #[boxed]
    pub async fn backend_info(&self, caller: &Caller) -> Result<(BackendName, Capabilities)> {
        caller.require(Scope::Exec)?;
        let inner = Arc::clone(&self.inner);
        let looking = self.inner.tasks.start(async move {
            let probe = async { Ok::<_, Error>(inner.backend.probe().await) };
            tokio::select! {
                () = inner.stopping.cancelled() => None,
                found = inner.capabilities.get(probe) => found.ok(),
            }
        });
        let is_known = self.inner.capabilities.last().is_some();
        let patience = if is_known { limits::LOOK_TIME_MAX } else { limits::FIRST_LOOK_TIME_MAX };
        let found = tokio::time::timeout(patience, looking).await.ok().and_then(Result::ok).flatten();
        let mut found = found.or_else(|| self.inner.capabilities.last()).unwrap_or_else(|| unknown(&self.inner));
        let name = self.inner.backend.name();
        if found.available {
            // Another one may have taken the place of one that failed.
            recovery::recover_soon(&self.inner, name);
        }
        found.available &= self.inner.present().is_ok();
        Ok((name, found))
    }

    /// The profiles that the caller can ask for: all, or the one to which its token is bound.
    pub fn profiles(&self, caller: &Caller) -> Result<Vec<Profile>> {
        caller.require(Scope::Exec)?;
        let config = self.inner.config();
        match &caller.profile {
            Some(bound) => Ok(vec![config.profiles.get(bound)?.clone()]),
            None => Ok(config.profiles.iter().cloned().collect()),
        }
    }

    /// What went wrong lately for the caller's tenant, newest first.
    pub fn recent_errors(&self, caller: &Caller) -> Result<Vec<RecentError>> {
        caller.require(Scope::Exec)?;
        let mut errors = self.inner.watched.errors_of(&caller.tenant);
        errors.retain(|error| error.session_id.as_ref().is_none_or(|session| caller.sees_session(session)));
        Ok(errors)
    }

    /// Whose sessions there are. For doors that serve many tenants and must tell or drop what all of them hold.
    pub fn tenants(&self) -> BTreeSet<TenantId> {
        self.inner.lock_sessions().keys().map(|key| key.tenant.clone()).collect()
    }

    /// Numbers for metrics.
    pub fn counters(&self) -> Counters {
        let sessions: Vec<_> = self.inner.lock_sessions().values().cloned().collect();
        let sum = |count: fn(&Session) -> usize| sessions.iter().map(|session| count(session) as u64).sum();
        Counters {
            sessions: sessions.len() as u64,
            execs_running: sum(Session::execs_running),
            processes_running: sum(Session::processes_running),
            ..self.inner.watched.counters()
        }
    }
}

/// What is said of a backend that has not said anything of itself yet.
fn unknown(inner: &Inner) -> Capabilities {
    let detail = format!("the {} backend has not answered yet", inner.backend.name());
    let fix = Some("try again in a moment; an engine that stays silent is stopped or overloaded".to_owned());
    let finding = Finding { name: "backend".to_owned(), state: FindingState::Missing, detail, fix };
    Capabilities { available: false, findings: vec![finding] }
}

impl Inner {
    /// What a backend said of itself, nothing yet.
    fn looked_at() -> Cached<Capabilities> {
        Cached::new(limits::CAPABILITIES_AGE_MAX)
    }

    /// Refuses where the operator has switched boxes off.
    fn enabled(&self) -> Result<()> {
        match self.backend.presence() {
            Err(Error::Disabled) => Err(Error::Disabled),
            _ => Ok(()),
        }
    }

    fn check_writable(&self) -> Result<()> {
        let config = self.config();
        if let Some(directory) = &config.state_dir {
            StateDisk::new(directory, config.disk_reserve_mb).check()?;
        }
        match self.audit.as_ref().and_then(|audit| audit.file_error()) {
            Some(reason) => Err(Error::Unrecorded { reason }),
            None => Ok(()),
        }
    }

    /// Refuses while boxes that name no backend cannot be had: there is none, or nobody has looked yet which boxes it has.
    fn present(&self) -> Result<()> {
        self.backend.presence()?;
        match lock(&self.recoveries).get(&self.backend.name()) {
            Some(Recovery::Done) => Ok(()),
            _ => Err(found_again()),
        }
    }

    /// Why nothing can be asked of a session that is known from before.
    fn absence_of(&self, session: &Session) -> Error {
        self.backend_of(session.backend()).presence().err().unwrap_or_else(found_again)
    }

    fn has_recovered_any(&self) -> bool {
        lock(&self.recoveries).values().any(|recovery| *recovery == Recovery::Done)
    }

    /// The backend of that name.
    fn backend_of(&self, name: BackendName) -> Arc<dyn Backend> {
        self.backend.member(name).unwrap_or_else(|| Arc::clone(&self.backend))
    }

    /// The backend on which a box with this specification would live.
    fn backend_for(&self, spec: &BoxSpec) -> Arc<dyn Backend> {
        self.backend_of(spec.backend.unwrap_or_else(|| self.backend.name()))
    }

    /// Who commands really run as in a box.
    fn workload(&self, handle: &Handle, user: User) -> User {
        self.backend_of(handle.backend).workload(user)
    }

    fn config(&self) -> Arc<ServiceConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock_sessions(&self) -> std::sync::MutexGuard<'_, HashMap<SessionKey, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions_of(&self, caller: &Caller) -> Vec<Arc<Session>> {
        let sessions = self.lock_sessions();
        sessions.values().filter(|session| session.key.tenant == caller.tenant).cloned().collect()
    }

    /// Does something to its end, whether or not whoever asked for it stays.
    fn to_the_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> impl Future<Output = Result<T>> {
        ToTheEnd::new(work, self.tasks.clone())
    }

    /// The session of an id, in whatever state it is.
    fn find(&self, caller: &Caller, id: &SessionId) -> Result<Arc<Session>> {
        self.find_for(caller, id, Scope::Exec)
    }

    /// The session of an id, for a caller who needs only this right.
    fn find_for(&self, caller: &Caller, id: &SessionId, scope: Scope) -> Result<Arc<Session>> {
        caller.require(scope)?;
        self.enabled()?;
        caller.check_session(id)?;
        let key = SessionKey { tenant: caller.tenant.clone(), id: id.clone() };
        let found = self.lock_sessions().get(&key).cloned();
        let session = found.ok_or_else(|| Error::SessionNotFound { session: id.clone() })?;
        session.with_config(|config| caller.check_profile(id, &config.profile))?;
        if session.is_awaited() { Err(self.absence_of(&session)) } else { Ok(session) }
    }
}

/// What is told of a session whose backend is there and whose box is still looked for.
fn found_again() -> Error {
    Error::Unavailable {
        what: "a session".to_owned(),
        reason: "boxes of before are being found again".to_owned(),
        fix: "try again in a moment".to_owned(),
    }
}

#[cfg(test)]
pub(crate) use tests::Memory;

#[cfg(test)]
mod tests;
