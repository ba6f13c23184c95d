//! One cell, from its place in the queue to its end. Its task outlives a caller who leaves, until the context is free again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::contexts::{Context, Contexts, OUT_OF_MEMORY};
use super::queue::{ContextQueue, LastRun, QueueTicket};
use crate::call::{ExecInfo, FollowEvent, StdinChunk, Target};
use crate::code::{Cell, CodeEvent, CodeStatus, Listener};
use crate::service::Follow;
use crate::service::session::Session;
use crate::{Error, Result, limits};

/// Bytes of a request that are written to a context at once.
const REQUEST_PIECE_BYTES: usize = 1 << 20;

/// How long a process that was interrupted is given to notice.
const INTERRUPT_SETTLES: Duration = Duration::from_millis(100);

/// A cell that waits for its turn.
#[derive(Debug)]
pub(super) struct QueuedCell {
    pub(super) contexts: Contexts,
    pub(super) context: Context,
    pub(super) queue: Arc<ContextQueue>,
    pub(super) ticket: QueueTicket,
    pub(super) cell: Cell,
    pub(super) listener: EventSender,
    /// Fires when the caller stops listening without ending the cell, and when the service stops.
    pub(super) detached: CancellationToken,
    pub(super) deadline: Deadline,
    /// The session, if it goes with a deadline that passes.
    pub(super) doomed: Option<Arc<Session>>,
}

/// When a cell has to be over.
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    pub(super) at: Option<Instant>,
    /// What the caller reads when it passes.
    pub(super) message: String,
}

/// Where the events of a cell go.
#[derive(Debug)]
pub(super) struct EventSender {
    events: mpsc::Sender<Result<CodeEvent>>,
    has_failed: AtomicBool,
}

/// Why a cell is not listened to any more.
#[derive(Debug)]
enum Outcome {
    /// It has ended.
    Done,
    /// The caller has left.
    CallerLeft,
    /// Its deadline passed.
    TimedOut,
    /// The context did not begin with it.
    Silent,
    /// The process of the context ended, and how, if known.
    Died(Option<Box<ExecInfo>>),
    /// The caller does not want to know how it goes on.
    Detached,
    /// The stream to the context failed.
    Failed(Error),
}

impl EventSender {
    pub(super) fn new(events: mpsc::Sender<Result<CodeEvent>>) -> Self {
        Self { events, has_failed: AtomicBool::new(false) }
    }

    /// Sends events. False when the caller has left.
    async fn send(&self, events: Vec<CodeEvent>) -> bool {
        for event in events {
            if matches!(event, CodeEvent::Failed(_)) {
                self.has_failed.store(true, Ordering::Relaxed);
            }
            if self.events.send(Ok(event)).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Ends the stream with an error, so that the caller does not take partial output as complete.
    async fn abort(&self, error: Error) {
        // The caller may have left.
        let _ = self.events.send(Err(error)).await;
    }

    fn status(&self) -> CodeStatus {
        if self.has_failed.load(Ordering::Relaxed) { CodeStatus::Failed } else { CodeStatus::Completed }
    }
}

impl Deadline {
    /// Waits until it passes.
    async fn passed(&self) {
        match self.at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    fn has_passed(&self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
    }
}

impl QueuedCell {
    /// Waits for the turn, runs the cell, and sends its events.
    pub(super) async fn run(self) -> CodeStatus {
        let (mut last, outcome) = tokio::select! {
            last = self.ticket.turn() => (Some(last), None),
            () = self.deadline.passed() => (None, Some(Outcome::TimedOut)),
            () = self.detached.cancelled() => (None, Some(Outcome::Detached)),
            () = self.listener.events.closed() => return CodeStatus::Failed,
        };
        let outcome = match (&mut last, outcome) {
            (Some(last), None) => self.attempts(last).await,
            (_, outcome) => outcome.unwrap_or(Outcome::CallerLeft),
        };
        self.end(outcome, last.as_deref()).await
    }

    /// Sends the last events.
    async fn end(&self, outcome: Outcome, last: Option<&LastRun>) -> CodeStatus {
        if matches!(outcome, Outcome::Died(_) | Outcome::Failed(_))
            && let Err(error) = self.contexts.check_session().await
        {
            self.listener.abort(error).await;
            return CodeStatus::Failed;
        }
        let timed_out = matches!(outcome, Outcome::TimedOut);
        let event = match outcome {
            Outcome::Done | Outcome::CallerLeft => None,
            Outcome::TimedOut => Some(CodeEvent::failed("TimeoutError", self.timeout_message(last))),
            Outcome::Silent => Some(CodeEvent::failed("ContextSilent", "the context does not answer; restart it")),
            Outcome::Died(how) => Some(died(how.as_deref())),
            Outcome::Detached => {
                Some(CodeEvent::failed("ServerStopping", "the server stops; the cell goes on without it"))
            }
            Outcome::Failed(error) => Some(CodeEvent::failed("ContextLost", error.to_string())),
        };
        if let Some(session) = self.doomed.as_ref().filter(|_| timed_out)
            && let Err(error) = self.contexts.service.inner.remove(session).await
        {
            tracing::error!(session.id = %session.key.id, %error, "failed to remove a session after a timeout");
        }
        self.listener.send(event.into_iter().collect()).await;
        let status = if timed_out { CodeStatus::TimedOut } else { self.listener.status() };
        self.listener.send(vec![CodeEvent::Ended(status)]).await;
        status
    }

    fn timeout_message(&self, last: Option<&LastRun>) -> String {
        let state = match last {
            None => "earlier cells of the context still run, so it did not start",
            Some(last) if last.was_restarted => "it ignored interrupts, so the context was restarted without its names",
            Some(_) => "it was interrupted, and the context keeps its names",
        };
        format!("{}; {state}", self.deadline.message)
    }

    /// Runs the cell, in a new process if the one of the context does not answer.
    async fn attempts(&self, last: &mut LastRun) -> Outcome {
        match self.attempt(last).await {
            Outcome::Silent => {
                last.was_restarted = true;
                match self.contexts.restart(&self.context).await {
                    Ok(_) => self.attempt(last).await,
                    Err(error) => Outcome::Failed(error),
                }
            }
            outcome => outcome,
        }
    }

    async fn attempt(&self, last: &mut LastRun) -> Outcome {
        // To the end, even if the caller leaves: a process that has read half of its program is useless.
        let context = match self.ready().await {
            Ok(_) if self.listener.events.is_closed() => return Outcome::CallerLeft,
            Ok(_) if self.deadline.has_passed() => return Outcome::TimedOut,
            Ok(context) => context,
            Err(error) => return Outcome::Failed(error),
        };
        let notice = "strongbox: the context did not answer and was restarted; the names that it knew are gone\n";
        if std::mem::take(&mut last.was_restarted) && !self.listener.send(vec![CodeEvent::notice(notice)]).await {
            return Outcome::CallerLeft;
        }
        match Run::begin(self, &context).await {
            Ok(mut run) => run.until_free(last).await,
            Err(error) => Outcome::Failed(error),
        }
    }

    /// The context with a process that runs and is not busy.
    async fn ready(&self) -> Result<Context> {
        let _starting = self.queue.starting().await;
        let mut context = self.contexts.find(&self.context.id).await?;
        if !context.is_running {
            context = self.contexts.restart(&context).await?;
        } else if !self.queue.knows(context.started_at) {
            // A cell of a previous server may still run. A process that runs none ignores the interrupt.
            let (contexts, target) = (&self.contexts, context.target(&self.contexts.session)?);
            let signal = Signal::INT.as_raw();
            let _ = contexts.service.signal_tree(&contexts.caller, &contexts.session, &target, signal).await;
            // A shell drops the input that it has read when it notices, and that must not be the next request.
            tokio::time::sleep(INTERRUPT_SETTLES).await;
            self.queue.remember(context.started_at);
        }
        Ok(context)
    }
}

fn died(info: Option<&ExecInfo>) -> CodeEvent {
    let how = match info {
        Some(info) if info.oom_killed => format!(": {OUT_OF_MEMORY}"),
        Some(ExecInfo { exit_code: Some(code), .. }) => format!(" with {code}"),
        _ => String::new(),
    };
    CodeEvent::failed(
        "ContextDied",
        format!("the process of the context ended{how}; the next cell starts with nothing"),
    )
}

/// Writes a request to a context, in pieces that a process may be given at once.
async fn write_request(contexts: &Contexts, target: Target, request: Vec<u8>) -> Result<()> {
    for piece in request.chunks(REQUEST_PIECE_BYTES) {
        let chunk = StdinChunk::Bytes(piece.to_vec());
        contexts.service.write_stdin(&contexts.caller, &contexts.session, &target, chunk).await?;
    }
    Ok(())
}

/// A cell that a context was given.
struct Run<'a> {
    queued: &'a QueuedCell,
    context: &'a Context,
    target: Target,
    request: Option<Vec<u8>>,
    follow: Follow,
    listener: Listener,
}

impl<'a> Run<'a> {
    async fn begin(queued: &'a QueuedCell, context: &'a Context) -> Result<Self> {
        let contexts = &queued.contexts;
        let target = context.target(&contexts.session)?;
        let follow = contexts.service.follow(&contexts.caller, &contexts.session, &target, context.cursor).await?;
        Ok(Self {
            queued,
            context,
            target,
            request: Some(context.language.request(&queued.cell)),
            follow,
            listener: Listener::new(queued.cell.number, &context.nonce),
        })
    }

    /// Runs the cell. Returns when the context is free.
    async fn until_free(&mut self, last: &mut LastRun) -> Outcome {
        let (queued, target) = (self.queued, self.target.clone());
        let writing = write_request(&queued.contexts, target, self.request.take().unwrap_or_default());
        let (outcome, is_written) = self.write_and_listen(writing).await;
        if !matches!(outcome, Outcome::CallerLeft | Outcome::TimedOut) {
            return outcome;
        }
        queued.listener.send(self.listener.flush()).await;
        if is_written {
            last.was_restarted = self.interrupt().await;
        } else {
            // Half a request would spoil the next one.
            last.was_restarted = true;
            let _ = queued.contexts.restart(self.context).await;
        }
        outcome
    }

    /// Both at once: a context that is busy with printing reads no request, and one that reads a long request may answer before its
    /// end. Also returns whether the whole request was written.
    async fn write_and_listen(&mut self, writing: impl Future<Output = Result<()>>) -> (Outcome, bool) {
        let deadline = &self.queued.deadline;
        let mut writing = std::pin::pin!(writing);
        let mut listening = std::pin::pin!(self.listen());
        let mut is_written = false;
        loop {
            tokio::select! {
                () = deadline.passed() => return (Outcome::TimedOut, is_written),
                written = &mut writing, if !is_written => match written {
                    Ok(()) => is_written = true,
                    Err(error) => return (Outcome::Failed(error), false),
                },
                outcome = &mut listening => return (outcome, is_written),
            }
        }
    }

    /// Passes on what the context says.
    async fn listen(&mut self) -> Outcome {
        let (events, detached) = (&self.queued.listener, &self.queued.detached);
        let begin_by = Instant::now() + limits::CODE_BEGIN_TIME_MAX;
        loop {
            if self.listener.is_done() {
                return if events.send(self.listener.verdict()).await { Outcome::Done } else { Outcome::CallerLeft };
            }
            let due = self.listener.due();
            let heard = tokio::select! {
                () = events.events.closed() => return Outcome::CallerLeft,
                () = detached.cancelled() => return Outcome::Detached,
                () = sleep_until(begin_by), if !self.listener.has_begun() => return Outcome::Silent,
                () = sleep_until(due.unwrap_or(begin_by)), if due.is_some() => self.listener.flush(),
                event = self.follow.next() => match event {
                    Ok(Some(FollowEvent::Ended { info, .. })) => {
                        events.send(self.listener.flush()).await;
                        return Outcome::Died(Some(info));
                    }
                    Ok(Some(event)) => self.listener.hear(&event),
                    Ok(None) => return Outcome::Died(None),
                    Err(error) => return Outcome::Failed(error),
                },
            };
            if !events.send(heard).await {
                return Outcome::CallerLeft;
            }
        }
    }

    /// Ends a cell: its process is interrupted, then everything that it started, and then it is restarted. Returns whether it was
    /// restarted.
    async fn interrupt(&mut self) -> bool {
        let Contexts { service, caller, session } = &self.queued.contexts;
        let signal = Signal::INT.as_raw();
        let _ = service.signal(caller, session, &self.target, signal).await;
        if self.ends_within(limits::CODE_INTERRUPT_TIME_MAX).await {
            return false;
        }
        let _ = service.signal_tree(caller, session, &self.target, signal).await;
        if self.ends_within(limits::CODE_INTERRUPT_TIME_MAX).await {
            return false;
        }
        if let Err(error) = self.queued.contexts.restart(self.context).await {
            tracing::warn!(session.id = %session, %error, "failed to restart a code context that ignores interrupts");
        }
        true
    }

    /// Whether the cell ends soon. Its output is dropped.
    async fn ends_within(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while !self.listener.is_done() {
            let next = timeout(Duration::from_millis(200), self.follow.next());
            match timeout_at(deadline, next).await {
                Ok(Ok(Ok(Some(FollowEvent::Ended { .. }) | None) | Err(_))) => return true,
                Ok(Ok(Ok(Some(event)))) => drop(self.listener.hear(&event)),
                Ok(Err(_)) => {}
                Err(_) => return false,
            }
            self.listener.flush();
        }
        true
    }
}
