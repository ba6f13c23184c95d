//! One attempt to have a server: its session, what it depends on, its process, its streams, its first answer.

use std::sync::Arc;
use std::time::Duration;

use box_core::call::{ExecCall, ExecResult, ExecStatus};
use box_core::mcp::{McpErrorPhase, McpLogSource, McpServerName};
use box_core::service::Buffered;
use box_core::session::{KeptDirectory, SessionInfo};
use box_core::tasks::Start as _;
use box_core::{Error, Service, SessionRequest};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::defined::Defined;
use super::host;
use super::kept::{Keep, is_in_the_way};
use super::line::{Line, from_now};
use super::lodging::{Called, Lodging, Stay, process_id};
use super::seen::Seen;
use crate::definition::{Kind, Remote, Stdio, Transport};
use crate::limits::INITIALIZE_TIMEOUT;
use crate::retry::ProcessState;
use crate::upstream::{self, ConnectError, Upstream};

/// Characters of what an installation said last that its failure repeats.
const INSTALL_SAID_CHARS: usize = 800;

/// What the attempts of all servers work with. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    /// Who has sessions.
    pub(super) service: Service,
    /// Everything that outlasts a call.
    pub(super) tasks: TaskTracker,
    /// Told when no server is to be looked after any more.
    pub(super) stop: CancellationToken,
    /// Makes the editions of definitions tell nothing.
    pub(super) salt: String,
    /// Whether servers of the operator run on the host where there is no box.
    pub(super) host_fallback: bool,
    /// Where what servers install outlives their boxes.
    pub(super) keep: Option<Keep>,
}

/// An attempt.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) parts: Parts,
    pub(super) defined: Arc<Defined>,
    pub(super) seen: Seen,
    /// For how long its session is.
    pub(super) stay: Stay,
    /// Told when it is to be given up.
    pub(super) given_up: CancellationToken,
}

/// What is heard of an attempt.
#[derive(Debug)]
pub(super) enum News {
    /// There is, or is about to be, a process that has to be ended.
    Process(Box<Line>),
    /// It was started.
    Started,
    /// That was all.
    Done(Result<Upstream, Trouble>),
}

/// Why an attempt failed.
#[derive(Debug)]
pub(super) struct Trouble {
    /// Where.
    pub(super) phase: McpErrorPhase,
    /// What happened.
    pub(super) reason: String,
    /// What was then seen of the process, where there was one.
    pub(super) process: Option<ProcessState>,
}

impl Trouble {
    fn new(phase: McpErrorPhase, reason: impl Into<String>) -> Self {
        Self { phase, reason: reason.into(), process: None }
    }

    /// Makes one of an error.
    fn of<E: ToString>(phase: McpErrorPhase) -> impl FnOnce(E) -> Self {
        move |error| Self::new(phase, error.to_string())
    }
}

impl Attempt {
    /// Makes everything.
    pub(super) async fn build(&self, news: &mpsc::Sender<News>) -> Result<Upstream, Trouble> {
        match &self.defined.definition.kind {
            Kind::Remote(remote) => self.connect_remote(remote).await,
            Kind::Stdio(stdio) => match self.build_in_box(stdio, news).await {
                Err(trouble) if trouble.phase == McpErrorPhase::BoxUnavailable && self.may_run_on_host() => {
                    self.build_on_host(stdio, &trouble.reason, news).await
                }
                built => built,
            },
        }
    }

    fn may_run_on_host(&self) -> bool {
        self.parts.host_fallback && self.defined.author.is_operator && self.stay == Stay::Shared
    }

    async fn build_in_box(&self, stdio: &Stdio, news: &mpsc::Sender<News>) -> Result<Upstream, Trouble> {
        let lodging = self.lodge(stdio).await?;
        let called = self.decide(stdio, &lodging).await?;
        if let Some(install) = called.install {
            self.install(&lodging, install).await?;
        }
        let line = self.line(&lodging)?;
        // Said first: whatever happens from here on, there may be a process.
        tell(news, News::Process(Box::new(line.clone()))).await;
        let existing = SessionRequest::of_existing();
        let started = self.parts.service.start_process(&line.caller, &line.session, &existing, called.process);
        // To its end even if the attempt is given up: else it could come to be after it was looked for to be ended.
        let info = started.await.map_err(|error| self.refused(McpErrorPhase::ProcessStart, &error))?;
        self.seen.note(McpLogSource::Keeper, &format!("started in session {}", line.session));
        tell(news, News::Started).await;
        // What it says before anybody asks it is no answer, but what it complains of is worth knowing.
        let from = box_core::call::Cursor { run: info.cursor.run, ..Default::default() };
        self.connect(&line, from).await
    }

    /// Makes the session, or finds it.
    async fn lodge(&self, stdio: &Stdio) -> Result<Lodging, Trouble> {
        let (defined, stdio, stay) = (Arc::clone(&self.defined), stdio.clone(), self.stay.clone());
        let mut lodging = self.blocking(move || Lodging::of(&defined, &stdio, stay)).await?;
        if let Some(remark) = &lodging.remark {
            self.seen.note(McpLogSource::Keeper, remark);
        }
        let made = self.make_session(&lodging).await?;
        // A box that was there may have been made otherwise.
        lodging.kept = made.config.kept.map(|kept| kept.mount_path);
        self.seen.lives_in(Some(&lodging.session));
        Ok(lodging)
    }

    /// Makes the session with what it keeps. If that is in the way, it is thrown away; if it still is, the session does without.
    async fn make_session(&self, lodging: &Lodging) -> Result<SessionInfo, Trouble> {
        let refused = |error| self.refused(McpErrorPhase::SessionCreate, &error);
        let Some((keep, kept)) = self.kept(lodging).await else {
            return self.make_with(lodging, None).await?.map_err(refused);
        };
        let mut made = self.make_with(lodging, Some(&kept)).await?;
        if made.as_ref().is_err_and(|error| is_in_the_way(error, &kept)) {
            let (tenant, session) = (self.defined.key.tenant.clone(), lodging.session.clone());
            self.blocking(move || keep.empty(&tenant, &session)).await?;
            made = self.make_with(lodging, Some(&kept)).await?;
        }
        if let Err(error) = &made
            && is_in_the_way(error, &kept)
        {
            self.seen.note(McpLogSource::Keeper, &format!("what it installs is not kept: {error}"));
            made = self.make_with(lodging, None).await?;
        }
        made.map_err(refused)
    }

    async fn make_with(
        &self,
        lodging: &Lodging,
        kept: Option<&KeptDirectory>,
    ) -> Result<box_core::Result<SessionInfo>, Trouble> {
        let mut request = lodging.request.clone();
        request.rules.kept = kept.cloned();
        let caller = self.defined.caller();
        let made = self.parts.service.create_session(&caller, &lodging.session, &request);
        let made = self.unless_given_up(McpErrorPhase::SessionCreate, made).await?;
        Ok(made.map(|(info, _)| info))
    }

    /// Where the session keeps what outlives its box. Nothing for a test, and where no box sees our files.
    async fn kept(&self, lodging: &Lodging) -> Option<(Keep, KeptDirectory)> {
        let keep = self.parts.keep.clone().filter(|_| self.stay == Stay::Shared)?;
        let shared = self.parts.service.shares_files(&self.defined.caller(), &lodging.request).await;
        // Whoever makes the session is told what is wrong.
        shared.ok().filter(|shared| *shared)?;
        let (place, tenant, session) = (keep.clone(), self.defined.key.tenant.clone(), lodging.session.clone());
        match self.blocking(move || place.directory(&tenant, &session)).await {
            Ok(kept) => Some((keep, kept)),
            Err(trouble) => {
                self.seen.note(McpLogSource::Keeper, &format!("what it installs is not kept: {}", trouble.reason));
                None
            }
        }
    }

    async fn decide(&self, stdio: &Stdio, lodging: &Lodging) -> Result<Called, Trouble> {
        let (defined, stdio, lodging) = (Arc::clone(&self.defined), stdio.clone(), lodging.clone());
        let edition = defined.edition(&self.parts.salt);
        self.blocking(move || lodging.call(&defined, &stdio, &edition)).await
    }

    /// What long messages of the server are charged to.
    fn buffered(&self) -> Buffered {
        self.parts.service.buffered(&self.defined.key.tenant)
    }

    /// The process that the server has in a session.
    pub(super) fn line(&self, lodging: &Lodging) -> Result<Line, Trouble> {
        let process = process_id(&self.defined).map_err(Trouble::of(McpErrorPhase::ProcessStart))?;
        let (service, caller) = (self.parts.service.clone(), self.defined.caller());
        Ok(Line::new(service, caller, lodging.session.clone(), process))
    }

    async fn install(&self, lodging: &Lodging, call: ExecCall) -> Result<(), Trouble> {
        let failed = |error: Error| self.refused(McpErrorPhase::DepInstall, &error);
        let (service, caller, session) = (&self.parts.service, self.defined.caller(), &lodging.session);
        let exec = service.exec(&caller, session, &SessionRequest::of_existing(), call).await.map_err(failed)?;
        let waiting = service.wait_exec(&caller, session, &exec.exec_id);
        let ended = self.unless_given_up(McpErrorPhase::DepInstall, waiting).await;
        if ended.is_err() {
            // Whoever waits no longer must not leave it running.
            drop(service.cancel_exec(&caller, session, &exec.exec_id).await);
        }
        let result = ended?.map_err(failed)?;
        for said in [&result.stdout, &result.stderr] {
            self.seen.note(McpLogSource::Install, said);
        }
        self.judge(&result)
    }

    fn judge(&self, result: &ExecResult) -> Result<(), Trouble> {
        let what = match (result.info.status, result.info.shell_code()) {
            (ExecStatus::Completed, Some(0)) => return Ok(()),
            (ExecStatus::TimedOut, _) => {
                format!("it took longer than {} s", self.defined.definition.options.startup_timeout_sec)
            }
            (ExecStatus::Lost, _) => "its box was lost".to_owned(),
            (_, Some(code)) => format!("it ended with {code}"),
            (_, None) => "it did not end well".to_owned(),
        };
        let skip = result.stderr.chars().count().saturating_sub(INSTALL_SAID_CHARS);
        let said: String = result.stderr.chars().skip(skip).collect();
        Err(Trouble::new(McpErrorPhase::DepInstall, format!("{what}; it said last: {}", said.trim())))
    }

    /// Connects to a process that lives, and has spoken with others before.
    pub(super) async fn attach(&self, line: &Line) -> Result<Upstream, Trouble> {
        let found = self.unless_given_up(McpErrorPhase::RelayConnect, line.find()).await?;
        match found {
            Ok(info) => self.connect(line, from_now(&info)).await,
            Err(error) => Err(self.lost(McpErrorPhase::RelayConnect, &error.to_string(), line).await),
        }
    }

    async fn connect(&self, line: &Line, from: box_core::call::Cursor) -> Result<Upstream, Trouble> {
        let unneeded = CancellationToken::new();
        let streams = unneeded.clone().drop_guard();
        let stream = match line.open(from, &self.seen, &self.parts.tasks, unneeded).await {
            Ok(stream) => stream,
            Err(error) => return Err(self.lost(McpErrorPhase::RelayConnect, &error.to_string(), line).await),
        };
        let (reader, writer) = tokio::io::split(stream);
        // Boxed: it is large, and everything around it would be.
        let connecting =
            Box::pin(Upstream::over_streams(self.name(), reader, writer, Some(self.buffered()), &self.parts.tasks));
        let connecting = tokio::time::timeout(INITIALIZE_TIMEOUT.min(self.startup_timeout()), connecting);
        match self.unless_given_up(McpErrorPhase::McpInit, connecting).await? {
            Ok(Ok(upstream)) => {
                let connected = upstream.clone();
                self.parts.tasks.start(async move {
                    connected.closed().await;
                    drop(streams);
                });
                Ok(upstream)
            }
            Ok(Err(error)) => Err(self.lost(McpErrorPhase::McpInit, &error.to_string(), line).await),
            Err(_) => Err(self.lost(McpErrorPhase::McpInit, "it has not answered yet", line).await),
        }
    }

    /// A failure, with what is seen of the process.
    async fn lost(&self, phase: McpErrorPhase, reason: &str, line: &Line) -> Trouble {
        let look = line.look().await;
        let reason = format!("{reason}; {}", look.words);
        Trouble { phase, reason, process: Some(look.state) }
    }

    async fn connect_remote(&self, remote: &Remote) -> Result<Upstream, Trouble> {
        let transport = remote.transport;
        let headers = remote.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
        let remote = upstream::Remote::new(&remote.url, headers);
        let remote = remote.map_err(Trouble::of(McpErrorPhase::McpInit))?;
        let remote = if self.defined.author.is_operator {
            remote
        } else {
            remote.public_only().await.map_err(Trouble::of(McpErrorPhase::McpInit))?
        };
        let name = self.name();
        let tasks = &self.parts.tasks;
        match transport {
            Transport::Http => self.answered(Box::pin(Upstream::over_http(name, &remote, tasks))).await,
            Transport::Sse => self.answered(Box::pin(Upstream::over_letters(name, &remote, tasks))).await,
        }
    }

    async fn build_on_host(&self, stdio: &Stdio, why: &str, news: &mpsc::Sender<News>) -> Result<Upstream, Trouble> {
        let name = self.name();
        tracing::warn!(mcp.server = %name, reason = why, "mcp.host_fallback: an MCP server runs on the host, without a box around it");
        self.seen.note(
            McpLogSource::Keeper,
            "there is no box; mcp.host_fallback is set, so it runs on the host without one",
        );
        let child = host::start(stdio, &self.seen, &self.parts.tasks);
        let child = child.map_err(Trouble::of(McpErrorPhase::ProcessStart))?;
        self.seen.lives_in(None);
        tell(news, News::Started).await;
        let connecting = async {
            let connected =
                Upstream::over_streams(name, child.reader, child.writer, Some(self.buffered()), &self.parts.tasks)
                    .await?;
            child.life.lasts_as_long_as(connected.clone(), &self.parts.tasks);
            Ok(connected)
        };
        self.answered(Box::pin(connecting)).await
    }

    /// A connection, if it comes within the start-up timeout.
    async fn answered(
        &self,
        connecting: impl Future<Output = Result<Upstream, ConnectError>>,
    ) -> Result<Upstream, Trouble> {
        let within = self.startup_timeout();
        let answer = self.unless_given_up(McpErrorPhase::McpInit, tokio::time::timeout(within, connecting)).await?;
        let late = |_| Trouble::new(McpErrorPhase::McpInit, format!("it did not answer within {} s", within.as_secs()));
        answer.map_err(late)?.map_err(Trouble::of(McpErrorPhase::McpInit))
    }

    fn startup_timeout(&self) -> Duration {
        Duration::from_secs(self.defined.definition.options.startup_timeout_sec)
    }

    fn name(&self) -> McpServerName {
        self.defined.key.name.clone()
    }

    /// What the service refused, where; and nowhere, when there is nothing to run boxes.
    fn refused(&self, phase: McpErrorPhase, error: &Error) -> Trouble {
        let is_absent = matches!(error, Error::Disabled)
            || (matches!(error, Error::Unavailable { .. }) && self.parts.service.presence().is_err());
        let is_of_session = matches!(error, Error::SessionNotFound { .. } | Error::Gone { .. });
        let phase = match (is_absent, is_of_session) {
            (true, _) => McpErrorPhase::BoxUnavailable,
            (_, true) => McpErrorPhase::SessionCreate,
            _ => phase,
        };
        Trouble::new(phase, error.to_string())
    }

    async fn unless_given_up<T>(&self, phase: McpErrorPhase, work: impl Future<Output = T>) -> Result<T, Trouble> {
        let done = self.given_up.run_until_cancelled(work).await;
        done.ok_or_else(|| Trouble::new(phase, "it was given up"))
    }

    /// Looks at the host's files, which may take its time.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> box_core::Result<T> + Send + 'static,
    ) -> Result<T, Trouble> {
        let done = self.parts.tasks.spawn_blocking(work).await;
        let done = done.map_err(Trouble::of(McpErrorPhase::SessionCreate))?;
        done.map_err(Trouble::of(McpErrorPhase::SessionCreate))
    }
}

/// Tells whoever looks after the server. If nobody does any more, there is nobody to tell.
async fn tell(news: &mpsc::Sender<News>, told: News) {
    drop(news.send(told).await);
}
