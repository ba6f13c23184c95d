//! What can be asked of commands: run, wait, cancel, read, write.

use std::sync::Arc;

use crate::tasks::Start as _;
use async_recursion::async_recursion as boxed;
use box_wire::{ExecId, ExecRequest, GuestPath, Invalid, Output, SignalScope, Stdin, WindowSize};

use super::exec::{End, Exec};
use super::follow::hold;
use super::session::{Session, Standing, lock};
use super::sessions::{Lost, entry};
use super::{Follow, Inner, OutputChunk, Reservation, Resource, Service};
use crate::audit::{AuditEntry, Outcome};
use crate::call::{
    CallStdin, Cursor, ExecCall, ExecInfo, ExecResult, ExecSpan, NotedExec, StdinChunk, StreamName, Target,
};
use crate::caller::{Caller, Scope};
use crate::output::Clipped;
use crate::session::{OnTimeout, SessionConfig, SessionId, SessionRequest};
use crate::store::ExecRow;
use crate::{Error, Handle, Result, environment, hexadecimal, limits, link};

impl Service {
    /// Starts a command; makes the session if it does not exist. Returns when the command runs.
    #[boxed]
    pub async fn exec(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: ExecCall,
    ) -> Result<ExecInfo> {
        let begun = self.inner.begin_exec(caller, id, request, call).await;
        let (_, _, exec) = self.inner.noting(caller, "exec", id, begun).await?;
        Ok(exec.info())
    }

    /// Runs a command to its end; makes the session if it does not exist. A caller who stops waiting does not stop the command.
    #[boxed]
    pub async fn run(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: ExecCall,
    ) -> Result<ExecResult> {
        let begun = self.inner.begin_exec(caller, id, request, call).await;
        let (session, standing, exec) = self.inner.noting(caller, "exec", id, begun).await?;
        let _used = session.start_use();
        let result = self.inner.result(&standing, &exec).await;
        if exec.ends_session() {
            self.inner.remove(&session).await?;
        }
        if exec.over_quota().is_some() {
            // It was remembered when it was found.
            return result;
        }
        self.inner.noting(caller, "exec", id, result).await
    }

    /// Waits for the end of a command.
    #[boxed]
    pub async fn wait_exec(&self, caller: &Caller, id: &SessionId, exec: &ExecId) -> Result<ExecResult> {
        let session = self.inner.find(caller, id)?;
        let exec = session.exec(exec)?;
        let _used = session.start_use();
        let standing = session.standing()?;
        self.inner.result(&standing, &exec).await
    }

    /// One command, running or finished.
    #[expect(clippy::unused_async, reason = "doors await every call alike")]
    pub async fn get_exec(&self, caller: &Caller, id: &SessionId, exec: &ExecId) -> Result<ExecInfo> {
        Ok(self.inner.find(caller, id)?.exec(exec)?.info())
    }

    /// The commands of a session that are remembered, oldest first. Runs of managed processes are not among them.
    #[expect(clippy::unused_async, reason = "doors await every call alike")]
    pub async fn list_execs(&self, caller: &Caller, id: &SessionId) -> Result<Vec<ExecInfo>> {
        let session = self.inner.find(caller, id)?;
        let execs: Vec<_> = lock(&session.execs).values().filter(|exec| exec.process.is_none()).cloned().collect();
        Ok(execs.iter().map(|exec| exec.info()).collect())
    }

    /// The commands of a session of which a door noted something, oldest first, those that have ended included.
    #[expect(clippy::unused_async, reason = "doors await every call alike")]
    pub async fn noted_execs(&self, caller: &Caller, id: &SessionId) -> Result<Vec<NotedExec>> {
        let session = self.inner.find(caller, id)?;
        let execs: Vec<_> = lock(&session.execs).values().filter(|exec| exec.note.is_some()).cloned().collect();
        let noted = |exec: &Arc<Exec>| Some(NotedExec { info: exec.info(), note: exec.note.clone()? });
        Ok(execs.iter().filter_map(noted).collect())
    }

    /// Kills the whole process tree of a command.
    #[boxed]
    pub async fn cancel_exec(&self, caller: &Caller, id: &SessionId, exec: &ExecId) -> Result<()> {
        let session = self.inner.find(caller, id)?;
        let exec = session.exec(exec)?;
        let standing = session.standing()?;
        match link::kill(self.inner.backend.dial(&standing.handle).await?, exec.id.clone()).await {
            // It ended before it could be killed, which is what was wanted.
            Err(Error::Refused(refusal)) if refusal.code == box_wire::RefusalCode::BadExecId => Ok(()),
            killed => killed,
        }
    }

    /// Follows the output of a command or managed process from a cursor on.
    #[expect(clippy::unused_async, reason = "doors await every call alike")]
    pub async fn follow(&self, caller: &Caller, id: &SessionId, target: &Target, from: Cursor) -> Result<Follow> {
        let session = self.inner.find(caller, id)?;
        let standing = session.standing()?;
        let place = self.inner.take(&caller.tenant, Resource::Streams, 1)?;
        match target {
            Target::Exec(exec) => Ok(Follow::exec(&session, &standing, session.exec(exec)?, from, place)),
            Target::Process(process) => {
                Ok(Follow::process(&session, &standing, session.process(process)?, from, place))
            }
        }
    }

    /// Follows a command that was just started and lasts as long as its output ([`crate::call::ExecSpan::Output`]). Its output
    /// waits for this follower, so that there are no gaps as long as it reads.
    #[expect(clippy::unused_async, reason = "doors await every call alike")]
    pub async fn follow_paced(&self, caller: &Caller, id: &SessionId, exec: &ExecId) -> Result<Follow> {
        let session = self.inner.find(caller, id)?;
        let standing = session.standing()?;
        let exec = session.exec(exec)?;
        let backend = Arc::clone(&self.inner.backend);
        let place = self.inner.take(&caller.tenant, Resource::Streams, 1)?;
        // The agent waits for the first follower of a command, and most commands say too little to need a stream for it.
        let free_bytes = exec.stream_bytes_max() / 8;
        Ok(Follow::exec(&session, &standing, exec, Cursor::default(), place).paced(backend, free_bytes))
    }

    /// Follows such a command when it may be ahead already: from its start, or from behind the last gap in what is kept.
    #[boxed]
    pub async fn follow_late(&self, caller: &Caller, id: &SessionId, exec: &ExecId) -> Result<Follow> {
        let session = self.inner.find(caller, id)?;
        let standing = session.standing()?;
        let exec = session.exec(exec)?;
        let place = self.inner.take(&caller.tenant, Resource::Streams, 1)?;
        // In this order: what is kept once the command waits is still kept when it is read.
        let pacer = hold(&*self.inner.backend, &standing, &exec).await;
        let from = Cursor {
            run: 0,
            stdout: standing.journal.unbroken_from(&exec.id, StreamName::Stdout.into()).await?,
            stderr: standing.journal.unbroken_from(&exec.id, StreamName::Stderr.into()).await?,
        };
        Ok(Follow::exec(&session, &standing, exec, from, place).paced_by(pacer))
    }

    /// Output of a command, or of the current run of a managed process, by byte range.
    #[boxed]
    pub async fn read_output(
        &self,
        caller: &Caller,
        id: &SessionId,
        target: &Target,
        stream: StreamName,
        from: u64,
        bytes_max: usize,
    ) -> Result<OutputChunk> {
        let session = self.inner.find(caller, id)?;
        let exec = session.target(target)?;
        session.touch();
        drop(exec.attach());
        let news = exec.latest();
        let total = match stream {
            StreamName::Stdout => news.stdout_bytes,
            StreamName::Stderr => news.stderr_bytes,
        };
        let bytes_max = bytes_max.clamp(1, limits::READ_BYTES_MAX);
        let journal = &session.standing()?.journal;
        let chunk = journal.read(&exec.id, stream.into(), from, bytes_max).await?;
        let running = news.end.is_none();
        Ok(OutputChunk { start: chunk.start, bytes: chunk.bytes, total, running })
    }

    /// Writes to the standard input of a command or managed process. Waits while it does not read.
    #[boxed]
    pub async fn write_stdin(&self, caller: &Caller, id: &SessionId, target: &Target, chunk: StdinChunk) -> Result<()> {
        let session = self.inner.find(caller, id)?;
        let exec = session.target(target)?;
        let _used = session.start_use();
        self.inner.send_input(&*session.standing()?, &exec, Input::Stdin(chunk)).await
    }

    /// Tells the terminal of a command how large it is.
    #[boxed]
    pub async fn resize(&self, caller: &Caller, id: &SessionId, target: &Target, size: WindowSize) -> Result<()> {
        size.validate()?;
        let session = self.inner.find(caller, id)?;
        let exec = session.target(target)?;
        self.inner.send_input(&*session.standing()?, &exec, Input::Size(size)).await
    }

    /// Sends a signal to the main process.
    #[boxed]
    pub async fn signal(&self, caller: &Caller, id: &SessionId, target: &Target, signal: i32) -> Result<()> {
        self.inner.signal(caller, id, target, signal, SignalScope::Main).await
    }

    /// Sends a signal to the main process and to everything that it started.
    #[boxed]
    pub async fn signal_tree(&self, caller: &Caller, id: &SessionId, target: &Target, signal: i32) -> Result<()> {
        self.inner.signal(caller, id, target, signal, SignalScope::Tree).await
    }
}

impl Inner {
    async fn signal(
        &self,
        caller: &Caller,
        id: &SessionId,
        target: &Target,
        signal: i32,
        scope: SignalScope,
    ) -> Result<()> {
        if !(1..=64).contains(&signal) {
            return Err(Invalid::new("signal", signal, "a signal's number, from 1 to 64").into());
        }
        let session = self.find(caller, id)?;
        let exec = session.target(target)?;
        let _attached = exec.attach();
        let standing = session.standing()?;
        let stream = self.backend.dial(&standing.handle).await?;
        link::signal(stream, exec.id.clone(), signal, scope).await
    }

    async fn begin_exec(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: ExecCall,
    ) -> Result<(Arc<Session>, Arc<Standing>, Arc<Exec>)> {
        check(&call)?;
        caller.require(Scope::Exec)?;
        self.enabled()?;
        self.check_writable()?;
        let place = self.take(&caller.tenant, Resource::Execs, 1)?;
        self.check_quota(caller, id, request).await?;
        let (session, _) = self.obtain(caller, id, request, Lost::Report).await?;
        let (inner, caller) = (Arc::clone(self), caller.clone());
        self.to_the_end(async move { inner.start_exec(&caller, session, call, place).await }).await
    }

    async fn start_exec(
        self: &Arc<Self>,
        caller: &Caller,
        session: Arc<Session>,
        call: ExecCall,
        place: Reservation,
    ) -> Result<(Arc<Session>, Arc<Standing>, Arc<Exec>)> {
        let _used = session.start_use();
        let standing = self.wake(&session).await?;
        let config = session.config();
        let bytes_max = self.journal_bytes(&caller.tenant, self.config().journal_bytes_max);
        let wire = self.wire_request(&config, &standing.handle, &call, bytes_max)?;
        let exec = Arc::new(self.new_exec(&session, &config, &wire, &call));
        exec.holds(Some(place), self.budgets.hold(&caller.tenant, Resource::JournalBytes, 2 * bytes_max));
        if let Some(earlier) = claim(&session, &exec)? {
            return match earlier.underway().await.end.as_deref() {
                Some(End::Refused(refusal)) => Err(refusal.replica()),
                _ => Ok((session, standing, earlier)),
            };
        }
        if let Some(query_id) = &caller.query_id {
            let _ = exec.query_id.set(query_id.clone());
        }
        if let Err(error) = self.note_start(caller, &exec, &call).await {
            exec.has_ended(End::Refused(error.replica()));
            self.discard(&session, &exec).await;
            return Err(error);
        }
        self.launch(&session, &standing, &exec, &wire).await?;
        if let CallStdin::Bytes(bytes) = call.stdin {
            self.feed(&standing, &exec, bytes);
        }
        Ok((session, standing, exec))
    }

    /// The request to the agent that a call means in a session.
    fn wire_request(
        &self,
        config: &SessionConfig,
        handle: &Handle,
        call: &ExecCall,
        bytes_max: u64,
    ) -> Result<ExecRequest> {
        let user = self.workload(handle, call.user.unwrap_or(config.user.user()));
        let request = ExecRequest {
            env: environment_of(config, user, &call.env),
            cwd: workdir(config, call.workdir.as_ref()),
            stdin: if call.stdin == CallStdin::Empty { Stdin::Null } else { Stdin::Stream },
            terminal: call.terminal,
            timeout_ms: config.deadline_ms(call),
            user: call.user,
            output: match call.span {
                ExecSpan::Main => Output::Journal { bytes_max },
                ExecSpan::Output => Output::Held { bytes_max },
            },
            ..ExecRequest::new(new_exec_id()?, call.program.clone())
        };
        request.validate()?;
        Ok(request)
    }

    fn new_exec(&self, session: &Session, config: &SessionConfig, wire: &ExecRequest, call: &ExecCall) -> Exec {
        let on_timeout = call.on_timeout.unwrap_or(config.on_timeout);
        let info = ExecInfo::started(wire.id.clone(), session.key.id.clone(), session.backend(), &wire.program);
        Exec::new(ExecRow {
            key: session.key.clone(),
            info: ExecInfo {
                timeout_ms: wire.timeout_ms,
                timeout_limit: config.deadline_limit(call),
                timeout_cut: config.deadline_cut(call),
                ..info
            },
            output_limit_chars: call.output_limit_chars.unwrap_or(self.config().output_limit_chars),
            output_head_bytes: call.output_head_bytes,
            destroys_on_timeout: on_timeout == OnTimeout::Destroy,
            process: None,
            idempotency: call.idempotency_key.as_ref().map(|key| (key.clone(), fingerprint(call))),
            note: call.note.clone(),
            ends_unattended: config.ends_unattended(call),
        })
    }

    async fn note_start(&self, caller: &Caller, exec: &Exec, call: &ExecCall) -> Result<()> {
        let entry = entry(caller, "exec", Outcome::Started, exec.session_id());
        let (target, command) = (Some(exec.id.to_string()), Some(call.program.argv().join(" ")));
        self.record(AuditEntry { target, command, ..entry }).await
    }

    /// Sends input to a command. Waits while it does not read.
    async fn send_input(&self, standing: &Standing, exec: &Exec, input: Input) -> Result<()> {
        if let Input::Stdin(StdinChunk::Bytes(bytes)) = &input
            && bytes.len() > limits::STDIN_BYTES_MAX
        {
            let allowed = format!("at most {} bytes at once", limits::STDIN_BYTES_MAX);
            return Err(Invalid::new("stdin", bytes.len(), allowed).into());
        }
        let _attached = exec.attach();
        let mut slot = exec.writer.lock().await;
        if !exec.is_running() {
            let what = format!("exec {} has ended", exec.id);
            return Err(Error::Conflict { what, fix: "start another one".to_owned() });
        }
        // Taken out while it sends: who gives up in the middle leaves a torn stream, which nobody can use again.
        let mut writer = match slot.take() {
            Some(writer) => writer,
            None => link::attach(self.backend.dial(&standing.handle).await?, exec.id.clone()).await?.split().1,
        };
        match input {
            Input::Stdin(StdinChunk::Bytes(bytes)) => writer.stdin(&bytes).await?,
            Input::Stdin(StdinChunk::End) => writer.stdin_end().await?,
            Input::Size(size) => writer.resize(size).await?,
        }
        *slot = Some(writer);
        Ok(())
    }

    /// Passes given input on, in a task of its own: the command may take its time.
    fn feed(self: &Arc<Self>, standing: &Arc<Standing>, exec: &Arc<Exec>, bytes: Vec<u8>) {
        let (inner, standing, exec) = (Arc::clone(self), Arc::clone(standing), Arc::clone(exec));
        self.tasks.start(async move {
            let fed = async {
                inner.send_input(&standing, &exec, Input::Stdin(StdinChunk::Bytes(bytes))).await?;
                inner.send_input(&standing, &exec, Input::Stdin(StdinChunk::End)).await
            };
            tokio::select! {
                () = inner.stopping.cancelled() => {}
                // Whoever does not read all of its input has ended or will; neither is an error.
                _ = fed => {}
            }
        });
    }

    /// Waits for the end and reads what there is to tell of it.
    async fn result(&self, standing: &Standing, exec: &Exec) -> Result<ExecResult> {
        let _attached = exec.attach();
        let info = match &*exec.ended().await {
            End::Told { info } => match exec.over_quota() {
                Some(error) => return Err(error.replica()),
                None => info.clone(),
            },
            End::Refused(refusal) => return Err(refusal.replica()),
            End::Lost { reason, .. } => return Err(Error::Gone { reason: reason.clone() }),
        };
        let captured = lock(&exec.captured).clone();
        let (stdout, stderr) = match captured {
            Some(captured) => captured,
            None => clipped_output(standing, exec, &info).await?,
        };
        Ok(ExecResult {
            info,
            stdout: stdout.text,
            stderr: stderr.text,
            stdout_truncated: stdout.truncated,
            stderr_truncated: stderr.truncated,
        })
    }
}

/// What a result tells of the output.
pub(super) async fn clipped_output(standing: &Standing, exec: &Exec, info: &ExecInfo) -> Result<(Clipped, Clipped)> {
    let clipped = |stream, bytes: u64| async move {
        // Most commands say nothing on one stream or both; then there is no file to look for.
        if bytes == 0 {
            return Ok(Clipped { text: String::new(), truncated: false });
        }
        match exec.output_head_bytes {
            Some(bytes_max) => standing.journal.head(&exec.id, stream, bytes_max, bytes).await,
            None => standing.journal.clipped(&exec.id, stream, exec.output_limit_chars).await,
        }
    };
    let stdout = clipped(box_wire::StreamName::Stdout, info.stdout_bytes).await?;
    let stderr = clipped(box_wire::StreamName::Stderr, info.stderr_bytes).await?;
    Ok((stdout, stderr))
}

/// What goes into a command.
enum Input {
    Stdin(StdinChunk),
    Size(WindowSize),
}

/// Checks everything that does not depend on the session, so that a bad call does not make one.
fn check(call: &ExecCall) -> Result<()> {
    let alone = ExecRequest {
        env: call.env.clone(),
        terminal: call.terminal,
        timeout_ms: call.timeout_ms,
        user: call.user,
        ..ExecRequest::new(new_exec_id()?, call.program.clone())
    };
    alone.validate()?;
    if let CallStdin::Bytes(bytes) = &call.stdin
        && bytes.len() > limits::STDIN_BYTES_MAX
    {
        let allowed = format!("at most {} bytes; stream more", limits::STDIN_BYTES_MAX);
        return Err(Invalid::new("stdin", bytes.len(), allowed).into());
    }
    if let Some(limit) = call.output_limit_chars.filter(|limit| !(1..=limits::OUTPUT_LIMIT_CHARS_MAX).contains(limit)) {
        let allowed = format!("from 1 to {} characters", limits::OUTPUT_LIMIT_CHARS_MAX);
        return Err(Invalid::new("output_limit_chars", limit, allowed).into());
    }
    if let Some(bytes) = call.output_head_bytes.filter(|bytes| !(1..=limits::READ_BYTES_MAX).contains(bytes)) {
        let allowed = format!("from 1 to {} bytes", limits::READ_BYTES_MAX);
        return Err(Invalid::new("output_head_bytes", bytes, allowed).into());
    }
    if let Some(note) = call.note.as_ref().filter(|note| note.len() > limits::NOTE_BYTES_MAX) {
        let allowed = format!("at most {} bytes", limits::NOTE_BYTES_MAX);
        return Err(Invalid::new("note", note.len(), allowed).into());
    }
    if let Some(key) = &call.idempotency_key
        && (key.is_empty() || key.len() > limits::IDEMPOTENCY_KEY_BYTES_MAX || key.chars().any(char::is_control))
    {
        let allowed = format!("1 to {} bytes of readable text", limits::IDEMPOTENCY_KEY_BYTES_MAX);
        return Err(Invalid::new("idempotency_key", key, allowed).into());
    }
    Ok(())
}

pub(super) fn new_exec_id() -> Result<ExecId> {
    Ok(format!("e{}", uuid::Uuid::now_v7().simple()).parse()?)
}

/// What a command finds in its environment: ours, the session's, its own, each over the one before.
pub(super) fn environment_of(
    config: &SessionConfig,
    user: box_wire::User,
    own: &[(String, String)],
) -> Vec<(String, String)> {
    let mut env = environment::at_home(user, config.mount_path.as_str());
    for (name, value) in config.env.iter().chain(own) {
        environment::set(&mut env, name, value);
    }
    env
}

/// Where a command works.
pub(super) fn workdir(config: &SessionConfig, asked: Option<&GuestPath>) -> GuestPath {
    asked.unwrap_or(&config.mount_path).clone()
}

/// Puts a command into the session's list, in one step with looking whether its idempotency key is taken. Returns who has it.
fn claim(session: &Session, exec: &Arc<Exec>) -> Result<Option<Arc<Exec>>> {
    let mut execs = lock(&session.execs);
    let key = exec.idempotency.as_ref().map(|(key, _)| key);
    let same = |other: &&Arc<Exec>| key.is_some() && other.idempotency.as_ref().map(|(key, _)| key) == key;
    let Some(earlier) = execs.values().find(same).cloned() else {
        execs.insert(exec.id.clone(), Arc::clone(exec));
        return Ok(None);
    };
    if earlier.idempotency == exec.idempotency {
        return Ok(Some(earlier));
    }
    Err(Error::Conflict {
        what: format!("this idempotency key belongs to exec {}, which was another command", earlier.id),
        fix: "use a new key for a new command".to_owned(),
    })
}

/// What makes two calls the same.
fn fingerprint(call: &ExecCall) -> String {
    let told = format!(
        "{:?}",
        (
            &call.program,
            &call.env,
            &call.workdir,
            &call.stdin,
            &call.terminal,
            call.timeout_ms,
            call.on_timeout,
            call.user
        )
    );
    hexadecimal::sha256(told.as_bytes())
}
