//! A session that lives: its state, and what runs in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use box_wire::{BoxId, ExecId};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};

use super::exec::Exec;
use super::kept::Kept;
use super::process::Process;
use crate::call::{ProcessId, Target};
use crate::quota::Workspace;
use crate::session::{LeaseEnd, SessionConfig, SessionInfo, SessionState};
use crate::store::{SessionKey, SessionRow};
use crate::{BackendName, Error, Guarantees, Handle, Result, limits};

/// A session that lives. Locks are held for moments, never over an await.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) key: SessionKey,
    pub(super) box_id: BoxId,
    pub(super) created_at: Timestamp,
    backend: Mutex<BackendName>,
    config: Mutex<SessionConfig>,
    phase: watch::Sender<Phase>,
    last_used: Mutex<Timestamp>,
    /// Calls that are being served.
    users: AtomicUsize,
    /// Connections to ports of its box.
    ports: AtomicUsize,
    /// Wakes the lease task when the terms of the lease change.
    terms_changed: Notify,
    /// Whether what runs in it is still being found again.
    is_unsettled: AtomicBool,
    pub(super) execs: Mutex<BTreeMap<ExecId, Arc<Exec>>>,
    pub(super) processes: Mutex<BTreeMap<ProcessId, Arc<Process>>>,
    /// Skills that commands may use.
    pub(super) activated: Mutex<BTreeSet<String>>,
    /// Held by who changes whether the box is stopped, so that the state is what was last done.
    pub(super) freezer: tokio::sync::Mutex<()>,
}

/// How a session stands, with what only that state has.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Creating,
    /// Known from before a restart; its box is looked for when its backend is there.
    Awaited(Arc<SessionRow>),
    Running(Arc<Standing>),
    Paused(Arc<Standing>),
    Destroying(Option<Arc<Standing>>),
    Lost(Arc<str>),
    /// Not in the list any more; with the error when it could not be made.
    Gone(Option<Arc<Error>>),
}

/// A box that stands.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) handle: Handle,
    pub(super) journal: Kept,
    /// Its workspace and what it keeps, where they have a quota that nothing but us holds.
    pub(super) workspaces: Vec<Arc<Workspace>>,
}

/// Somebody uses the session; it does not expire meanwhile.
#[derive(Debug)]
pub(super) struct Use(Arc<Session>);

/// One of the connections to ports that a session may have.
#[derive(Debug)]
pub(super) struct PortPlace(Arc<Session>);

impl Session {
    pub(super) fn new(key: SessionKey, box_id: BoxId, backend: BackendName, config: SessionConfig) -> Self {
        let now = Timestamp::now();
        Self::from_parts(key, box_id, backend, config, now, Phase::Creating)
    }

    pub(super) fn remembered(row: SessionRow, phase: Phase) -> Self {
        let backend = row.backend_name();
        Self::from_parts(row.key, row.box_id, backend, row.config, row.created_at, phase)
    }

    /// One whose box is looked for when its backend is there.
    pub(super) fn awaited(row: &SessionRow) -> Self {
        Self::remembered(row.clone(), Phase::Awaited(Arc::new(row.clone())))
    }

    fn from_parts(
        key: SessionKey,
        box_id: BoxId,
        backend: BackendName,
        config: SessionConfig,
        created_at: Timestamp,
        phase: Phase,
    ) -> Self {
        Self {
            key,
            box_id,
            created_at,
            backend: Mutex::new(backend),
            config: Mutex::new(config),
            phase: watch::Sender::new(phase),
            // After a restart the time of the last use is not known exactly; nobody is hurt by counting from now.
            last_used: Mutex::new(Timestamp::now()),
            users: AtomicUsize::new(0),
            ports: AtomicUsize::new(0),
            terms_changed: Notify::new(),
            is_unsettled: AtomicBool::new(false),
            execs: Mutex::default(),
            processes: Mutex::default(),
            activated: Mutex::default(),
            freezer: tokio::sync::Mutex::default(),
        }
    }

    /// Where its box lives, or was to live.
    pub(super) fn backend(&self) -> BackendName {
        *lock(&self.backend)
    }

    pub(super) fn set_backend(&self, backend: BackendName) {
        *lock(&self.backend) = backend;
    }

    /// Whether it, or what runs in it, is still to be found again. Until then nothing can be asked of it.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_unsettled.load(Ordering::Acquire) || matches!(self.phase(), Phase::Awaited(_))
    }

    pub(super) fn set_unsettled(&self, is_unsettled: bool) {
        self.is_unsettled.store(is_unsettled, Ordering::Release);
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    pub(super) fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Changes the phase if `change` says to what. Returns whether it did.
    pub(super) fn change_phase(&self, change: impl FnOnce(&Phase) -> Option<Phase>) -> bool {
        self.phase.send_if_modified(|phase| match change(phase) {
            Some(next) => {
                *phase = next;
                true
            }
            None => false,
        })
    }

    pub(super) fn config(&self) -> SessionConfig {
        lock(&self.config).clone()
    }

    pub(super) fn with_config<T>(&self, look: impl FnOnce(&SessionConfig) -> T) -> T {
        look(&lock(&self.config))
    }

    pub(super) fn set_ttl(&self, ttl_sec: u64) {
        lock(&self.config).ttl_sec = ttl_sec;
        // Stored for a lease task that does not wait yet.
        self.terms_changed.notify_one();
    }

    pub(super) fn set_lease_end(&self, end: LeaseEnd) {
        lock(&self.config).lease_end = end;
        self.terms_changed.notify_one();
    }

    /// Waits until the idle time or the end of the lease changes.
    pub(super) async fn terms_changed(&self) {
        self.terms_changed.notified().await;
    }

    /// The box, if it stands. Paused ones stand.
    pub(super) fn standing(&self) -> Result<Arc<Standing>> {
        match self.phase() {
            Phase::Running(standing) | Phase::Paused(standing) => Ok(standing),
            Phase::Lost(reason) => Err(lost(&reason)),
            Phase::Creating | Phase::Awaited(_) | Phase::Destroying(_) | Phase::Gone(_) => {
                Err(Error::SessionNotFound { session: self.key.id.clone() })
            }
        }
    }

    /// Whether the session has a box, as far as is known.
    pub(super) fn has_box(&self) -> bool {
        !matches!(self.phase(), Phase::Lost(_) | Phase::Gone(_))
    }

    /// Waits while the box is being made.
    pub(super) async fn made(&self) -> Phase {
        let mut phases = self.phases();
        // The sender lives as long as `self`, so waiting cannot fail.
        match phases.wait_for(|phase| !matches!(phase, Phase::Creating)).await {
            Ok(phase) => phase.clone(),
            Err(_) => Phase::Gone(None),
        }
    }

    /// Waits until the session is not in the list any more, or stands again because it could not be removed.
    pub(super) async fn settled(&self) -> Phase {
        let mut phases = self.phases();
        match phases.wait_for(|phase| !matches!(phase, Phase::Destroying(_))).await {
            Ok(phase) => phase.clone(),
            Err(_) => Phase::Gone(None),
        }
    }

    pub(super) fn start_use(self: &Arc<Self>) -> Use {
        self.users.fetch_add(1, Ordering::SeqCst);
        self.touch();
        Use(Arc::clone(self))
    }

    /// A place for one more connection to a port, if there is any.
    pub(super) fn port_place(self: &Arc<Self>) -> Option<PortPlace> {
        let one_more = |open: usize| (open < limits::PORT_STREAMS_PER_SESSION_MAX).then_some(open + 1);
        let taken = self.ports.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more);
        taken.is_ok().then(|| PortPlace(Arc::clone(self)))
    }

    pub(super) fn touch(&self) {
        *lock(&self.last_used) = Timestamp::now();
    }

    pub(super) fn execs_running(&self) -> usize {
        let execs = lock(&self.execs);
        execs.values().filter(|exec| exec.is_running() && exec.process.is_none()).count()
    }

    pub(super) fn processes_running(&self) -> usize {
        lock(&self.processes).values().filter(|process| process.is_running()).count()
    }

    /// Whether something keeps the session from expiring.
    pub(super) fn is_kept(&self) -> bool {
        self.with_config(|config| config.persistent)
            || self.users.load(Ordering::SeqCst) > 0
            || self.execs_running() > 0
            || lock(&self.processes).values().any(|process| process.is_running() && !process.is_code_context())
    }

    fn expiry(&self) -> Timestamp {
        let ttl = Duration::from_secs(self.with_config(|config| config.ttl_sec));
        let ttl = SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
        lock(&self.last_used).checked_add(ttl).unwrap_or(Timestamp::MAX)
    }

    /// Whether nobody has used it for too long.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        let settled = matches!(self.phase(), Phase::Running(_) | Phase::Paused(_) | Phase::Lost(_));
        settled && !self.is_kept() && self.expiry() <= now
    }

    pub(super) fn exec(&self, id: &ExecId) -> Result<Arc<Exec>> {
        let found = lock(&self.execs).get(id).cloned();
        found.ok_or_else(|| Error::ExecNotFound { session: self.key.id.clone(), exec: id.to_string() })
    }

    pub(super) fn process(&self, id: &ProcessId) -> Result<Arc<Process>> {
        let found = lock(&self.processes).get(id).cloned();
        found.ok_or_else(|| Error::ProcessNotFound { session: self.key.id.clone(), process: id.clone() })
    }

    /// The exec that a target means now.
    pub(super) fn target(&self, target: &Target) -> Result<Arc<Exec>> {
        match target {
            Target::Exec(id) => self.exec(id),
            Target::Process(id) => self.process(id)?.current().ok_or_else(|| Error::ProcessConflict {
                session: self.key.id.clone(),
                process: id.clone(),
                what: "has not been started yet; try again".to_owned(),
            }),
        }
    }

    pub(super) fn row(&self) -> SessionRow {
        let (state, handle, lost_reason) = match self.phase() {
            Phase::Creating => (SessionState::Creating, None, None),
            Phase::Awaited(row) => (row.state, row.handle.clone(), row.lost_reason.clone()),
            Phase::Running(standing) => (SessionState::Running, Some(standing.handle.clone()), None),
            Phase::Paused(standing) => (SessionState::Paused, Some(standing.handle.clone()), None),
            Phase::Destroying(standing) => {
                (SessionState::Destroying, standing.map(|standing| standing.handle.clone()), None)
            }
            Phase::Lost(reason) => (SessionState::Lost, None, Some(reason.to_string())),
            Phase::Gone(_) => (SessionState::Destroying, None, None),
        };
        SessionRow {
            key: self.key.clone(),
            state,
            config: self.config(),
            box_id: self.box_id.clone(),
            backend: Some(self.backend()),
            handle,
            created_at: self.created_at,
            last_used_at: *lock(&self.last_used),
            lost_reason,
        }
    }

    pub(super) fn info(&self) -> SessionInfo {
        let row = self.row();
        SessionInfo {
            session_id: self.key.id.clone(),
            state: row.state,
            backend_name: self.backend(),
            backend_session_id: self.box_id.to_string(),
            expires_at: (!self.is_kept()).then(|| self.expiry()),
            config: row.config,
            created_at: row.created_at,
            last_used_at: row.last_used_at,
            execs_running: self.execs_running(),
            processes_running: self.processes_running(),
            guarantees: row.handle.map_or_else(Guarantees::default, |handle| handle.guarantees),
            lost_reason: row.lost_reason,
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.touch();
        self.0.users.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for PortPlace {
    fn drop(&mut self) {
        self.0.ports.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a caller is told of a session whose box has vanished.
pub(super) fn lost(reason: &str) -> Error {
    let told = format!("{reason}; create the session again for a new box, or delete it");
    Error::Gone { reason: told }
}

/// Locks for a moment; what a panicking thread left is still whole, because every change is one assignment.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
