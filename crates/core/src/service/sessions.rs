//! What can be asked of sessions: make, find, list, stop where they are, remove.

use std::sync::Arc;

use crate::tasks::Start as _;
use async_recursion::async_recursion as boxed;
use box_wire::{BoxId, FileErrorCode};
use jiff::Timestamp;
use tokio::task::JoinSet;

use super::kept::Kept;
use super::session::{Phase, Session, Standing, lost};
use super::volumes::HeldVolumes;
use super::{Inner, Resource, Service, ServiceConfig, StopMode, Stopped, recovery};
use crate::audit::{AuditEntry, Outcome};
use crate::backend::Stats;
use crate::caller::{Caller, Scope, TenantId};
use crate::profile::LockedField;
use crate::session::{
    AbsentSession, ChangedMounts, LeaseEnd, SessionConfig, SessionDefaults, SessionFilter, SessionId, SessionInfo,
    SessionPage, SessionRequest, SessionState, VanishedBox, check_ttl,
};
use crate::snapshots::SnapshotError;
use crate::store::{Change, SessionKey, Wait};
use crate::{BoxSpec, Error, Liveness, Result, fault, limits, quota};

/// Sessions that are removed at the same time when the service stops.
const REMOVALS_MAX: usize = 16;

/// Whether a call made something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// It did.
    New,
    /// It was there.
    Existing,
}

impl Service {
    /// Makes a session, or returns the one of that id if nothing that was asked differs. One that was lost is made anew.
    #[boxed]
    pub async fn create_session(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
    ) -> Result<(SessionInfo, Created)> {
        let made = self.inner.obtain(caller, id, request, Lost::Rebuild).await;
        let (session, created) = self.inner.noting(caller, "create_session", id, made).await?;
        if created == Created::New {
            self.inner.audit(entry(caller, "create_session", Outcome::Completed, id)).await;
        }
        Ok((session.info(), created))
    }

    /// One session. Looks whether its box is still there.
    #[boxed]
    pub async fn get_session(&self, caller: &Caller, id: &SessionId) -> Result<SessionInfo> {
        let session = self.inner.find(caller, id)?;
        if let Phase::Running(standing) | Phase::Paused(standing) = session.phase()
            && let Ok(Liveness::Lost(reason)) = self.inner.backend.adopt(&standing.handle).await
        {
            self.inner.lose(&session, &reason).await;
        }
        Ok(session.info())
    }

    /// Whether the caller has a session of that id, in whatever state.
    pub fn has_session(&self, caller: &Caller, id: &SessionId) -> Result<bool> {
        match self.inner.find(caller, id) {
            Ok(_) => Ok(true),
            Err(Error::SessionNotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// How a session stood when it was last looked at. Asking costs nothing.
    pub fn session_state(&self, caller: &Caller, id: &SessionId) -> Result<SessionState> {
        Ok(self.inner.find(caller, id)?.row().state)
    }

    /// One session as it stood when it was last looked at. Asking costs nothing.
    pub fn peek_session(&self, caller: &Caller, id: &SessionId) -> Result<SessionInfo> {
        Ok(self.inner.find(caller, id)?.info())
    }

    /// The caller's sessions, in order of their ids.
    #[expect(clippy::unused_async, reason = "doors await every call alike")]
    pub async fn list_sessions(&self, caller: &Caller, filter: &SessionFilter) -> Result<SessionPage> {
        caller.require(Scope::Exec)?;
        self.inner.enabled()?;
        if !self.inner.has_recovered_any() {
            self.inner.present()?;
        }
        let mut found = self.inner.sessions_of(caller);
        found.retain(|session| {
            let id = session.key.id.as_str();
            caller.sees_session(&session.key.id)
                && filter.prefix.as_deref().is_none_or(|prefix| id.starts_with(prefix))
                && filter.after.as_ref().is_none_or(|after| id > after.as_str())
                && filter.state.is_none_or(|state| session.row().state == state)
        });
        found.sort_by(|one, other| one.key.id.cmp(&other.key.id));
        let limit = filter.limit.unwrap_or(limits::PAGE_MAX).clamp(1, limits::PAGE_MAX);
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|session| session.key.id.clone());
        Ok(SessionPage { sessions: found.iter().map(|session| session.info()).collect(), next })
    }

    /// Changes how long a session may be idle.
    #[boxed]
    pub async fn set_session_ttl(&self, caller: &Caller, id: &SessionId, ttl_sec: u64) -> Result<SessionInfo> {
        check_ttl(ttl_sec)?;
        let session = self.inner.find(caller, id)?;
        if session.with_config(|config| config.locked.contains(&LockedField::TtlSec)) {
            let what = format!("ttl_sec of session {id} is locked by its profile");
            return Err(Error::Conflict { what, fix: "leave it as it is".to_owned() });
        }
        self.inner.change_ttl(&session, ttl_sec).await?;
        Ok(session.info())
    }

    /// Changes when the box of a session ends itself although something runs in it, if no server is there.
    #[boxed]
    pub async fn set_lease_end(&self, caller: &Caller, id: &SessionId, end: LeaseEnd) -> Result<()> {
        let session = self.inner.find(caller, id)?;
        session.set_lease_end(end);
        self.inner.store.write(Change::PutSession(Box::new(session.row())), Wait::Queued).await
    }

    /// Destroys a session with everything in it.
    #[boxed]
    pub async fn delete_session(&self, caller: &Caller, id: &SessionId) -> Result<()> {
        let session = self.inner.find(caller, id)?;
        let (inner, caller, id) = (Arc::clone(&self.inner), caller.clone(), id.clone());
        let deleted = async move {
            let removed = inner.remove(&session).await;
            inner.noting(&caller, "delete_session", &id, removed).await?;
            inner.audit(entry(&caller, "delete_session", Outcome::Completed, &id)).await;
            Ok(())
        };
        self.inner.to_the_end(deleted).await
    }

    /// Stops a session where it is.
    #[boxed]
    pub async fn pause_session(&self, caller: &Caller, id: &SessionId) -> Result<SessionInfo> {
        let session = self.inner.find(caller, id)?;
        let inner = Arc::clone(&self.inner);
        self.inner.to_the_end(async move { inner.pause(&session).await.map(|()| session.info()) }).await
    }

    /// Lets a session go on.
    #[boxed]
    pub async fn resume_session(&self, caller: &Caller, id: &SessionId) -> Result<SessionInfo> {
        let session = self.inner.find(caller, id)?;
        let inner = Arc::clone(&self.inner);
        self.inner.to_the_end(async move { inner.wake(&session).await.map(|_| session.info()) }).await
    }

    /// What the box of a session consumes now.
    #[boxed]
    pub async fn session_stats(&self, caller: &Caller, id: &SessionId) -> Result<Stats> {
        let standing = self.inner.find(caller, id)?.standing()?;
        self.inner.backend.stats(&standing.handle).await
    }

    /// Stops everything that the service does. Calls that come later are refused. Also returns the error of a removal that failed.
    #[boxed]
    pub async fn stop(&self, mode: StopMode) -> (Stopped, Result<()>) {
        self.inner.stopping.cancel();
        let sessions: Vec<_> = self.inner.lock_sessions().values().cloned().collect();
        let goes = |session: &Arc<Session>| match mode {
            StopMode::KeepAll => false,
            StopMode::KeepPersistent => !session.with_config(|config| config.persistent),
            StopMode::DestroyAll => true,
        };
        let (gone, kept): (Vec<_>, Vec<_>) = sessions.into_iter().partition(goes);
        let with_box: Vec<_> = gone.iter().filter(|session| session.has_box()).cloned().collect();
        let outcome = self.inner.remove_all(gone).await;
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        (Stopped::of(&kept, &with_box), outcome)
    }
}

impl Stopped {
    fn of(kept: &[Arc<Session>], gone: &[Arc<Session>]) -> Self {
        let kept: Vec<_> = kept.iter().filter(|session| session.has_box()).collect();
        let stays = |config: &SessionConfig| config.unattended_end() == LeaseEnd::Never;
        let removed = gone.iter().filter(|session| matches!(session.phase(), Phase::Gone(_))).count();
        Self {
            kept: kept.len(),
            kept_persistent: kept.iter().filter(|session| session.with_config(stays)).count(),
            running: kept.iter().map(|session| session.execs_running() + session.processes_running()).sum(),
            removed,
            not_removed: gone.len() - removed,
        }
    }
}

/// What is done about a session whose box has vanished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// A new box is made.
    Rebuild,
    /// The caller is told.
    Report,
}

impl Inner {
    /// Remembers an error, for those who watch and in the audit log.
    pub(super) async fn noting<T>(
        &self,
        caller: &Caller,
        operation: &'static str,
        id: &SessionId,
        outcome: Result<T>,
    ) -> Result<T> {
        if let Err(error) = &outcome {
            if !is_askers_affair(error) {
                self.watched.remember(&caller.tenant, caller.query_id.as_deref(), operation, Some(id), error);
            }
            let entry = entry(caller, operation, Outcome::Refused, id);
            let (detail, reason) = (Some(error.code().to_owned()), Some(error.to_string()));
            self.audit(AuditEntry { detail, reason, ..entry }).await;
        }
        outcome
    }

    /// The session of an id, made if there is none. Two callers who ask for one id at once get one box.
    pub(super) async fn obtain(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        when_lost: Lost,
    ) -> Result<(Arc<Session>, Created)> {
        caller.require(Scope::Exec)?;
        self.enabled()?;
        let key = SessionKey { tenant: caller.tenant.clone(), id: id.clone() };
        // Until the session is listed, which keeps its volumes from then on.
        let held = self.hold_volumes(caller, id, request).await?;
        let made_from = self.resolve_snapshot(caller, id, request).await?;
        let (session, created) = loop {
            if self.stopping.is_cancelled() {
                return Err(Error::Stopping);
            }
            let (session, created) = match self.find_or_begin(caller, &key, request, made_from.as_ref(), &held)? {
                SessionLookup::New(session, spec) => {
                    self.begin_making(&session, spec);
                    (session, Created::New)
                }
                SessionLookup::Existing(session) if session.is_awaited() => return Err(self.absence_of(&session)),
                SessionLookup::Existing(session) => (session, Created::Existing),
                SessionLookup::Outdated(session) => {
                    self.remove(&session).await?;
                    continue;
                }
            };
            let replaces = request.rules.vanished_box == VanishedBox::Replaced;
            match session.made().await {
                Phase::Running(standing) | Phase::Paused(standing) if replaces && created == Created::Existing => {
                    match self.backend.dial(&standing.handle).await {
                        Err(Error::Gone { reason }) => self.lose(&session, &reason).await,
                        _ => break (session, created),
                    }
                }
                Phase::Running(_) | Phase::Paused(_) => break (session, created),
                Phase::Lost(reason) if when_lost == Lost::Report && !replaces => return Err(lost(&reason)),
                Phase::Lost(_) => self.remove(&session).await?,
                Phase::Gone(Some(error)) => return Err(error.replica()),
                Phase::Awaited(_) => return Err(self.absence_of(&session)),
                Phase::Creating | Phase::Gone(None) => {}
                Phase::Destroying(_) => drop(session.settled().await),
            }
        };
        self.follow_ttl(&session, request).await?;
        Ok((session, created))
    }

    /// Changes the idle time of a session if the request names another one.
    async fn follow_ttl(&self, session: &Session, request: &SessionRequest) -> Result<()> {
        match session.with_config(|config| config.new_ttl(request)) {
            Some(ttl_sec) => self.change_ttl(session, ttl_sec).await,
            None => Ok(()),
        }
    }

    async fn change_ttl(&self, session: &Session, ttl_sec: u64) -> Result<()> {
        check_ttl(ttl_sec)?;
        session.set_ttl(ttl_sec);
        session.touch();
        self.store.write(Change::PutSession(Box::new(session.row())), Wait::Committed).await?;
        fault::point("session_ttl_written");
        Ok(())
    }

    /// Finds the session or puts a new one in the list, in one step, without waiting. `made_from` is the request with what its
    /// snapshot says.
    fn find_or_begin(
        &self,
        caller: &Caller,
        key: &SessionKey,
        request: &SessionRequest,
        made_from: Option<&SessionRequest>,
        held: &HeldVolumes,
    ) -> Result<SessionLookup> {
        let settings = self.config();
        request.check_profile(caller.profile.as_deref())?;
        caller.check_session(&key.id)?;
        if let Some(session) = self.lock_sessions().get(key) {
            return existing(session, caller, request, &settings);
        }
        if request.rules.absent_session == AbsentSession::Refused {
            return Err(Error::SessionNotFound { session: key.id.clone() });
        }
        // Everything that can be refused is refused before there is anything to undo.
        self.check_writable()?;
        if let (Some(name), None) = (&request.snapshot, made_from) {
            return Err(SnapshotError::NotFound { name: name.clone() }.into());
        }
        let (config, spec) = self.decide(caller, made_from.unwrap_or(request), held)?;
        let spec = BoxSpec { session: Some(key.id.to_string()), ..spec };
        if spec.backend.is_none() {
            self.backend.presence()?;
        }
        let box_id: BoxId = format!("s{}", uuid::Uuid::now_v7().simple()).parse()?;
        let mut sessions = self.lock_sessions();
        if let Some(session) = sessions.get(key) {
            return existing(session, caller, request, &settings);
        }
        let held = |counts: &dyn Fn(&TenantId) -> bool| sessions.keys().filter(|key| counts(&key.tenant)).count();
        self.check_count(caller, Resource::Sessions, held, |ceiling| ceiling.max_sessions)?;
        let session = Arc::new(Session::new(key.clone(), box_id, self.backend_for(&spec).name(), config));
        sessions.insert(key.clone(), Arc::clone(&session));
        Ok(SessionLookup::New(session, Box::new(spec)))
    }

    /// What a request means, decided and checked.
    pub(super) fn decide(
        &self,
        caller: &Caller,
        request: &SessionRequest,
        held: &HeldVolumes,
    ) -> Result<(SessionConfig, BoxSpec)> {
        let settings = self.config();
        let volumes = held.directories.clone();
        let defaults = SessionDefaults { volumes, ..SessionDefaults::new(&settings, &caller.tenant) };
        let config = request.resolve(&defaults, caller.profile.as_deref())?;
        let spec = config.box_spec(&settings.profiles, &settings.image_policy(), &request.rules)?;
        Ok((config, BoxSpec { keeps_journal: true, ..spec }))
    }

    /// Makes the box in a task of its own, so that a caller who hangs up does not leave half of one.
    fn begin_making(self: &Arc<Self>, session: &Arc<Session>, spec: Box<BoxSpec>) {
        let (inner, session) = (Arc::clone(self), Arc::clone(session));
        self.tasks.start(async move {
            match inner.make(&session, &spec).await {
                Ok(standing) => {
                    inner.watched.sessions_created.add();
                    session.touch();
                    session.set_phase(Phase::Running(Arc::clone(&standing)));
                    inner.watch_workspaces(&session, &standing);
                    inner.hold_lease(&session, &standing);
                }
                Err(error) => {
                    inner.watched.sessions_failed.add();
                    inner.forget(&session, Some(Arc::new(error))).await;
                }
            }
        });
    }

    /// Intent first, then the box, then what finds it again.
    async fn make(self: &Arc<Self>, session: &Session, spec: &BoxSpec) -> Result<Arc<Standing>> {
        self.store.write(Change::PutSession(Box::new(session.row())), Wait::Committed).await?;
        fault::point("session_intent_written");
        let config = session.config();
        self.check_volumes(&config, self.backend_for(spec).name()).await?;
        let mut workspaces = self.workspaces_of(&config, spec).await?;
        let mut handle = self.backend.create(&session.box_id, spec).await?;
        if handle.backend != session.backend() {
            // The one that was chosen has failed, and another took its place.
            session.set_backend(handle.backend);
            if let Err(error) = self.check_volumes(&config, handle.backend).await {
                let _ = self.backend.destroy(&handle).await;
                return Err(error);
            }
            workspaces = self.workspaces_again(&config, &mut handle).await;
        }
        recovery::recover_soon(self, handle.backend);
        let held: Vec<_> = workspaces.iter().map(|held| (&held.target, held.quota)).collect();
        quota::tell(&mut handle.guarantees, &config, &held);
        fault::point("session_box_made");
        let standing = async {
            let journal = Kept::of(&self.backend, &handle).await?;
            let standing = Arc::new(Standing { handle: handle.clone(), journal, workspaces });
            let mut row = session.row();
            (row.state, row.handle) = (crate::session::SessionState::Running, Some(handle.clone()));
            self.store.write(Change::PutSession(Box::new(row)), Wait::Committed).await?;
            fault::point("session_row_committed");
            Ok(standing)
        };
        match standing.await {
            Ok(standing) => Ok(standing),
            Err(error) => {
                let _ = self.backend.destroy(&handle).await;
                Err(error)
            }
        }
    }

    /// Takes a session out of the list and of the memory.
    async fn forget(&self, session: &Session, error: Option<Arc<Error>>) {
        if let Err(error) = self.store.write(Change::DeleteSession(session.key.clone()), Wait::Committed).await {
            tracing::error!(session.id = %session.key.id, error = %error, "a session cannot be forgotten");
        }
        fault::point("session_row_deleted");
        self.lock_sessions().remove(&session.key);
        session.set_phase(Phase::Gone(error));
    }

    /// Destroys a session, in a task of its own; everybody who asks for it waits for the same end.
    pub(super) async fn remove(self: &Arc<Self>, session: &Arc<Session>) -> Result<()> {
        drop(session.made().await);
        let begun = session.change_phase(|phase| match phase {
            Phase::Running(standing) | Phase::Paused(standing) => Some(Phase::Destroying(Some(Arc::clone(standing)))),
            Phase::Lost(_) => Some(Phase::Destroying(None)),
            Phase::Creating | Phase::Awaited(_) | Phase::Destroying(_) | Phase::Gone(_) => None,
        });
        if begun {
            let (inner, session) = (Arc::clone(self), Arc::clone(session));
            self.tasks.start(async move { inner.destroy(&session).await });
        }
        match session.settled().await {
            Phase::Lost(reason) => Err(Error::Setup { step: "destroy".to_owned(), reason: reason.to_string() }),
            _ => Ok(()),
        }
    }

    async fn destroy(&self, session: &Session) {
        // On a full disk nothing can be written before something was removed. Without the intent, the next start finds the session
        // as it was, and its box lost.
        if let Err(error) = self.store.write(Change::PutSession(Box::new(session.row())), Wait::Committed).await {
            tracing::warn!(session.id = %session.key.id, error = %error, "failed to write the intent to remove a session");
        }
        fault::point("destroy_intent_written");
        let destroyed = match session.phase() {
            Phase::Destroying(Some(standing)) => self.backend.destroy(&standing.handle).await,
            _ => Ok(()),
        };
        fault::point("session_box_destroyed");
        match destroyed {
            Ok(()) => self.forget(session, None).await,
            Err(error) => {
                let reason = format!("its box could not be removed: {error}");
                tracing::error!(session.id = %session.key.id, error = %error, "a box cannot be removed");
                session.set_phase(Phase::Lost(reason.into()));
            }
        }
    }

    /// Removes many, a few at a time. Returns the first error, after all were tried.
    pub(super) async fn remove_all(self: &Arc<Self>, sessions: Vec<Arc<Session>>) -> Result<()> {
        let mut outcome = Ok(());
        let mut running = JoinSet::new();
        for session in sessions {
            if running.len() >= REMOVALS_MAX
                && let Some(Ok(Err(error))) = running.join_next().await
            {
                outcome = Err(error);
            }
            let inner = Arc::clone(self);
            running.start(async move { inner.remove(&session).await });
        }
        while let Some(joined) = running.join_next().await {
            if let Ok(Err(error)) = joined {
                outcome = Err(error);
            }
        }
        outcome
    }

    /// The box has vanished: that is told from now on, and what is left of it is removed.
    pub(super) async fn lose(self: &Arc<Self>, session: &Arc<Session>, reason: &str) {
        let mut standing = None;
        let changed = session.change_phase(|phase| match phase {
            Phase::Running(stood) | Phase::Paused(stood) => {
                standing = Some(Arc::clone(stood));
                Some(Phase::Lost(reason.into()))
            }
            _ => None,
        });
        let (true, Some(standing)) = (changed, standing) else { return };
        let reason = self.why_lost(&standing.handle, &session.config(), reason).await;
        session.change_phase(|phase| matches!(phase, Phase::Lost(_)).then(|| Phase::Lost(reason.as_str().into())));
        tracing::warn!(session.id = %session.key.id, reason, "a box has vanished");
        self.watched.sessions_lost.add();
        if let Err(error) = self.store.write(Change::PutSession(Box::new(session.row())), Wait::Committed).await {
            tracing::error!(session.id = %session.key.id, error = %error, "a loss cannot be written down");
        }
        if let Err(error) = self.backend.destroy(&standing.handle).await {
            tracing::error!(session.id = %session.key.id, error = %error, "remains of a box cannot be removed");
        }
    }

    async fn pause(&self, session: &Session) -> Result<()> {
        let _one_at_a_time = session.freezer.lock().await;
        if let Phase::Running(standing) = session.phase() {
            self.send_terms(session, &standing.handle, true).await;
            if let Err(error) = self.backend.pause(&standing.handle).await {
                self.send_terms(session, &standing.handle, false).await;
                return Err(error);
            }
            fault::point("session_paused");
            session.change_phase(|phase| matches!(phase, Phase::Running(_)).then_some(Phase::Paused(standing)));
            self.store.write(Change::PutSession(Box::new(session.row())), Wait::Committed).await?;
            fault::point("session_pause_written");
        }
        session.standing().map(drop)
    }

    /// Lets a session go on if it is stopped.
    pub(super) async fn wake(self: &Arc<Self>, session: &Arc<Session>) -> Result<Arc<Standing>> {
        if let Phase::Running(standing) = session.phase() {
            return Ok(standing);
        }
        let _one_at_a_time = session.freezer.lock().await;
        if let Phase::Paused(standing) = session.phase() {
            self.backend.resume(&standing.handle).await?;
            fault::point("session_resumed");
            session.touch();
            session.change_phase(|phase| matches!(phase, Phase::Paused(_)).then_some(Phase::Running(standing)));
            self.store.write(Change::PutSession(Box::new(session.row())), Wait::Committed).await?;
        }
        session.standing()
    }
}

/// Whether only whoever asked can do something about it: a name that nobody has, a text that is not in a file. The list of what
/// went wrong lately would be full of it.
fn is_askers_affair(error: &Error) -> bool {
    match error {
        Error::SessionNotFound { .. } | Error::VolumeNotFound { .. } | Error::PortClosed { .. } => true,
        Error::File(error) => {
            !matches!(error.code, FileErrorCode::NoSpace | FileErrorCode::Timeout | FileErrorCode::Failed)
        }
        _ => false,
    }
}

/// What the audit log is told of a call.
pub(super) fn entry(caller: &Caller, operation: &'static str, outcome: Outcome, session: &SessionId) -> AuditEntry {
    AuditEntry { session: Some(session.clone()), ..AuditEntry::new(caller, operation, outcome, Timestamp::now()) }
}

/// What looking for a session came to.
enum SessionLookup {
    Existing(Arc<Session>),
    /// To be removed and made anew.
    Outdated(Arc<Session>),
    New(Arc<Session>, Box<BoxSpec>),
}

fn existing(
    session: &Arc<Session>,
    caller: &Caller,
    request: &SessionRequest,
    settings: &ServiceConfig,
) -> Result<SessionLookup> {
    session.with_config(|config| caller.check_profile(&session.key.id, &config.profile))?;
    let mut differences = match session.phase() {
        // What is on its way out, or lost, does not stand in the way of anything.
        Phase::Destroying(_) | Phase::Gone(_) | Phase::Lost(_) | Phase::Awaited(_) => Vec::new(),
        Phase::Creating | Phase::Running(_) | Phase::Paused(_) => {
            session.with_config(|config| config.differences(request, &settings.image_policy()))
        }
    };
    if request.rules.changed_mounts == ChangedMounts::Keep {
        differences.retain(|difference| difference.field != "extra_mounts");
    }
    if differences.is_empty() {
        return Ok(SessionLookup::Existing(Arc::clone(session)));
    }
    let only_mounts = differences.iter().all(|difference| difference.field == "extra_mounts");
    if only_mounts && request.rules.changed_mounts == ChangedMounts::Rebuild {
        return Ok(SessionLookup::Outdated(Arc::clone(session)));
    }
    Err(Error::SessionConflict { session: session.key.id.clone(), differences })
}
