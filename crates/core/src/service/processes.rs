//! What can be asked of managed processes, and who keeps them alive.

use std::sync::Arc;
use std::time::Duration;

use crate::tasks::Start as _;
use async_recursion::async_recursion as boxed;
use box_wire::{ExecRequest, GuestPath, Invalid, Output, Program, SignalScope, Stdin};
use rustix::process::Signal;
use tokio::time::Instant;

use super::exec::{End, Exec};
use super::execs::{environment_of, new_exec_id, workdir};
use super::process::{Process, State};
use super::session::{Session, Standing, lock};
use super::sessions::{Lost, entry};
use super::{Inner, Resource, Service};
use crate::audit::{AuditEntry, Outcome};
use crate::call::{ExecInfo, Launch, ProcessCall, ProcessId, ProcessInfo, Replace, RestartPolicy};
use crate::caller::{Caller, Scope, TenantId};
use crate::quota::QuotaMoment;
use crate::session::{SessionId, SessionRequest};
use crate::store::{Change, ExecRow, Wait};
use crate::{Error, Result, fault, limits, link, shell};

/// How long a process that was asked to end may take before it is killed.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// First wait before a process is started again; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Longest wait before a process is started again.
const BACKOFF_MAX: Duration = Duration::from_mins(1);
/// A run of this length shows that the process is well; the next wait is the first again.
const WELL_AFTER: Duration = Duration::from_mins(1);

impl Service {
    /// Starts a managed process; makes the session if it does not exist.
    #[boxed]
    pub async fn start_process(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: ProcessCall,
    ) -> Result<ProcessInfo> {
        let started = self.inner.begin_process(caller, id, request, call).await;
        let (session, standing, process) = self.inner.noting(caller, "start_process", id, started).await?;
        Ok(process_info(&session, &standing, &process).await)
    }

    /// One managed process.
    #[boxed]
    pub async fn get_process(&self, caller: &Caller, id: &SessionId, process: &ProcessId) -> Result<ProcessInfo> {
        let session = self.inner.find(caller, id)?;
        let process = session.process(process)?;
        Ok(process_info(&session, &*session.standing()?, &process).await)
    }

    /// The managed processes of a session.
    #[boxed]
    pub async fn list_processes(&self, caller: &Caller, id: &SessionId) -> Result<Vec<ProcessInfo>> {
        let session = self.inner.find(caller, id)?;
        let processes: Vec<_> = lock(&session.processes).values().cloned().collect();
        let Ok(standing) = session.standing() else {
            return Ok(processes.iter().map(|process| process.info(id, String::new())).collect());
        };
        let mut infos = Vec::with_capacity(processes.len());
        for process in processes {
            infos.push(process_info(&session, &standing, &process).await);
        }
        Ok(infos)
    }

    /// Stops a managed process: end of input, then a request, then force. Its record is gone afterwards.
    #[boxed]
    pub async fn stop_process(&self, caller: &Caller, id: &SessionId, process: &ProcessId) -> Result<ProcessInfo> {
        let session = self.inner.find(caller, id)?;
        let process = session.process(process)?;
        let inner = Arc::clone(&self.inner);
        let stopped = async move {
            let _used = session.start_use();
            let standing = session.standing()?;
            inner.stop_process(&standing, &process).await?;
            let info = process_info(&session, &standing, &process).await;
            inner.forget_process(&session, &process).await;
            Ok(info)
        };
        self.inner.to_the_end(stopped).await
    }
}

impl Inner {
    async fn begin_process(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: ProcessCall,
    ) -> Result<(Arc<Session>, Arc<Standing>, Arc<Process>)> {
        check(&call)?;
        caller.require(Scope::Exec)?;
        self.enabled()?;
        self.check_writable()?;
        self.check_quota(caller, id, request).await?;
        let (session, _) = self.obtain(caller, id, request, Lost::Report).await?;
        let (inner, caller) = (Arc::clone(self), caller.clone());
        self.to_the_end(async move { inner.begin_first_run(&caller, session, call).await }).await
    }

    async fn begin_first_run(
        self: &Arc<Self>,
        caller: &Caller,
        session: Arc<Session>,
        call: ProcessCall,
    ) -> Result<(Arc<Session>, Arc<Standing>, Arc<Process>)> {
        let _used = session.start_use();
        let standing = self.wake(&session).await?;
        self.make_way(&session, &standing, &call).await?;
        let process = self.claim_process(caller, &session, call)?;
        let started = async {
            self.note_process(caller, &process).await?;
            self.start_run(&session, &standing, &process).await
        };
        match started.await {
            Ok(()) => {
                self.supervise(&session, &standing, &process);
                Ok((session, standing, process))
            }
            Err(error) => {
                process.has_exited();
                self.forget_process(&session, &process).await;
                Err(error)
            }
        }
    }

    /// Stops a running process of that id if the call says so.
    async fn make_way(&self, session: &Session, standing: &Standing, call: &ProcessCall) -> Result<()> {
        let Ok(earlier) = session.process(&call.process_id) else { return Ok(()) };
        if earlier.is_running() && call.replace == Replace::Replace {
            self.stop_process(standing, &earlier).await?;
        }
        if !earlier.is_running() {
            self.forget_process(session, &earlier).await;
        }
        Ok(())
    }

    /// Puts a process into the session's list, in one step with looking whether its id is taken and there is room.
    fn claim_process(&self, caller: &Caller, session: &Session, call: ProcessCall) -> Result<Arc<Process>> {
        let room = self.check_processes(caller);
        let cwd = session.with_config(|config| workdir(config, call.cwd.as_ref())).to_string();
        let mut processes = lock(&session.processes);
        if processes.get(&call.process_id).is_some_and(|process| process.is_running()) {
            return Err(Error::ProcessConflict {
                session: session.key.id.clone(),
                process: call.process_id,
                what: "is already running; stop it first, or use another process_id".to_owned(),
            });
        }
        room?;
        let id = call.process_id.clone();
        let process = Arc::new(Process::new(session.key.clone(), call, cwd, State::default()));
        processes.insert(id, Arc::clone(&process));
        Ok(process)
    }

    /// Refuses one process too many.
    fn check_processes(&self, caller: &Caller) -> Result<()> {
        let sessions = self.lock_sessions();
        let held = |counts: &dyn Fn(&TenantId) -> bool| {
            sessions.values().filter(|it| counts(&it.key.tenant)).map(|it| it.processes_running()).sum()
        };
        self.check_count(caller, Resource::ManagedProcesses, held, |ceiling| ceiling.max_managed_processes)
    }

    async fn note_process(&self, caller: &Caller, process: &Process) -> Result<()> {
        let command = std::iter::once(&process.call.command).chain(&process.call.args).cloned().collect::<Vec<_>>();
        let entry = entry(caller, "start_process", Outcome::Started, &process.key.id);
        let (target, command) = (Some(process.call.process_id.to_string()), Some(command.join(" ")));
        self.record(AuditEntry { target, command, ..entry }).await
    }

    /// Starts a run of a process.
    async fn start_run(
        self: &Arc<Self>,
        session: &Arc<Session>,
        standing: &Arc<Standing>,
        process: &Arc<Process>,
    ) -> Result<()> {
        let asked = process.call.journal_bytes_max.unwrap_or(self.config().journal_bytes_max);
        let bytes_max = self.journal_bytes(&session.key.tenant, asked);
        let wire = self.run_request(session, standing, process, bytes_max)?;
        let exec = Arc::new(Exec::new(ExecRow {
            key: session.key.clone(),
            info: ExecInfo::started(wire.id.clone(), session.key.id.clone(), session.backend(), &wire.program),
            output_limit_chars: self.config().output_limit_chars,
            output_head_bytes: None,
            destroys_on_timeout: false,
            process: Some(process.call.process_id.clone()),
            idempotency: None,
            note: None,
            ends_unattended: false,
        }));
        exec.holds(None, self.budgets.hold(&session.key.tenant, Resource::JournalBytes, 2 * bytes_max));
        lock(&session.execs).insert(exec.id.clone(), Arc::clone(&exec));
        for old in process.add_run(Arc::clone(&exec)) {
            let _ = standing.journal.remove(&old.id).await;
            self.discard(session, &old).await;
        }
        // Both rows are there before the run is: the next start of the server finds it, or knows that it never was.
        self.store.write(Change::PutExec(Box::new(exec.row())), Wait::Queued).await?;
        self.store.write(Change::PutProcess(Box::new(process.row())), Wait::Committed).await?;
        fault::point("process_rows_written");
        self.launch(session, standing, &exec, &wire).await?;
        fault::point("process_started");
        Ok(())
    }

    fn run_request(
        &self,
        session: &Session,
        standing: &Standing,
        process: &Process,
        bytes_max: u64,
    ) -> Result<ExecRequest> {
        let call = &process.call;
        let (env, cwd) = session.with_config(|config| {
            let user = self.workload(&standing.handle, config.user.user());
            (environment_of(config, user, &call.env), workdir(config, call.cwd.as_ref()))
        });
        let request = ExecRequest {
            env,
            stdin: Stdin::Stream,
            output: Output::Journal { bytes_max },
            ..ExecRequest::new(new_exec_id()?, program(call, &cwd)?)
        };
        // A login shell makes its directory itself, so it starts where there always is one.
        let request = match call.launch {
            Launch::Directly => ExecRequest { cwd, ..request },
            Launch::LoginShell => ExecRequest { cwd: GuestPath::root(), ..request },
        };
        request.validate()?;
        Ok(request)
    }

    /// Keeps a process as its policy says, in a task of its own.
    pub(super) fn supervise(
        self: &Arc<Self>,
        session: &Arc<Session>,
        standing: &Arc<Standing>,
        process: &Arc<Process>,
    ) {
        let (inner, session) = (Arc::clone(self), Arc::clone(session));
        let (standing, process) = (Arc::clone(standing), Arc::clone(process));
        self.tasks.start(async move {
            tokio::select! {
                // The process goes on without us; the next start of the server supervises it again.
                () = inner.stopping.cancelled() => {}
                () = inner.keep_alive(&session, &standing, &process) => {
                    process.has_exited();
                    session.touch();
                }
            }
        });
    }

    async fn keep_alive(self: &Arc<Self>, session: &Arc<Session>, standing: &Arc<Standing>, process: &Arc<Process>) {
        let mut backoff = BACKOFF_MIN;
        while let Some(exec) = process.current() {
            let since = Instant::now();
            let end = exec.ended().await;
            if process.is_stopping() || !wants_restart(process.call.restart, &end) {
                return;
            }
            if since.elapsed() >= WELL_AFTER {
                backoff = BACKOFF_MIN;
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
            if process.is_stopping() || session.standing().is_err() {
                return;
            }
            if let Err(error) = self.restart(session, standing, process).await {
                self.watched.remember(&session.key.tenant, None, "restart_process", Some(&session.key.id), &error);
                if session.standing().is_err() {
                    return;
                }
            }
        }
    }

    /// Starts a process again, unless its workspace holds too much: then it is tried again later.
    async fn restart(
        self: &Arc<Self>,
        session: &Arc<Session>,
        standing: &Arc<Standing>,
        process: &Arc<Process>,
    ) -> Result<()> {
        self.check_writable()?;
        for workspace in &standing.workspaces {
            workspace.check(QuotaMoment::Before).await?;
        }
        process.has_restarted();
        self.watched.processes_restarted.add();
        self.start_run(session, standing, process).await
    }

    /// Ends a process: end of input, then a request, then force.
    async fn stop_process(&self, standing: &Standing, process: &Process) -> Result<()> {
        process.begin_stopping();
        let Some(exec) = process.current().filter(|exec| exec.is_running()) else {
            // It waits to be started again, and will not be.
            process.has_exited();
            return Ok(());
        };
        // Whoever is writing to it now will see it end; that must not keep it from ending.
        if let Ok(mut slot) = exec.writer.try_lock()
            && let Some(mut writer) = slot.take()
        {
            let _ = tokio::time::timeout(STOP_WAIT, writer.stdin_end()).await;
        }
        let stream = self.backend.dial(&standing.handle).await?;
        // Who has ended in the meantime cannot be signalled, and need not be.
        let _ = link::signal(stream, exec.id.clone(), Signal::TERM.as_raw(), SignalScope::Tree).await;
        fault::point("process_asked_to_stop");
        if tokio::time::timeout(STOP_WAIT, exec.ended()).await.is_err() {
            let _ = link::kill(self.backend.dial(&standing.handle).await?, exec.id.clone()).await;
            drop(exec.ended().await);
        }
        process.exited().await;
        fault::point("process_stopped");
        Ok(())
    }

    /// Forgets a process and what it said.
    pub(super) async fn forget_process(&self, session: &Session, process: &Arc<Process>) {
        {
            let mut processes = lock(&session.processes);
            let id = &process.call.process_id;
            if !processes.get(id).is_some_and(|listed| Arc::ptr_eq(listed, process)) {
                return;
            }
            processes.remove(id);
        }
        for (_, exec) in process.state().runs {
            if let Ok(standing) = session.standing() {
                let _ = standing.journal.remove(&exec.id).await;
            }
            self.discard(session, &exec).await;
        }
        let gone = Change::DeleteProcess(session.key.clone(), process.call.process_id.clone());
        // Committed: whoever was told that it is stopped must not find it started again by the next server.
        if let Err(error) = self.store.write(gone, Wait::Committed).await {
            tracing::error!(session.id = %session.key.id, error = %error, "a process cannot be forgotten");
        }
        fault::point("process_forgotten");
    }
}

/// Checks everything that does not depend on the session, so that a bad call does not make one.
fn check(call: &ProcessCall) -> Result<()> {
    if call.command.trim().is_empty() {
        return Err(Invalid::new("command", &call.command, "a program to run").into());
    }
    let alone =
        ExecRequest { env: call.env.clone(), ..ExecRequest::new(new_exec_id()?, program(call, &GuestPath::root())?) };
    Ok(alone.validate()?)
}

fn program(call: &ProcessCall, cwd: &GuestPath) -> Result<Program> {
    let words = std::iter::once(&call.command).chain(&call.args);
    match call.launch {
        Launch::Directly => Ok(Program::Argv(words.cloned().collect())),
        Launch::LoginShell => {
            let line = words.map(|word| shell::quote(word)).collect::<Result<Vec<_>, _>>()?.join(" ");
            Ok(shell::login_at(cwd.as_str(), &format!("exec {line}"))?)
        }
    }
}

fn wants_restart(policy: RestartPolicy, end: &End) -> bool {
    // One that could not be started, or of whose end nobody knows, failed. Whether its box still stands is asked before it is
    // started again.
    let failed = !matches!(end, End::Told { info } if info.exit_code == Some(0));
    match policy {
        RestartPolicy::Never => false,
        RestartPolicy::OnFailure => failed,
        RestartPolicy::Always => true,
    }
}

/// A process as callers see it, with the end of its standard error.
async fn process_info(session: &Session, standing: &Standing, process: &Process) -> ProcessInfo {
    let preview = match process.current() {
        Some(exec) => stderr_preview(standing, &exec).await,
        None => String::new(),
    };
    process.info(&session.key.id, preview)
}

async fn stderr_preview(standing: &Standing, exec: &Exec) -> String {
    let total = exec.latest().stderr_bytes;
    // A character has at most four bytes.
    let bytes_max = limits::STDERR_PREVIEW_CHARS * 4;
    let from = total.saturating_sub(bytes_max as u64);
    if total == 0 {
        return String::new();
    }
    let Ok(chunk) = standing.journal.read(&exec.id, box_wire::StreamName::Stderr, from, bytes_max).await else {
        return String::new();
    };
    let text = String::from_utf8_lossy(&chunk.bytes);
    let skip = text.chars().count().saturating_sub(limits::STDERR_PREVIEW_CHARS);
    text.chars().skip(skip).collect()
}
