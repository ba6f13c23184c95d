//! One cell, from its turn to its end. The task of a cell lives on when its client leaves, until the context is free again.

use std::io;
use std::time::Duration;

use box_core::call::{ExecInfo, FollowEvent, StdinChunk, Target};
use box_core::service::Follow;
use bytes::Bytes;
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::answer::Refused;
use super::contexts::{Context, Contexts};
use super::event::Event;
use super::language::Cell;
use super::line;
use super::listener::Listener;
use super::turns::{Left, Turn, TurnTicket};
use crate::limits;
use crate::process::ended::OUT_OF_MEMORY;

/// Bytes of a request that a context is told at once.
const REQUEST_PIECE_BYTES: usize = 1 << 20;

/// How long a process that was interrupted is given to notice.
const INTERRUPT_SETTLES: Duration = Duration::from_millis(100);

/// A cell that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The contexts of its sandbox.
    pub(super) contexts: Contexts,
    /// The one that runs it.
    pub(super) context: Context,
    /// The turns of that one.
    pub(super) turn: std::sync::Arc<Turn>,
    /// Its place among those who wait.
    pub(super) place: TurnTicket,
    /// What is run.
    pub(super) cell: Cell,
    /// Who wants to know.
    pub(super) client: Client,
    /// Fires when the server stops.
    pub(super) closing: CancellationToken,
}

/// Whoever asked for a cell.
#[derive(Debug, Clone)]
pub(super) struct Client(pub(super) mpsc::Sender<io::Result<Bytes>>);

/// Why nobody listens to a cell any more.
#[derive(Debug)]
enum Outcome {
    /// It has ended.
    Done,
    /// The client has left.
    Left,
    /// The context did not begin with it.
    Silent,
    /// The process of the context ended, and how, if known.
    Died(Option<Box<ExecInfo>>),
    /// The server stops.
    Stopping,
    /// It cannot be known.
    Lost(Refused),
}

impl Client {
    /// Tells what happened. False when the client has left.
    async fn tell(&self, events: &[Event]) -> bool {
        for event in events {
            if self.0.send(Ok(line::ascii(event).into())).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Aborts the stream, so that the client does not take partial output as complete.
    async fn break_off(&self) {
        let gone = io::Error::new(io::ErrorKind::ConnectionAborted, "the sandbox is gone");
        // The client may have left.
        let _ = self.0.send(Err(gone)).await;
    }

    /// Waits for something, and shows the client meanwhile that we live. Also waits when the client has left.
    async fn while_waiting<T>(&self, something: impl Future<Output = T>) -> T {
        let mut something = std::pin::pin!(something);
        loop {
            tokio::select! {
                it = &mut something => return it,
                () = tokio::time::sleep(limits::CELL_KEEPALIVE_EVERY) => {
                    self.tell(&[Event::Keepalive]).await;
                }
            }
        }
    }
}

impl Waiting {
    /// Waits for the turn, runs the cell, and tells its client everything.
    pub(super) async fn run(self) {
        let mut left = tokio::select! {
            left = self.client.while_waiting(self.place.turn()) => left,
            () = self.client.0.closed() => return,
        };
        let mut outcome = self.attempt(&mut left).await;
        if matches!(outcome, Outcome::Silent) {
            outcome = self.again(&mut left).await;
        }
        if matches!(outcome, Outcome::Died(_) | Outcome::Lost(_)) && !self.contexts.have_sandbox().await {
            return self.client.break_off().await;
        }
        let last = match outcome {
            Outcome::Done | Outcome::Left => None,
            Outcome::Silent => Some(Event::failed("ContextSilent", "the context does not answer; restart it")),
            Outcome::Died(how) => Some(died(how.as_deref())),
            Outcome::Stopping => Some(Event::failed("ServerStopping", "the server stops; what the cell does goes on")),
            Outcome::Lost(refused) => Some(Event::failed("ContextLost", refused.message())),
        };
        self.client.tell(&last.into_iter().chain([Event::EndOfExecution]).collect::<Vec<_>>()).await;
    }

    /// Runs the cell in a new process, because the one of before does not answer.
    async fn again(&self, left: &mut Left) -> Outcome {
        left.is_new = true;
        if let Err(refused) = self.contexts.restart(&self.context).await {
            return Outcome::Lost(refused);
        }
        self.attempt(left).await
    }

    async fn attempt(&self, left: &mut Left) -> Outcome {
        // To the end, whoever leaves: a process that was told half of its program is of no use.
        let context = match self.client.while_waiting(self.ready()).await {
            Ok(_) if self.client.0.is_closed() => return Outcome::Left,
            Ok(context) => context,
            Err(refused) => return Outcome::Lost(refused),
        };
        let text = "strongbox: the context did not answer and was started again: what it knew is gone\n";
        if std::mem::take(&mut left.is_new) && !self.client.tell(&[Event::note(text)]).await {
            return Outcome::Left;
        }
        match Run::begin(self, &context).await {
            Ok(mut run) => run.until_free(left).await,
            Err(refused) => Outcome::Lost(refused),
        }
    }

    /// The context with a process that runs and is not busy with what others asked.
    async fn ready(&self) -> Result<Context, Refused> {
        let _starting = self.turn.starting().await;
        let mut context = self.contexts.find(&self.context.id).await?;
        if !context.is_running {
            context = self.contexts.restart(&context).await?;
        } else if !self.turn.knows(context.started_at) {
            // Perhaps a cell of a client that is long gone still runs; one that does not run is not disturbed by this.
            let (contexts, target) = (&self.contexts, context.target()?);
            let signal = Signal::INT.as_raw();
            let _ = contexts.service.signal_tree(&contexts.caller, &contexts.session, &target, signal).await;
            // A shell throws away what it has read when it notices, and that must not be the request that comes next.
            tokio::time::sleep(INTERRUPT_SETTLES).await;
            self.turn.meet(context.started_at);
        }
        Ok(context)
    }
}

fn died(info: Option<&ExecInfo>) -> Event {
    let how = match info {
        Some(info) if info.oom_killed => format!(": {OUT_OF_MEMORY}"),
        Some(ExecInfo { exit_code: Some(code), .. }) => format!(" with {code}"),
        _ => String::new(),
    };
    Event::failed("ContextDied", format!("the process of the context ended{how}; the next cell starts with nothing"))
}

/// Writes a request to a context, which takes no more at once than a process may be given.
async fn tell_context(contexts: &Contexts, target: Target, request: Vec<u8>) -> box_core::Result<()> {
    for piece in request.chunks(REQUEST_PIECE_BYTES) {
        let chunk = StdinChunk::Bytes(piece.to_vec());
        contexts.service.write_stdin(&contexts.caller, &contexts.session, &target, chunk).await?;
    }
    Ok(())
}

/// A cell that a context was given.
struct Run<'a> {
    contexts: &'a Contexts,
    context: &'a Context,
    target: Target,
    client: &'a Client,
    closing: &'a CancellationToken,
    request: Option<Vec<u8>>,
    follow: Follow,
    listener: Listener,
}

impl<'a> Run<'a> {
    async fn begin(waiting: &'a Waiting, context: &'a Context) -> Result<Self, Refused> {
        let (contexts, target) = (&waiting.contexts, context.target()?);
        let follow = contexts.service.follow(&contexts.caller, &contexts.session, &target, context.cursor).await?;
        Ok(Self {
            contexts,
            context,
            target,
            client: &waiting.client,
            closing: &waiting.closing,
            request: Some(context.language.request(&waiting.cell)),
            follow,
            listener: Listener::new(waiting.cell.number, &context.nonce),
        })
    }

    /// Runs the cell; gives the context back only when it is free.
    async fn until_free(&mut self, left: &mut Left) -> Outcome {
        let telling = tell_context(self.contexts, self.target.clone(), self.request.take().unwrap_or_default());
        let (outcome, is_told) = self.tell_and_listen(telling).await;
        if matches!(outcome, Outcome::Left) && !is_told {
            // Half a request would spoil the next one.
            left.is_new = true;
            let _ = self.contexts.restart(self.context).await;
        } else if matches!(outcome, Outcome::Left) {
            left.is_new = self.interrupt().await;
        }
        outcome
    }

    /// Both at once: a context that is busy with printing takes no request, and one that is told much may answer before it was told
    /// everything. Also gives whether it was told everything.
    async fn tell_and_listen(&mut self, telling: impl Future<Output = box_core::Result<()>>) -> (Outcome, bool) {
        let mut telling = std::pin::pin!(telling);
        let mut listening = std::pin::pin!(self.listen());
        tokio::select! {
            told = &mut telling => match told {
                Ok(()) => (listening.await, true),
                Err(error) => (Outcome::Lost(error.into()), false),
            },
            outcome = &mut listening => (outcome, false),
        }
    }

    /// Passes on what the context says.
    async fn listen(&mut self) -> Outcome {
        let begin_by = Instant::now() + limits::CELL_BEGIN_TIME_MAX;
        let mut alive_at = Instant::now() + limits::CELL_KEEPALIVE_EVERY;
        loop {
            if self.listener.is_done() {
                let is_told = self.client.tell(&self.listener.verdict()).await;
                return if is_told { Outcome::Done } else { Outcome::Left };
            }
            let due = self.listener.due().unwrap_or(alive_at).min(alive_at);
            let events = tokio::select! {
                () = self.client.0.closed() => return Outcome::Left,
                () = self.closing.cancelled() => return Outcome::Stopping,
                () = sleep_until(begin_by), if !self.listener.has_begun() => return Outcome::Silent,
                () = sleep_until(due) => match self.listener.flush() {
                    nothing if nothing.is_empty() && Instant::now() >= alive_at => vec![Event::Keepalive],
                    events => events,
                },
                event = self.follow.next() => match event {
                    Ok(Some(FollowEvent::Ended { info, .. })) => {
                        self.client.tell(&self.listener.flush()).await;
                        return Outcome::Died(Some(info));
                    }
                    Ok(Some(event)) => self.listener.hear(&event),
                    Ok(None) => return Outcome::Died(None),
                    Err(error) => return Outcome::Lost(error.into()),
                },
            };
            if !events.is_empty() {
                alive_at = Instant::now() + limits::CELL_KEEPALIVE_EVERY;
            }
            if !self.client.tell(&events).await {
                return Outcome::Left;
            }
        }
    }

    /// Ends the cell of a client that has left: it is asked, then everything that it started, and then there is a new process. Gives
    /// whether there is.
    async fn interrupt(&mut self) -> bool {
        let (service, caller, session) = (&self.contexts.service, &self.contexts.caller, &self.contexts.session);
        let signal = Signal::INT.as_raw();
        let _ = service.signal(caller, session, &self.target, signal).await;
        if self.ends_within(limits::CELL_INTERRUPT_TIME_MAX).await {
            return false;
        }
        let _ = service.signal_tree(caller, session, &self.target, signal).await;
        if self.ends_within(limits::CELL_INTERRUPT_TIME_MAX).await {
            return false;
        }
        if let Err(refused) = self.contexts.restart(self.context).await {
            tracing::warn!(session.id = %session, error = refused.message(), "a context that did not stop cannot be started again");
        }
        true
    }

    /// Whether the cell ends soon. What it says is for nobody.
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
