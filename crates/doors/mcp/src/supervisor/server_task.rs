//! Keeps one server running: a task that does what [`Retry`] says, and reports the results to it.

use std::sync::Arc;
use std::time::Duration;

use box_core::TenantId;
use box_core::call::ProcessStatus;
use box_core::mcp::{McpErrorPhase, McpLogSource};
use box_core::tasks::Start as _;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempt, FileError, News, Parts};
use super::control::{Control, Order};
use super::defined::Defined;
use super::line::{Line, Look};
use super::offered;
use super::placement::{Placement, Stay, edition_variable};
use super::seen::Seen;
use crate::definition::Kind;
use crate::gateway::Registry;
use crate::limits::{CLEAN_UP_TIMEOUT, HEALTH_INTERVAL};
use crate::retry::{Action, Event, ProcessState, Retry};
use crate::upstream::Upstream;

/// Bytes of standard error that are kept of a process that is gone.
const STDERR_KEPT_BYTES: usize = 32 << 10;
/// Checks of a remote server are rarer than those of a process in a box: each is a request to another machine.
const LOOKS_PER_PING: u32 = 6;
/// How long a remote server may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// News of an attempt that wait to be heard.
const NEWS_MAX: usize = 8;

/// Looks after one server.
pub(super) struct ServerTask {
    parts: Parts,
    registry: Registry,
    defined: Arc<Defined>,
    seen: Seen,
    retry: Retry,
    began: Instant,
    orders: mpsc::Receiver<Order>,
    news: (mpsc::Sender<News>, mpsc::Receiver<News>),
    health: Interval,
    looks: u32,
    attempt: Option<Running>,
    line: Option<Line>,
    upstream: Option<Upstream>,
    due: Option<Duration>,
    /// What is said of a failure that is about to be noted.
    reason: Option<String>,
    is_ending: bool,
}

/// An attempt that is under way.
struct Running {
    given_up: CancellationToken,
    task: JoinHandle<()>,
}

/// What the next thing to do is.
enum Next {
    Event(Event),
    /// Everything stays as is, and the task ends.
    Leave,
}

impl ServerTask {
    /// Starts the task of a server, which waits until an earlier task of that name has ended.
    pub(super) fn start(
        parts: &Parts,
        registry: &Registry,
        defined: Arc<Defined>,
        seen: Seen,
        before: Option<Control>,
    ) -> Control {
        let (control, orders, ended) = Control::new();
        let mut health = tokio::time::interval(HEALTH_INTERVAL);
        health.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let startup_timeout = Duration::from_secs(defined.definition.options.startup_timeout_sec);
        let server_task = Self {
            parts: parts.clone(),
            registry: registry.clone(),
            defined,
            seen,
            retry: Retry::new(startup_timeout),
            began: Instant::now(),
            orders,
            news: mpsc::channel(NEWS_MAX),
            health,
            looks: 0,
            attempt: None,
            line: None,
            upstream: None,
            due: None,
            reason: None,
            is_ending: false,
        };
        parts.tasks.start(async move {
            let _ended = ended;
            if let Some(before) = before {
                before.end().await;
            }
            server_task.run().await;
        });
        control
    }

    async fn run(mut self) {
        let mut event = self.beginning().await;
        loop {
            if self.obey(event).await == Action::Rest && self.is_ending {
                return;
            }
            event = match self.next().await {
                Next::Event(event) => event,
                Next::Leave => return self.leave().await,
            };
        }
    }

    /// How a server begins: with a process from before, if one lives that is of this very definition.
    async fn beginning(&mut self) -> Event {
        let Kind::Stdio(stdio) = &self.defined.definition.kind else { return Event::Start };
        let (defined, stdio) = (Arc::clone(&self.defined), stdio.clone());
        let placement = self.parts.tasks.spawn_blocking(move || Placement::of(&defined, &stdio, Stay::Shared)).await;
        let Ok(Ok(placement)) = placement else { return Event::Start };
        let Ok(line) = self.work(CancellationToken::new()).line(&placement) else { return Event::Start };
        let variable = edition_variable(&self.defined.edition(&self.parts.salt));
        match line.find().await {
            Ok(info) if info.status == ProcessStatus::Running && info.env_keys.contains(&variable) => {
                self.seen.lives_in(Some(&line.session));
                self.seen.note(McpLogSource::Supervisor, "adopted the running process");
                self.line = Some(line);
                Event::Found
            }
            _ => Event::Start,
        }
    }

    /// Tells what happened, and does what follows, up to what has to be waited for.
    async fn obey(&mut self, event: Event) -> Action {
        let mut action = self.retry.on(event, self.now());
        let is_wanted = matches!(event, Event::Start | Event::Found | Event::Stop);
        loop {
            match action {
                Action::CleanUp => {
                    if !is_wanted {
                        self.note_failure();
                    }
                    self.clean_up().await;
                    action = self.retry.on(Event::CleanedUp, self.now());
                    continue;
                }
                Action::Build => self.begin(Work::Build),
                Action::Attach => self.begin(Work::Attach),
                Action::WaitUntil(due) => self.due = Some(due),
                Action::Continue | Action::Rest => {}
            }
            self.seen.stands(&self.retry);
            return action;
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Says why the server is about to be cleaned up.
    fn note_failure(&mut self) {
        if let Some(phase) = self.retry.error_phase() {
            let reason = self.reason.take().unwrap_or_else(|| self.lateness());
            tracing::warn!(mcp.server = %self.defined.key.name, mcp.phase = %phase, reason, "an MCP server failed");
            // First the status: cleaning up takes time, and a failed server must not be shown as connected meanwhile.
            self.seen.stands(&self.retry);
            self.seen.failed(phase, &reason);
        }
    }

    fn lateness(&self) -> String {
        format!("it did not answer within {} s", self.defined.definition.options.startup_timeout_sec)
    }

    fn work(&self, given_up: CancellationToken) -> Attempt {
        Attempt {
            parts: self.parts.clone(),
            defined: Arc::clone(&self.defined),
            seen: self.seen.clone(),
            stay: Stay::Shared,
            given_up,
        }
    }

    /// Begins an attempt. There is one at a time.
    fn begin(&mut self, work: Work) {
        self.due = None;
        let given_up = CancellationToken::new();
        let (attempt, news) = (self.work(given_up.clone()), self.news.0.clone());
        let line = self.line.clone();
        let task = self.parts.tasks.start(async move {
            let done = match (work, line) {
                (Work::Attach, Some(line)) => attempt.attach(&line).await,
                // A server without a process to attach to is connected again.
                (Work::Attach, None) | (Work::Build, _) => attempt.build(&news).await,
            };
            let done = match done {
                Ok(upstream) => attempt.pin(upstream).await,
                failed => failed,
            };
            drop(news.send(News::Done(done)).await);
        });
        self.attempt = Some(Running { given_up, task });
    }

    /// Waits for the next thing that happens.
    async fn next(&mut self) -> Next {
        loop {
            let due = self.due.map(|due| self.began + due);
            let waited = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let closed = async {
                match &self.upstream {
                    Some(upstream) => upstream.closed().await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                // Orders come before observations.
                biased;
                () = self.parts.stop.cancelled() => return Next::Leave,
                order = self.orders.recv() => Some(self.heed(order)),
                Some(news) = self.news.1.recv() => self.hear(news),
                () = waited => {
                    self.due = None;
                    Some(Event::Due)
                }
                () = closed => Some(self.lost().await),
                _ = self.health.tick() => self.look().await,
            };
            if let Some(event) = event {
                return Next::Event(event);
            }
        }
    }

    fn heed(&mut self, order: Option<Order>) -> Event {
        self.reason = None;
        match order {
            Some(Order::Restart) => {
                self.seen.note(McpLogSource::Supervisor, "restarting on request");
                Event::Start
            }
            // A closed channel means that the server was removed.
            Some(Order::End) | None => {
                self.is_ending = true;
                Event::Stop
            }
        }
    }

    fn hear(&mut self, news: News) -> Option<Event> {
        match news {
            News::Process(line) => {
                self.line = Some(*line);
                None
            }
            News::Started => Some(Event::ProcessStarted),
            News::Done(Ok(upstream)) => {
                self.attempt = None;
                self.connect(upstream);
                Some(Event::Connected)
            }
            News::Done(Err(error)) => {
                self.attempt = None;
                let FileError { phase, reason, process } = error;
                self.reason = Some(reason);
                Some(process.map_or(Event::Failed(phase), |state| Event::Lost(phase, state)))
            }
        }
    }

    fn connect(&mut self, upstream: Upstream) {
        let about = upstream.about();
        let words = format!("connected to {} {}, which speaks {}", about.name, about.version, about.protocol_version);
        self.seen.note(McpLogSource::Supervisor, &words);
        self.seen.connected(&upstream);
        self.parts.tasks.start(offered::watch(upstream.clone(), self.seen.clone()));
        self.registry.insert(self.tenant(), upstream.clone());
        self.upstream = Some(upstream);
        self.reason = None;
    }

    fn tenant(&self) -> &TenantId {
        &self.defined.key.tenant
    }

    /// The connection is over. What of the process?
    async fn lost(&mut self) -> Event {
        self.disconnect();
        let look = match &self.line {
            Some(line) => line.look().await,
            None => Look { state: ProcessState::Exited, words: "it closed the connection".to_owned() },
        };
        self.seen.note(McpLogSource::Supervisor, &format!("the connection is lost; {}", look.words));
        self.reason = Some(look.words);
        Event::Lost(McpErrorPhase::Runtime, look.state)
    }

    fn disconnect(&mut self) {
        if let Some(upstream) = self.upstream.take() {
            upstream.close();
        }
        self.seen.disconnected();
    }

    /// Checks whether the server is well, and whether a box is available now if there was none.
    async fn look(&mut self) -> Option<Event> {
        if self.retry.error_phase() == Some(McpErrorPhase::BoxUnavailable) && self.attempt.is_none() {
            return match self.parts.service.presence() {
                Ok(()) => Some(self.beginning().await),
                Err(_) => None,
            };
        }
        if let Some(line) = &self.line {
            let look = line.look().await;
            if look.state != ProcessState::Running {
                self.reason = Some(look.words);
            }
            return Some(Event::Looked(look.state));
        }
        self.looks += 1;
        let is_remote = matches!(self.defined.definition.kind, Kind::Remote(_));
        let upstream = self.upstream.as_ref().filter(|_| is_remote && self.looks.is_multiple_of(LOOKS_PER_PING))?;
        if upstream.answers(PING_TIMEOUT).await {
            return Some(Event::Looked(ProcessState::Running));
        }
        self.reason = Some("it does not answer any more".to_owned());
        Some(Event::Looked(ProcessState::Unknown))
    }

    /// Gives up what is under way, and removes what was made, as far as it is the server's own.
    async fn clean_up(&mut self) {
        self.due = None;
        self.give_up_attempt().await;
        self.disconnect();
        let Some(line) = self.line.take() else { return };
        if let Ok(said) = line.stderr(STDERR_KEPT_BYTES).await {
            self.seen.note(McpLogSource::Stderr, &String::from_utf8_lossy(&said));
        }
        match tokio::time::timeout(CLEAN_UP_TIMEOUT, line.stop()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(mcp.server = %line.process, %error, "the process of an MCP server cannot be ended");
            }
            Err(_) => tracing::warn!(mcp.server = %line.process, "the process of an MCP server does not end"),
        }
    }

    /// Ends an attempt. Whatever it made by then is known afterwards.
    async fn give_up_attempt(&mut self) {
        let Some(Running { given_up, mut task }) = self.attempt.take() else { return };
        given_up.cancel();
        let mut has_ended = false;
        while !has_ended {
            tokio::select! {
                biased;
                Some(news) = self.news.1.recv() => self.learn(news),
                _ = &mut task => has_ended = true,
            }
        }
        while let Ok(news) = self.news.1.try_recv() {
            self.learn(news);
        }
    }

    /// What an attempt made that was given up.
    fn learn(&mut self, news: News) {
        match news {
            News::Process(line) => self.line = Some(*line),
            News::Done(Ok(upstream)) => upstream.close(),
            News::Started | News::Done(Err(_)) => {}
        }
    }

    /// Ends the task only. A process keeps running in its box, and the next task of the server adopts it.
    async fn leave(mut self) {
        self.give_up_attempt().await;
        self.disconnect();
    }
}

/// Which attempt.
#[derive(Debug, Clone, Copy)]
enum Work {
    Build,
    Attach,
}
