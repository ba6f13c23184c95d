//! What can be asked of code contexts: run a cell, list, create, restart and delete contexts.

mod cell;
mod contexts;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use box_wire::Program;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::session::Session;
use super::sessions::{Lost, entry};
use super::{Resource, Service};
use crate::audit::{AuditEntry, Outcome};
use crate::call::ExecCall;
use crate::code::{
    Cell, CodeCall, CodeCollector, CodeContext, CodeEvent, CodeResult, CodeStatus, CodeTimeout, ContextCall,
    ContextChoice,
};
use crate::session::{OnTimeout, SessionId, SessionRequest};
use crate::tasks::Start as _;
use crate::{Caller, Error, Result, Scope, limits, random};

use cell::{Deadline, EventSender, QueuedCell};
use contexts::{Contexts, default_id};
pub(super) use queue::ContextQueues;

/// A call that runs. Dropping it interrupts the code.
#[derive(Debug)]
pub struct CodeRun {
    /// Where it runs.
    pub context: CodeContext,
    /// Its deadline, if it has one.
    pub timeout_ms: Option<u64>,
    /// The limit that keeps the deadline from being longer, where it is reached.
    pub timeout_limit: Option<String>,
    session_id: SessionId,
    /// Most characters of each text in the result, where the caller does not say.
    limit_chars: usize,
    started: Instant,
    events: mpsc::Receiver<Result<CodeEvent>>,
    detached: CancellationToken,
}

impl CodeRun {
    /// The next event; nothing after [`CodeEvent::Ended`]. An error when the session ends before the code does. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<CodeEvent>> {
        self.events.recv().await.transpose()
    }

    /// Lets the code go on after this is dropped. The events that follow say so.
    pub fn detach(&self) {
        self.detached.cancel();
    }

    /// Collects events. Texts of the result have at most `limit_chars` characters each, or as many as those of commands.
    pub fn collector(&self, limit_chars: Option<usize>) -> CodeCollector {
        CodeCollector::new(limit_chars.unwrap_or(self.limit_chars))
    }

    /// Waits for the end.
    pub async fn result(mut self) -> Result<CodeResult> {
        let mut collector = self.collector(None);
        while let Some(event) = self.next().await? {
            collector.add(event);
        }
        Ok(self.finish(collector))
    }

    /// The result of the events that were collected.
    pub fn finish(&self, collector: CodeCollector) -> CodeResult {
        let result = collector.finish(self.session_id.clone(), self.context.clone());
        CodeResult {
            duration_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            timeout_ms: self.timeout_ms,
            timeout_limit: self.timeout_limit.clone(),
            ..result
        }
    }
}

impl Service {
    /// Runs code in a context; makes the session and starts the context of a language if they do not exist. Returns when the
    /// context runs, or when the code waits for earlier cells of it.
    #[boxed]
    pub async fn run_code(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: CodeCall,
    ) -> Result<CodeRun> {
        let begun = self.begin_code(caller, id, request, call).await;
        self.inner.noting(caller, "run_code", id, begun).await
    }

    /// The contexts of a session that were started.
    #[boxed]
    pub async fn code_contexts(&self, caller: &Caller, id: &SessionId) -> Result<Vec<CodeContext>> {
        Ok(self.contexts_of(caller, id).list().await?.iter().map(contexts::Context::info).collect())
    }

    /// Creates a context; makes the session if it does not exist.
    #[boxed]
    pub async fn create_code_context(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: ContextCall,
    ) -> Result<CodeContext> {
        self.obtain_for_code(caller, id, request).await?;
        let contexts = self.contexts_of(caller, id);
        let creating = async move { contexts.create(call.language, call.cwd.as_ref()).await };
        Ok(self.inner.to_the_end(creating).await?.info())
    }

    /// Restarts a context, whatever it runs. The names that it knew are gone. That of a language is started if it is not there.
    #[boxed]
    pub async fn restart_code_context(
        &self,
        caller: &Caller,
        id: &SessionId,
        context_id: &str,
        cwd: Option<box_wire::GuestPath>,
    ) -> Result<CodeContext> {
        let (contexts, context_id) = (self.contexts_of(caller, id), context_id.to_owned());
        let restarting = async move {
            let context = contexts.find_or_start(&context_id, cwd.as_ref()).await?;
            let queue = contexts.queue(&context_id);
            let _starting = queue.starting().await;
            contexts.restart(&context).await
        };
        Ok(self.inner.to_the_end(restarting).await?.info())
    }

    /// Deletes a context, whatever it runs. That of a language is started again by its next use.
    #[boxed]
    pub async fn delete_code_context(&self, caller: &Caller, id: &SessionId, context_id: &str) -> Result<()> {
        let (contexts, context_id) = (self.contexts_of(caller, id), context_id.to_owned());
        self.inner.to_the_end(async move { contexts.delete(&context_id).await }).await
    }

    fn contexts_of(&self, caller: &Caller, id: &SessionId) -> Contexts {
        Contexts { service: self.clone(), caller: caller.clone(), session: id.clone() }
    }

    /// The session, running.
    async fn obtain_for_code(&self, caller: &Caller, id: &SessionId, request: &SessionRequest) -> Result<Arc<Session>> {
        caller.require(Scope::Exec)?;
        self.inner.enabled()?;
        self.inner.check_writable()?;
        self.inner.check_quota(caller, id, request).await?;
        let (session, _) = self.inner.obtain(caller, id, request, Lost::Report).await?;
        self.inner.wake(&session).await?;
        Ok(session)
    }

    async fn begin_code(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: CodeCall,
    ) -> Result<CodeRun> {
        call.validate()?;
        let (started, contexts) = (Instant::now(), self.contexts_of(caller, id));
        let context_id = match call.context {
            ContextChoice::OfLanguage(language) => {
                language.check(&call.code, &call.env)?;
                default_id(language)
            }
            ContextChoice::Existing(context_id) => context_id,
        };
        let place = self.inner.take(&caller.tenant, Resource::Execs, 1)?;
        let session = self.obtain_for_code(caller, id, request).await?;
        let finding = {
            let contexts = contexts.clone();
            async move { contexts.find_or_start(&context_id, call.cwd.as_ref()).await }
        };
        let context = self.inner.to_the_end(finding).await?;
        context.language.check(&call.code, &call.env)?;
        let queue = contexts.queue(&context.id);
        let ticket = queue.join()?;
        self.note_code(caller, &context.id, &call.code, id).await?;

        let (sender, events) = mpsc::channel(limits::CODE_EVENTS_WAITING_MAX);
        let detached = self.inner.stopping.child_token();
        let (timeout_ms, timeout_limit) = deadline(&session, call.timeout);
        let run = CodeRun {
            context: context.info(),
            timeout_ms,
            timeout_limit,
            session_id: id.clone(),
            limit_chars: self.inner.config().output_limit_chars,
            started,
            events,
            detached: detached.clone(),
        };
        let destroys = session.with_config(|config| config.on_timeout == OnTimeout::Destroy);
        let queued = QueuedCell {
            deadline: Deadline::of(started, &run),
            doomed: destroys.then(|| Arc::clone(&session)),
            cell: Cell { number: number()?, code: call.code, env: call.env },
            listener: EventSender::new(sender),
            contexts,
            context,
            queue,
            ticket,
            detached,
        };
        let inner = Arc::clone(&self.inner);
        self.inner.tasks.start(async move {
            let (_place, _used) = (place, session.start_use());
            let (tenant, context_id) = (session.key.tenant.clone(), queued.context.id.clone());
            let status = queued.run().await;
            let verdict = if status == CodeStatus::TimedOut { Outcome::TimedOut } else { Outcome::Completed };
            let end = AuditEntry::anonymous("strongbox", "end", verdict, jiff::Timestamp::now());
            let (session, target) = (Some(session.key.id.clone()), Some(context_id));
            inner.audit(AuditEntry { tenant: Some(tenant), session, target, ..end }).await;
        });
        Ok(run)
    }

    async fn note_code(&self, caller: &Caller, context_id: &str, code: &str, id: &SessionId) -> Result<()> {
        let started = entry(caller, "run_code", Outcome::Started, id);
        let (target, command) = (Some(context_id.to_owned()), Some(code.to_owned()));
        self.inner.record(AuditEntry { target, command, ..started }).await
    }
}

impl Deadline {
    fn of(started: Instant, run: &CodeRun) -> Self {
        let at = run.timeout_ms.map(|ms| started + Duration::from_millis(ms));
        let seconds = Duration::from_millis(run.timeout_ms.unwrap_or_default()).as_secs_f64();
        let more = match &run.timeout_limit {
            Some(limit) => format!("the deadline cannot be longer: {limit}"),
            None => "a larger timeout_sec allows more".to_owned(),
        };
        Self { at, message: format!("the code did not end within {seconds} s ({more})") }
    }
}

/// The deadline of a call, and the limit that it has reached: that of a command of the session.
fn deadline(session: &Session, timeout: CodeTimeout) -> (Option<u64>, Option<String>) {
    let timeout_ms = match timeout {
        CodeTimeout::Unlimited => return (None, None),
        CodeTimeout::OfSession => None,
        CodeTimeout::Ms(ms) => Some(ms),
    };
    let call = ExecCall { timeout_ms, ..ExecCall::new(Program::Shell(String::new())) };
    session.with_config(|config| (config.deadline_ms(&call), config.deadline_limit(&call)))
}

/// A number that no cell of the context had before.
fn number() -> Result<u64> {
    let bytes = random::bytes::<8>().map_err(|error| Error::io("numbering a cell", error))?;
    // Programs of contexts count with doubles.
    Ok(u64::from_be_bytes(bytes) >> 12)
}
