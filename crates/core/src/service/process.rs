//! A managed process that lives, or lived: its runs, and how it stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use tokio::sync::watch;

use super::exec::Exec;
use crate::call::{Cursor, ProcessCall, ProcessInfo, ProcessStatus};
use crate::code::CodeLanguage;
use crate::limits;
use crate::session::SessionId;
use crate::store::{ProcessRow, SessionKey};

/// A managed process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) key: SessionKey,
    pub(super) call: ProcessCall,
    /// Where it runs.
    cwd: String,
    state: watch::Sender<State>,
    /// How many follow it now.
    followers: AtomicUsize,
}

/// What changes while a process lives.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Runs that are kept, oldest first, each with its number.
    pub(super) runs: Vec<(u32, Arc<Exec>)>,
    pub(super) restarts: u32,
    /// Somebody asked it to stop.
    pub(super) stopping: bool,
    /// It has ended and will not be started again.
    pub(super) exited_at: Option<Timestamp>,
}

/// Somebody follows the process.
#[derive(Debug)]
pub(super) struct Following(Arc<Process>);

impl Process {
    pub(super) fn new(key: SessionKey, call: ProcessCall, cwd: String, state: State) -> Self {
        Self { key, call, cwd, state: watch::Sender::new(state), followers: AtomicUsize::new(0) }
    }

    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    pub(super) fn states(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(super) fn is_running(&self) -> bool {
        self.state.borrow().exited_at.is_none()
    }

    /// Whether it is the process of a code context. It waits for cells, and that alone keeps no session.
    pub(super) fn is_code_context(&self) -> bool {
        CodeLanguage::of_arguments(&self.call.args).is_some()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state.borrow().stopping
    }

    /// The run of now, or the last one.
    pub(super) fn current(&self) -> Option<Arc<Exec>> {
        self.state.borrow().runs.last().map(|(_, exec)| Arc::clone(exec))
    }

    /// Adds a run. Returns those that are not kept any more.
    pub(super) fn add_run(&self, exec: Arc<Exec>) -> Vec<Arc<Exec>> {
        let mut dropped = Vec::new();
        self.state.send_modify(|state| {
            let number = state.runs.last().map_or(0, |(number, _)| number + 1);
            state.runs.push((number, exec));
            let beyond = state.runs.len().saturating_sub(limits::PROCESS_RUNS_MAX);
            dropped = state.runs.drain(..beyond).map(|(_, exec)| exec).collect();
        });
        dropped
    }

    pub(super) fn has_restarted(&self) {
        self.state.send_modify(|state| state.restarts += 1);
    }

    pub(super) fn has_exited(&self) {
        self.state.send_modify(|state| {
            state.exited_at.get_or_insert_with(Timestamp::now);
        });
    }

    /// Marks that it is to stop, so that nobody starts it again.
    pub(super) fn begin_stopping(&self) {
        self.state.send_modify(|state| state.stopping = true);
    }

    /// Waits until it has ended for good.
    pub(super) async fn exited(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.states().wait_for(|state| state.exited_at.is_some()).await;
    }

    pub(super) fn start_following(self: &Arc<Self>) -> Following {
        self.followers.fetch_add(1, Ordering::Relaxed);
        Following(Arc::clone(self))
    }

    pub(super) fn row(&self) -> ProcessRow {
        let state = self.state();
        ProcessRow {
            key: self.key.clone(),
            call: self.call.clone(),
            runs: state.runs.iter().map(|(number, exec)| (*number, exec.id.clone())).collect(),
            restarts: state.restarts,
            stopping: state.stopping,
        }
    }

    /// What callers see; `stderr_preview` has to be read from the journal.
    pub(super) fn info(&self, session_id: &SessionId, stderr_preview: String) -> ProcessInfo {
        let state = self.state();
        let run = state.runs.last();
        let exec = run.map(|(_, exec)| exec.info());
        let news = run.map(|(_, exec)| exec.latest()).unwrap_or_default();
        let exited = state.exited_at.is_some();
        let ended = state.runs.iter().rev().find(|(_, exec)| !exec.is_running());
        let mut env_keys: Vec<_> = self.call.env.iter().map(|(name, _)| name.clone()).collect();
        env_keys.sort();
        ProcessInfo {
            session_id: session_id.clone(),
            process_id: self.call.process_id.clone(),
            status: if exited { ProcessStatus::Exited } else { ProcessStatus::Running },
            command: self.call.command.clone(),
            args: self.call.args.clone(),
            cwd: self.cwd.clone(),
            env_keys,
            attached: self.followers.load(Ordering::Relaxed) > 0,
            pid: news.pid.filter(|_| news.end.is_none()),
            started_at: exec.as_ref().map_or_else(Timestamp::now, |info| info.started_at),
            exited_at: state.exited_at,
            exit_code: exec.as_ref().filter(|_| exited).and_then(crate::call::ExecInfo::shell_code),
            oom_killed: ended.is_some_and(|(_, exec)| exec.info().oom_killed),
            restarts: state.restarts,
            restart: self.call.restart,
            stderr_preview,
            cursor: Cursor {
                run: run.map_or(0, |(number, _)| *number),
                stdout: news.stdout_bytes,
                stderr: news.stderr_bytes,
            },
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.0.followers.fetch_sub(1, Ordering::Relaxed);
    }
}
