//! Finds everything again after a restart. Starting up is the recovery path; there is no other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use box_wire::{BoxId, ExecId};
use tokio::task::JoinSet;

use super::Inner;
use super::exec::Exec;
use super::execs::workdir;
use super::journalled::Again;
use super::process::{Process, State};
use super::session::{Phase, Session, Standing, lock};
use crate::journal::Journal;
use crate::session::SessionState;
use crate::store::{Change, ExecRow, ProcessRow, SessionKey, SessionRow, Wait};
use crate::{Error, Handle, Liveness, Result, fault, link};

/// Sessions that are looked at at the same time.
const AT_ONCE_MAX: usize = 32;

/// How long to wait when sessions could not be found again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// What the store remembers of one session.
#[derive(Debug)]
struct Memory {
    row: SessionRow,
    execs: Vec<ExecRow>,
    processes: Vec<ProcessRow>,
}

/// Recovers when the backend is there, in a task of its own. Until then nothing can be asked of sessions.
pub(super) fn recover_later(inner: &Arc<Inner>) {
    let inner = Arc::clone(inner);
    inner.tasks.clone().spawn(async move {
        let recovered = async {
            inner.backend.arrives().await;
            while let Err(error) = recover(&inner).await {
                tracing::error!(error = %error, "sessions cannot be found again; this is tried again");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        };
        tokio::select! {
            () = inner.stopping.cancelled() => return,
            () = recovered => {}
        }
        inner.has_recovered();
        tracing::info!(backend = %inner.backend.name(), "the backend is there; boxes can be made");
    });
}

/// Adopts what is there, reports what is lost, removes what nobody remembers.
pub(super) async fn recover(inner: &Arc<Inner>) -> Result<()> {
    let mut boxes: HashMap<BoxId, Handle> =
        inner.backend.list_orphans().await?.into_iter().map(|handle| (handle.id.clone(), handle)).collect();
    let mut running = JoinSet::new();
    for memory in memories(inner).await? {
        let found = boxes.remove(&memory.row.box_id);
        if running.len() >= AT_ONCE_MAX {
            running.join_next().await;
        }
        let inner = Arc::clone(inner);
        running.spawn(async move { recover_session(&inner, memory, found).await });
    }
    for (_, orphan) in boxes {
        let inner = Arc::clone(inner);
        running.spawn(async move { remove_orphan(&inner, &orphan).await });
    }
    while running.join_next().await.is_some() {}
    fault::point("recovery_done");
    Ok(())
}

async fn memories(inner: &Inner) -> Result<Vec<Memory>> {
    let loaded = inner.store.load().await?;
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
    Ok(by_key.into_values().collect())
}

async fn remove_orphan(inner: &Inner, orphan: &Handle) {
    tracing::info!(r#box.id = %orphan.id, "a box that no session claims is removed");
    if let Err(error) = inner.backend.destroy(orphan).await {
        tracing::error!(r#box.id = %orphan.id, error = %error, "a box that no session claims cannot be removed");
    }
}

async fn recover_session(inner: &Arc<Inner>, memory: Memory, found: Option<Handle>) {
    match memory.row.state {
        // Whoever asked for it was never told that it exists, or was told that it goes.
        SessionState::Creating | SessionState::Destroying => discard(inner, &memory.row, found).await,
        SessionState::Lost => {
            if let Some(found) = found {
                remove_orphan(inner, &found).await;
            }
            let reason = memory.row.lost_reason.clone().unwrap_or_else(|| "the reason is not known".to_owned());
            keep_lost(inner, memory, &reason);
        }
        SessionState::Running | SessionState::Paused => adopt(inner, memory, found).await,
    }
}

async fn discard(inner: &Inner, row: &SessionRow, found: Option<Handle>) {
    if let Some(found) = found {
        remove_orphan(inner, &found).await;
    }
    if let Err(error) = inner.store.write(Change::DeleteSession(row.key.clone()), Wait::Committed).await {
        tracing::error!(session.id = %row.key.id, error = %error, "a session cannot be forgotten");
    }
    fault::point("recovery_discarded");
}

/// Keeps a session in the list, so that its owner learns what became of it.
fn keep_lost(inner: &Inner, memory: Memory, reason: &str) {
    let key = memory.row.key.clone();
    let session = Arc::new(Session::remembered(memory.row, inner.backend.name(), Phase::Lost(reason.into())));
    inner.lock_sessions().insert(key, session);
}

async fn adopt(inner: &Arc<Inner>, mut memory: Memory, found: Option<Handle>) {
    match try_adopt(inner, &memory.row).await {
        Ok(standing) => {
            still_or_moving(inner, &memory.row, &standing).await;
            take_over(inner, memory, &Arc::new(standing)).await;
        }
        Err(reason) => {
            tracing::warn!(session.id = %memory.row.key.id, reason, "a session was lost");
            inner.watched.sessions_lost.add();
            if let Some(handle) = found.or(memory.row.handle.take()) {
                remove_orphan(inner, &handle).await;
            }
            (memory.row.state, memory.row.lost_reason) = (SessionState::Lost, Some(reason.clone()));
            let change = Change::PutSession(Box::new(memory.row.clone()));
            if let Err(error) = inner.store.write(change, Wait::Committed).await {
                tracing::error!(error = %error, "a loss cannot be written down");
            }
            keep_lost(inner, memory, &reason);
        }
    }
}

async fn try_adopt(inner: &Inner, row: &SessionRow) -> Result<Standing, String> {
    let mut handle = row.handle.clone().ok_or("what finds its box was not written down")?;
    match inner.backend.adopt(&handle).await {
        Ok(Liveness::Running) => {}
        Ok(Liveness::Lost(reason)) => return Err(reason),
        Err(error) => return Err(error.to_string()),
    }
    let directory = inner.backend.journal(&handle).await.map_err(|error| error.to_string())?;
    let workspace = inner.workspace_again(&row.config, &mut handle).await;
    Ok(Standing { handle, journal: Arc::new(Journal::open(directory)), workspace })
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
    let session = Arc::new(Session::remembered(row, inner.backend.name(), phase));
    inner.lock_sessions().insert(key, Arc::clone(&session));
    fault::point("recovery_adopted");
    for row in execs {
        let exec = Arc::new(Exec::new(row));
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
    inner.watch_workspace(&session, standing);
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
