//! Finds everything again after a restart. Starting up is the recovery path; there is no other.
//!
//! Everything that the store remembers is in the list from the first moment, as awaited. Then each backend that something names is
//! opened, and what lives on it is adopted or honestly lost. Sessions of a backend that cannot be opened stay awaited, and are
//! found when it comes: an engine that is being updated costs nobody a session.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::tasks::Start as _;
use box_wire::{BoxId, ExecId};
use jiff::Timestamp;
use tokio::task::JoinSet;

use super::exec::Exec;
use super::execs::workdir;
use super::journalled::Again;
use super::kept::Kept;
use super::process::{Process, State};
use super::session::{Phase, Session, Standing, lock};
use super::{Inner, Resource};
use crate::caller::TenantId;
use crate::session::{SessionDefaults, SessionRequest, SessionState};
use crate::store::{Change, ExecRow, Loaded, ProcessRow, SessionKey, SessionRow, Wait};
use crate::{Backend, BackendName, Error, Handle, Liveness, Result, fault, link};

/// Sessions that are looked at at the same time.
const AT_ONCE_MAX: usize = 32;

/// How long to wait when sessions could not be found again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How long the start waits for a backend to open. One that takes longer is waited for while others are served.
const OPENING_MAX: Duration = Duration::from_secs(10);

/// How far the search for boxes of before has come on one backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recovery {
    /// They are being looked for, or will be when it is there.
    Underway,
    /// All that there are were found.
    Done,
}

/// What the store remembers of one session.
#[derive(Debug)]
struct Memory {
    row: SessionRow,
    execs: Vec<ExecRow>,
    processes: Vec<ProcessRow>,
}

/// Puts everything that is remembered in the list, and recovers on each backend that something names: at once where it is there, else
/// when it comes. Those that only profiles name have no sessions, and nobody waits for them.
pub(super) async fn start(inner: &Arc<Inner>) -> Result<()> {
    let mut named = BTreeSet::new();
    let loaded = inner.store.load().await?;
    for (key, reason) in &loaded.unreadable {
        if let Err(error) = keep_unreadable(inner, key, reason) {
            tracing::error!(session.id = %key.id, error = %error, "failed to report a session whose row cannot be read");
        }
    }
    for memory in memories(loaded) {
        if memory.row.state == SessionState::Lost {
            keep_lost(inner, memory.row);
        } else {
            named.insert(memory.row.backend_name());
            let session = Arc::new(Session::awaited(&memory.row));
            inner.lock_sessions().insert(memory.row.key, session);
        }
    }
    begin(inner, Arc::clone(&inner.backend)).await;
    let mut running = JoinSet::new();
    for name in &named {
        let (inner, backend) = (Arc::clone(inner), inner.backend_of(*name));
        running.start(async move { begin(&inner, backend).await });
    }
    while running.join_next().await.is_some() {}
    let of_profiles: BTreeSet<_> = inner.config().profiles.iter().filter_map(|profile| profile.backend).collect();
    for name in of_profiles.difference(&named) {
        recover_later(inner, inner.backend_of(*name));
    }
    Ok(())
}

/// Recovers on a backend now if it opens in time, else when it comes.
async fn begin(inner: &Arc<Inner>, backend: Arc<dyn Backend>) {
    let opening = Arc::clone(&backend);
    // A task of its own: an opening that takes long goes on.
    let opened = inner.tasks.start(async move { opening.attempt().await });
    match tokio::time::timeout(OPENING_MAX, opened).await {
        Ok(Ok(Ok(()))) => {
            let backend = inner.backend_of(backend.name());
            if inner.begins_recovery(backend.name()) && !try_recover(inner, &backend).await {
                recover_again(inner, backend);
            }
        }
        _ => recover_later(inner, backend),
    }
}

/// Recovers on a backend that came into use only now, in a task of its own.
pub(super) fn recover_soon(inner: &Arc<Inner>, name: BackendName) {
    if inner.begins_recovery(name) {
        recover_again(inner, inner.backend_of(name));
    }
}

/// Recovers when a backend is there, in a task of its own. Until then nothing can be asked of its sessions.
fn recover_later(inner: &Arc<Inner>, backend: Arc<dyn Backend>) {
    let inner = Arc::clone(inner);
    inner.tasks.clone().start(async move {
        tokio::select! {
            () = inner.stopping.cancelled() => return,
            () = backend.arrives() => {}
        }
        let name = backend.name();
        if inner.begins_recovery(name) {
            recover_again(&inner, inner.backend_of(name));
        }
        tracing::info!(backend = %name, "the backend is there; boxes can be made");
    });
}

/// Recovers until that succeeds, in a task of its own.
fn recover_again(inner: &Arc<Inner>, backend: Arc<dyn Backend>) {
    let inner = Arc::clone(inner);
    inner.tasks.clone().start(async move {
        let recovered = async {
            while !try_recover(&inner, &backend).await {
                tokio::time::sleep(RETRY_AFTER).await;
            }
        };
        tokio::select! {
            () = inner.stopping.cancelled() => {}
            () = recovered => {}
        }
    });
}

async fn try_recover(inner: &Arc<Inner>, backend: &Arc<dyn Backend>) -> bool {
    match recover(inner, &**backend).await {
        Ok(()) => {
            inner.has_recovered(backend.name());
            true
        }
        Err(error) => {
            tracing::error!(backend = %backend.name(), error = %error, "sessions cannot be found again; this is tried again");
            false
        }
    }
}

impl Inner {
    /// Whether nobody has begun to recover on this backend. Whoever is told so does.
    fn begins_recovery(&self, name: BackendName) -> bool {
        let mut recoveries = lock(&self.recoveries);
        let begins = !recoveries.contains_key(&name);
        recoveries.entry(name).or_insert(Recovery::Underway);
        begins
    }

    fn has_recovered(&self, name: BackendName) {
        lock(&self.recoveries).insert(name, Recovery::Done);
        self.capabilities.forget();
    }

    /// Boxes that are somebody's. A lost session has none.
    fn claimed(&self) -> HashSet<BoxId> {
        let has_box = |session: &&Arc<Session>| !matches!(session.phase(), Phase::Lost(_));
        self.lock_sessions().values().filter(has_box).map(|session| session.box_id.clone()).collect()
    }

    fn is_awaited_on(&self, key: &SessionKey, name: BackendName) -> bool {
        let sessions = self.lock_sessions();
        let waits = |session: &Arc<Session>| matches!(session.phase(), Phase::Awaited(_)) && session.backend() == name;
        sessions.get(key).is_some_and(waits)
    }
}

/// Adopts what is there, reports what is lost, removes what nobody remembers: all on one backend.
async fn recover(inner: &Arc<Inner>, backend: &dyn Backend) -> Result<()> {
    let name = backend.name();
    let mut boxes: HashMap<BoxId, Handle> =
        backend.list_orphans().await?.into_iter().map(|handle| (handle.id.clone(), handle)).collect();
    let went_away = Arc::new(AtomicBool::new(false));
    let mut running = JoinSet::new();
    for memory in memories(inner.store.load().await?) {
        if !inner.is_awaited_on(&memory.row.key, name) {
            continue;
        }
        let found = boxes.remove(&memory.row.box_id);
        if running.len() >= AT_ONCE_MAX {
            running.join_next().await;
        }
        let (inner, went_away) = (Arc::clone(inner), Arc::clone(&went_away));
        running.start(async move {
            if recover_session(&inner, memory, found).await.is_err() {
                went_away.store(true, Ordering::Relaxed);
            }
        });
    }
    // Looked at after the boxes were listed, because sessions may be made meanwhile.
    let claimed = inner.claimed();
    for (_, orphan) in boxes.into_iter().filter(|(id, _)| !claimed.contains(id)) {
        let inner = Arc::clone(inner);
        running.start(async move { remove_orphan(&inner, &orphan).await });
    }
    while running.join_next().await.is_some() {}
    if went_away.load(Ordering::Relaxed) {
        return Err(Error::Unavailable {
            what: format!("the {name} backend"),
            reason: "it went away while its boxes were being found again".to_owned(),
            fix: "bring it back".to_owned(),
        });
    }
    fault::point("recovery_done");
    Ok(())
}

fn memories(loaded: Loaded) -> Vec<Memory> {
    let mut by_key: HashMap<SessionKey, Memory> = loaded
        .sessions
        .into_iter()
        .map(|row| (row.key.clone(), Memory { row, execs: Vec::new(), processes: Vec::new() }))
        .collect();
    for exec in loaded.execs {
        if let Some(memory) = by_key.get_mut(&exec.key) {
            memory.execs.push(exec);
        }
    }
    for process in loaded.processes {
        if let Some(memory) = by_key.get_mut(&process.key) {
            memory.processes.push(process);
        }
    }
    by_key.into_values().collect()
}

async fn remove_orphan(inner: &Inner, orphan: &Handle) {
    tracing::info!(r#box.id = %orphan.id, "a box that no session claims is removed");
    if let Err(error) = inner.backend.destroy(orphan).await {
        tracing::error!(r#box.id = %orphan.id, error = %error, "a box that no session claims cannot be removed");
    }
}

/// The backend has gone away again before a session could be found on it.
struct WentAway;

async fn recover_session(inner: &Arc<Inner>, memory: Memory, found: Option<Handle>) -> Result<(), WentAway> {
    match memory.row.state {
        // Whoever asked for it was never told that it exists, or was told that it goes.
        SessionState::Creating | SessionState::Destroying | SessionState::Lost => {
            discard(inner, memory.row, found).await;
            Ok(())
        }
        SessionState::Running | SessionState::Paused => adopt(inner, memory, found).await,
    }
}

async fn discard(inner: &Inner, mut row: SessionRow, found: Option<Handle>) {
    if let Some(handle) = found.or(row.handle.take()) {
        remove_orphan(inner, &handle).await;
    }
    if let Err(error) = inner.store.write(Change::DeleteSession(row.key.clone()), Wait::Committed).await {
        tracing::error!(session.id = %row.key.id, error = %error, "a session cannot be forgotten");
    }
    inner.lock_sessions().remove(&row.key);
    fault::point("recovery_discarded");
}

/// Keeps a session in the list, so that its owner learns what became of it.
fn keep_lost(inner: &Inner, row: SessionRow) {
    let reason = row.lost_reason.clone().unwrap_or_else(|| "the reason is not known".to_owned());
    let key = row.key.clone();
    let session = Arc::new(Session::remembered(row, Phase::Lost(reason.into())));
    inner.lock_sessions().insert(key, session);
}

/// Reports a session as lost whose row cannot be read. The row stays until the owner deletes the session or makes it again;
/// its box is claimed by no session and is removed.
fn keep_unreadable(inner: &Inner, key: &SessionKey, reason: &str) -> Result<()> {
    let config = SessionRequest::default().resolve(&SessionDefaults::new(&inner.config(), &key.tenant), None)?;
    let now = Timestamp::now();
    let row = SessionRow {
        key: key.clone(),
        state: SessionState::Lost,
        config,
        box_id: "unknown".parse()?,
        backend: None,
        handle: None,
        created_at: now,
        last_used_at: now,
        lost_reason: Some(format!("its record cannot be read: {reason}")),
    };
    inner.watched.sessions_lost.add();
    keep_lost(inner, row);
    Ok(())
}

async fn adopt(inner: &Arc<Inner>, mut memory: Memory, found: Option<Handle>) -> Result<(), WentAway> {
    match try_adopt(inner, &memory.row).await {
        Ok(standing) => {
            still_or_moving(inner, &memory.row, &standing).await;
            take_over(inner, memory, &Arc::new(standing)).await;
        }
        Err(Loss::WentAway) => return Err(WentAway),
        Err(Loss::Gone(reason)) => {
            let reason = match &memory.row.handle {
                Some(handle) => inner.why_lost(handle, &memory.row.config, &reason).await,
                None => reason,
            };
            tracing::warn!(session.id = %memory.row.key.id, reason, "a session was lost");
            inner.watched.sessions_lost.add();
            // Where it lived stays known when what finds it goes.
            memory.row.backend = Some(memory.row.backend_name());
            if let Some(handle) = found.or(memory.row.handle.take()) {
                remove_orphan(inner, &handle).await;
            }
            (memory.row.state, memory.row.handle) = (SessionState::Lost, None);
            memory.row.lost_reason = Some(reason);
            let change = Change::PutSession(Box::new(memory.row.clone()));
            if let Err(error) = inner.store.write(change, Wait::Committed).await {
                tracing::error!(error = %error, "a loss cannot be written down");
            }
            keep_lost(inner, memory.row);
        }
    }
    Ok(())
}

/// Why a box was not adopted.
enum Loss {
    /// It is gone, and this is how that is known.
    Gone(String),
    /// Nobody can tell, because its backend cannot be asked any more.
    WentAway,
}

impl From<Error> for Loss {
    fn from(error: Error) -> Self {
        match error {
            Error::Unavailable { .. } => Self::WentAway,
            other => Self::Gone(other.to_string()),
        }
    }
}

async fn try_adopt(inner: &Inner, row: &SessionRow) -> Result<Standing, Loss> {
    let unknown = || Loss::Gone("what finds its box was not written down".to_owned());
    let mut handle = row.handle.clone().ok_or_else(unknown)?;
    handle.agent.check().map_err(Loss::Gone)?;
    if let Liveness::Lost(reason) = inner.backend.adopt(&handle).await? {
        return Err(Loss::Gone(reason));
    }
    let journal = Kept::of(&inner.backend, &handle).await?;
    let workspaces = inner.workspaces_again(&row.config, &mut handle).await;
    Ok(Standing { handle, journal, workspaces })
}

/// Stops a box or lets it go on, as was written down: the server may have died between doing that and writing it.
async fn still_or_moving(inner: &Inner, row: &SessionRow, standing: &Standing) {
    let done = match row.state {
        SessionState::Paused => inner.backend.pause(&standing.handle).await,
        _ => inner.backend.resume(&standing.handle).await,
    };
    match done {
        // Where boxes cannot be stopped, none is.
        Ok(()) | Err(Error::Unavailable { .. }) => {}
        Err(error) => {
            tracing::warn!(session.id = %row.key.id, error = %error, "a box is not in the state that was written down");
        }
    }
}

/// Puts an adopted session into the list and listens again to everything that runs in it.
async fn take_over(inner: &Arc<Inner>, memory: Memory, standing: &Arc<Standing>) {
    let Memory { row, execs, processes } = memory;
    let paused = row.state == SessionState::Paused;
    let stands = Arc::clone(standing);
    let phase = if paused { Phase::Paused(stands) } else { Phase::Running(stands) };
    let key = row.key.clone();
    let session = Arc::new(Session::remembered(row, phase));
    session.set_unsettled(true);
    inner.lock_sessions().insert(key, Arc::clone(&session));
    fault::point("recovery_adopted");
    for row in execs {
        let exec = Arc::new(Exec::new(row));
        hold_again(inner, &session.key.tenant, &exec);
        lock(&session.execs).insert(exec.id.clone(), exec);
    }
    let known: Vec<_> = lock(&session.execs).values().cloned().collect();
    for exec in known.iter().filter(|exec| exec.is_running()) {
        listen_again(inner, &session, standing, exec).await;
    }
    kill_unknown(inner, standing, &known).await;
    for process in processes {
        supervise_again(inner, &session, standing, process);
    }
    inner.watch_workspaces(&session, standing);
    inner.hold_lease(&session, standing);
    session.set_unsettled(false);
}

/// Counts a command that was found again for its tenant. How much output it may keep was decided by an earlier server; at most what
/// is usual now.
fn hold_again(inner: &Inner, tenant: &TenantId, exec: &Exec) {
    let bytes_max = inner.config().journal_bytes_max;
    let bytes = if exec.is_running() { 2 * bytes_max } else { exec.journal_bytes(bytes_max) };
    let is_command = exec.is_running() && exec.process.is_none();
    let place = is_command.then(|| inner.budgets.hold(tenant, Resource::Execs, 1));
    exec.holds(place, inner.budgets.hold(tenant, Resource::JournalBytes, bytes));
}

async fn listen_again(inner: &Arc<Inner>, session: &Arc<Session>, standing: &Arc<Standing>, exec: &Arc<Exec>) {
    match inner.find_again(standing, exec).await {
        Ok(Again::Runs(reader)) => inner.listen(session, standing, exec, reader),
        Ok(Again::Ended(end)) => inner.finish(session, standing, exec, *end).await,
        Err(error) => inner.finish(session, standing, exec, exec.lost_end(&error.to_string())).await,
    }
    fault::point("recovery_found_again");
}

/// Kills commands that run and that nobody remembers: whoever asked for them was never told their ids.
async fn kill_unknown(inner: &Inner, standing: &Standing, known: &[Arc<Exec>]) {
    let known: HashSet<&ExecId> = known.iter().map(|exec| &exec.id).collect();
    let listed = async { link::list(inner.backend.dial(&standing.handle).await?).await };
    let running = match listed.await {
        Ok(running) => running,
        Err(error) => {
            tracing::warn!(r#box.id = %standing.handle.id, error = %error, "a box does not tell what runs in it");
            return;
        }
    };
    for unknown in running.into_iter().filter(|exec| !known.contains(&exec.id)) {
        let killed = async { link::kill(inner.backend.dial(&standing.handle).await?, unknown.id.clone()).await };
        if let Err(error) = killed.await {
            tracing::warn!(exec.id = %unknown.id, error = %error, "a command that nobody remembers cannot be killed");
        }
    }
}

fn supervise_again(inner: &Arc<Inner>, session: &Arc<Session>, standing: &Arc<Standing>, row: ProcessRow) {
    let run = |(number, id): (u32, ExecId)| Some((number, session.exec(&id).ok()?));
    let state = State {
        runs: row.runs.into_iter().filter_map(run).collect(),
        restarts: row.restarts,
        stopping: row.stopping,
        exited_at: None,
    };
    let cwd = session.with_config(|config| workdir(config, row.call.cwd.as_ref())).to_string();
    let process = Arc::new(Process::new(row.key, row.call, cwd, state));
    lock(&session.processes).insert(process.call.process_id.clone(), Arc::clone(&process));
    inner.supervise(session, standing, &process);
}
