//! One attempt to have a server: its session, what it depends on, its process, its streams, its first answer.

use std::sync::Arc;
use std::time::Duration;

use box_core::call::{ExecCall, ExecResult, ExecStatus};
use box_core::mcp::{McpErrorPhase, McpLogSource, McpServerName};
use box_core::service::Buffered;
use box_core::session::{KeptDirectory, SessionInfo};
use box_core::tasks::Start as _;
use box_core::{Error, ImageProgram, Service, SessionRequest};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::approvals::Approvals;
use super::defined::Defined;
use super::host;
use super::kept::{Keep, is_in_the_way};
use super::line::{Line, OUT_OF_MEMORY, from_now};
use super::placement::{Called, Placement, Stay, process_id};
use super::seen::Seen;
use crate::definition::{Kind, Remote, Secret, Stdio, Transport};
use crate::dependencies::Environment;
use crate::limits::INITIALIZE_TIMEOUT;
use crate::retry::ProcessState;
use crate::upstream::{self, Beginning, ConnectError, Upstream};

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
    /// Salts the editions of definitions, so that they reveal nothing.
    pub(super) salt: String,
    /// Whether servers of the operator run on the host if no backend is available.
    pub(super) host_fallback: bool,
    /// Where what servers install outlives their boxes.
    pub(super) keep: Option<Keep>,
    /// Approved tools.
    pub(super) approvals: Approvals,
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
    Done(Result<Upstream, FileError>),
}

/// Why an attempt failed.
#[derive(Debug)]
pub(super) struct FileError {
    /// Where.
    pub(super) phase: McpErrorPhase,
    /// What happened.
    pub(super) reason: String,
    /// What was then seen of the process, where there was one.
    pub(super) process: Option<ProcessState>,
}

impl FileError {
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
    pub(super) async fn build(&self, news: &mpsc::Sender<News>) -> Result<Upstream, FileError> {
        match &self.defined.definition.kind {
            Kind::Remote(remote) => self.connect_remote(remote).await,
            Kind::Stdio(stdio) => match self.build_in_box(stdio, news).await {
                Err(error) if error.phase == McpErrorPhase::BoxUnavailable && self.may_run_on_host() => {
                    self.build_on_host(stdio, &error.reason, news).await
                }
                built => built,
            },
        }
    }

    fn may_run_on_host(&self) -> bool {
        let may = self.parts.host_fallback && self.defined.author.is_operator && self.stay == Stay::Shared;
        may && !self.defined.runs_image()
    }

    async fn build_in_box(&self, stdio: &Stdio, news: &mpsc::Sender<News>) -> Result<Upstream, FileError> {
        let (placement, made) = self.lodge(stdio).await?;
        let own = if stdio.is_of_image() { Some(self.program_of_image(stdio, &placement, &made).await?) } else { None };
        let called = self.decide(own.as_ref().unwrap_or(stdio), &placement).await?;
        if let Some(install) = called.install {
            self.install(&placement, install).await?;
        }
        let line = self.line(&placement)?;
        // Said first: whatever happens from here on, there may be a process.
        tell(news, News::Process(Box::new(line.clone()))).await;
        let existing = SessionRequest::of_existing();
        let started = self.parts.service.start_process(&line.caller, &line.session, &existing, called.process);
        // To its end even if the attempt is given up: else it could come to be after it was looked for to be ended.
        let info = started.await.map_err(|error| self.refused(McpErrorPhase::ProcessStart, &error))?;
        self.seen.note(McpLogSource::Supervisor, &format!("started in session {}", line.session));
        tell(news, News::Started).await;
        // Output before the first request is not an answer, but standard error is worth logging.
        let from = box_core::call::Cursor { run: info.cursor.run, ..Default::default() };
        self.connect(&line, from).await
    }

    /// Makes the session, or finds it.
    async fn lodge(&self, stdio: &Stdio) -> Result<(Placement, SessionInfo), FileError> {
        let (defined, stdio, stay) = (Arc::clone(&self.defined), stdio.clone(), self.stay.clone());
        let mut placement = self.blocking(move || Placement::of(&defined, &stdio, stay)).await?;
        for remark in &placement.remarks {
            self.seen.note(McpLogSource::Supervisor, remark);
        }
        let made = self.make_session(&placement).await?;
        // A box that was there may have been made otherwise.
        placement.kept = made.config.kept.as_ref().map(|kept| kept.mount_path.clone());
        self.seen.lives_in(Some(&placement.session));
        Ok((placement, made))
    }

    /// The program of a session's image, with the settings of the definition.
    async fn program_of_image(
        &self,
        stdio: &Stdio,
        placement: &Placement,
        session: &SessionInfo,
    ) -> Result<Stdio, FileError> {
        let asked = self.parts.service.image_program(session).await;
        let program = asked.map_err(|error| self.refused(McpErrorPhase::ProcessStart, &error))?.unwrap_or_default();
        let (defined, stdio, placement) = (Arc::clone(&self.defined), stdio.clone(), placement.clone());
        let stdio = self.blocking(move || placement.in_box(&defined, &stdio)).await?;
        of_image(&program, &stdio).ok_or_else(|| {
            let image = self.defined.definition.options.image.as_deref().unwrap_or_default();
            let what = format!("the image {image} has no default program; set command to a program in it");
            FileError::new(McpErrorPhase::ProcessStart, what)
        })
    }

    /// Makes the session with what it keeps. If that is in the way, it is thrown away; if it still is, the session does without.
    async fn make_session(&self, placement: &Placement) -> Result<SessionInfo, FileError> {
        let refused = |error| self.refused(McpErrorPhase::SessionCreate, &error);
        let Some((keep, kept)) = self.kept(placement).await else {
            return self.make_with(placement, None).await?.map_err(refused);
        };
        let mut made = self.make_with(placement, Some(&kept)).await?;
        if made.as_ref().is_err_and(|error| is_in_the_way(error, &kept)) {
            let (tenant, session) = (self.defined.key.tenant.clone(), placement.session.clone());
            self.blocking(move || keep.empty(&tenant, &session)).await?;
            made = self.make_with(placement, Some(&kept)).await?;
        }
        if let Err(error) = &made
            && is_in_the_way(error, &kept)
        {
            self.seen.note(McpLogSource::Supervisor, &format!("what it installs is not kept: {error}"));
            made = self.make_with(placement, None).await?;
        }
        made.map_err(refused)
    }

    async fn make_with(
        &self,
        placement: &Placement,
        kept: Option<&KeptDirectory>,
    ) -> Result<box_core::Result<SessionInfo>, FileError> {
        let mut request = placement.request.clone();
        request.rules.kept = kept.cloned();
        let caller = self.defined.caller();
        let made = self.parts.service.create_session(&caller, &placement.session, &request);
        let made = self.unless_given_up(McpErrorPhase::SessionCreate, made).await?;
        Ok(made.map(|(info, _)| info))
    }

    /// Where the session keeps what outlives its box. Nothing for a test, and where no box sees our files.
    async fn kept(&self, placement: &Placement) -> Option<(Keep, KeptDirectory)> {
        let keep = self.parts.keep.clone().filter(|_| self.stay == Stay::Shared)?;
        let shared = self.parts.service.shares_files(&self.defined.caller(), &placement.request).await;
        // An error here also fails the creation of the session, which reports it.
        shared.ok().filter(|shared| *shared)?;
        let (place, tenant, session) = (keep.clone(), self.defined.key.tenant.clone(), placement.session.clone());
        match self.blocking(move || place.directory(&tenant, &session)).await {
            Ok(kept) => Some((keep, kept)),
            Err(error) => {
                self.seen.note(McpLogSource::Supervisor, &format!("what it installs is not kept: {}", error.reason));
                None
            }
        }
    }

    async fn decide(&self, stdio: &Stdio, placement: &Placement) -> Result<Called, FileError> {
        let (defined, stdio, placement) = (Arc::clone(&self.defined), stdio.clone(), placement.clone());
        let edition = defined.edition(&self.parts.salt);
        self.blocking(move || placement.call(&defined, &stdio, &edition)).await
    }

    /// What long messages of the server are charged to.
    fn buffered(&self) -> Buffered {
        self.parts.service.buffered(&self.defined.key.tenant)
    }

    /// The process that the server has in a session.
    pub(super) fn line(&self, placement: &Placement) -> Result<Line, FileError> {
        let process = process_id(&self.defined).map_err(FileError::of(McpErrorPhase::ProcessStart))?;
        let (service, caller) = (self.parts.service.clone(), self.defined.caller());
        Ok(Line::new(service, caller, placement.session.clone(), process))
    }

    async fn install(&self, placement: &Placement, call: ExecCall) -> Result<(), FileError> {
        let failed = |error: Error| self.refused(McpErrorPhase::DepInstall, &error);
        let (service, caller, session) = (&self.parts.service, self.defined.caller(), &placement.session);
        let exec = service.exec(&caller, session, &SessionRequest::of_existing(), call).await.map_err(failed)?;
        let waiting = service.wait_exec(&caller, session, &exec.exec_id);
        let ended = self.unless_given_up(McpErrorPhase::DepInstall, waiting).await;
        if ended.is_err() {
            // An attempt that was given up must not leave the command running.
            drop(service.cancel_exec(&caller, session, &exec.exec_id).await);
        }
        let result = ended?.map_err(failed)?;
        for said in [&result.stdout, &result.stderr] {
            self.seen.note(McpLogSource::Install, said);
        }
        judge(&result)
    }

    /// Connects to a process that lives, and has spoken with others before.
    pub(super) async fn attach(&self, line: &Line) -> Result<Upstream, FileError> {
        let found = self.unless_given_up(McpErrorPhase::RelayConnect, line.find()).await?;
        match found {
            Ok(info) => self.connect(line, from_now(&info)).await,
            Err(error) => Err(self.lost(McpErrorPhase::RelayConnect, &error.to_string(), line).await),
        }
    }

    async fn connect(&self, line: &Line, from: box_core::call::Cursor) -> Result<Upstream, FileError> {
        let unneeded = CancellationToken::new();
        let streams = unneeded.clone().drop_guard();
        let stream = match line.open(from, &self.seen, &self.parts.tasks, unneeded).await {
            Ok(stream) => stream,
            Err(error) => return Err(self.lost(McpErrorPhase::RelayConnect, &error.to_string(), line).await),
        };
        // Boxed: it is large, and everything around it would be.
        let connecting = Box::pin(self.talk(tokio::io::split(stream)));
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

    /// Connects to a program over its streams.
    async fn talk<R, W>(&self, streams: (R, W)) -> Result<Upstream, ConnectError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let defined = match &self.defined.definition.kind {
            Kind::Stdio(stdio) => stdio.protocol.beginning(),
            Kind::Remote(_) => Beginning::default(),
        };
        let beginning = self.seen.beginning(defined);
        let (buffered, tasks) = (Some(self.buffered()), &self.parts.tasks);
        let connected = Upstream::over_streams(self.name(), beginning, streams, buffered, tasks).await;
        if let Err(ConnectError::Refused(_)) = &connected {
            self.seen.refuses_beginning();
        }
        connected
    }

    /// Restricts a connected server to approved tools, if configured.
    pub(super) async fn pin(&self, upstream: Upstream) -> Result<Upstream, FileError> {
        let wanted = self.defined.definition.pin_tools;
        match self.parts.approvals.pin(&self.defined.key, wanted, &upstream).await {
            Ok(()) => Ok(upstream),
            Err(error) => {
                upstream.close();
                let reason = format!("failed to store its approved tools: {error}");
                Err(FileError::new(McpErrorPhase::McpInit, reason))
            }
        }
    }

    /// A failure, with what is seen of the process.
    async fn lost(&self, phase: McpErrorPhase, reason: &str, line: &Line) -> FileError {
        let look = line.look().await;
        let reason = format!("{reason}; {}", look.words);
        FileError { phase, reason, process: Some(look.state) }
    }

    async fn connect_remote(&self, remote: &Remote) -> Result<Upstream, FileError> {
        let transport = remote.transport;
        let headers = remote.headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
        let remote = upstream::Remote::new(&remote.url, headers);
        let remote = remote.map_err(FileError::of(McpErrorPhase::McpInit))?;
        let remote = if self.defined.author.is_operator {
            remote
        } else {
            remote.public_only().await.map_err(FileError::of(McpErrorPhase::McpInit))?
        };
        let name = self.name();
        let tasks = &self.parts.tasks;
        match transport {
            Transport::Http => self.answered(Box::pin(Upstream::over_http(name, &remote, tasks))).await,
            Transport::Sse => self.answered(Box::pin(Upstream::over_legacy_sse(name, &remote, tasks))).await,
        }
    }

    async fn build_on_host(&self, stdio: &Stdio, why: &str, news: &mpsc::Sender<News>) -> Result<Upstream, FileError> {
        let name = self.name();
        tracing::warn!(mcp.server = %name, reason = why, "mcp.host_fallback: an MCP server runs on the host, without a box around it");
        self.seen.note(
            McpLogSource::Supervisor,
            "no box is available; mcp.host_fallback is set, so it runs on the host without one",
        );
        let child = host::start(stdio, &self.seen, &self.parts.tasks);
        let child = child.map_err(FileError::of(McpErrorPhase::ProcessStart))?;
        self.seen.lives_in(None);
        tell(news, News::Started).await;
        let connecting = async {
            let connected = self.talk((child.reader, child.writer)).await?;
            child.life.lasts_as_long_as(connected.clone(), &self.parts.tasks);
            Ok(connected)
        };
        self.answered(Box::pin(connecting)).await
    }

    /// A connection, if it comes within the start-up timeout.
    async fn answered(
        &self,
        connecting: impl Future<Output = Result<Upstream, ConnectError>>,
    ) -> Result<Upstream, FileError> {
        let within = self.startup_timeout();
        let answer = self.unless_given_up(McpErrorPhase::McpInit, tokio::time::timeout(within, connecting)).await?;
        let late =
            |_| FileError::new(McpErrorPhase::McpInit, format!("it did not answer within {} s", within.as_secs()));
        answer.map_err(late)?.map_err(FileError::of(McpErrorPhase::McpInit))
    }

    fn startup_timeout(&self) -> Duration {
        Duration::from_secs(self.defined.definition.options.startup_timeout_sec)
    }

    fn name(&self) -> McpServerName {
        self.defined.key.name.clone()
    }

    /// What the service refused, where; and nowhere, when there is nothing to run boxes.
    fn refused(&self, phase: McpErrorPhase, error: &Error) -> FileError {
        let is_absent = matches!(error, Error::Disabled)
            || (matches!(error, Error::Unavailable { .. }) && self.parts.service.presence().is_err());
        let is_of_session = matches!(error, Error::SessionNotFound { .. } | Error::Gone { .. });
        let phase = match (is_absent, is_of_session) {
            (true, _) => McpErrorPhase::BoxUnavailable,
            (_, true) => McpErrorPhase::SessionCreate,
            _ => phase,
        };
        FileError::new(phase, error.to_string())
    }

    async fn unless_given_up<T>(&self, phase: McpErrorPhase, work: impl Future<Output = T>) -> Result<T, FileError> {
        let done = self.given_up.run_until_cancelled(work).await;
        done.ok_or_else(|| FileError::new(phase, "it was given up"))
    }

    /// Looks at the host's files, which may take its time.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> box_core::Result<T> + Send + 'static,
    ) -> Result<T, FileError> {
        let done = self.parts.tasks.spawn_blocking(work).await;
        let done = done.map_err(FileError::of(McpErrorPhase::SessionCreate))?;
        done.map_err(FileError::of(McpErrorPhase::SessionCreate))
    }
}

/// Whether an installation succeeded, and if not, why.
fn judge(result: &ExecResult) -> Result<(), FileError> {
    let what = match (result.info.status, result.info.shell_code()) {
        (ExecStatus::Completed, Some(0)) => return Ok(()),
        (ExecStatus::TimedOut, _) => {
            let seconds = result.info.timeout_ms.unwrap_or_default() / 1000;
            let fix = result.info.timeout_limit.as_deref().unwrap_or("a larger startup_timeout_sec allows more");
            format!("it took longer than {seconds} s ({fix})")
        }
        (ExecStatus::Lost, _) => "its box was lost".to_owned(),
        (_, Some(code)) => format!("it ended with {code}"),
        (_, None) => "it did not end well".to_owned(),
    };
    let reason = if result.info.oom_killed { OUT_OF_MEMORY } else { "" };
    let skip = result.stderr.chars().count().saturating_sub(INSTALL_SAID_CHARS);
    let said: String = result.stderr.chars().skip(skip).collect();
    Err(FileError::new(McpErrorPhase::DepInstall, format!("{what}{reason}; it said last: {}", said.trim())))
}

/// The program of an image, called as defined. Environment variables of the definition win.
fn of_image(program: &ImageProgram, stdio: &Stdio) -> Option<Stdio> {
    let mut command = program.command(&stdio.args).into_iter();
    let mut env: Environment = program
        .env
        .iter()
        .filter_map(|variable| variable.split_once('='))
        .filter(|(name, value)| box_wire::exec::check_env(name, value).is_ok())
        .map(|(name, value)| (name.to_owned(), Secret::new(value)))
        .collect();
    env.extend(stdio.env.clone());
    let working_dir = Some(program.working_dir.clone()).filter(|path| path.starts_with('/'));
    let cwd = stdio.cwd.clone().or(working_dir);
    Some(Stdio { command: command.next()?, args: command.collect(), env, cwd, protocol: stdio.protocol })
}

/// Reports to the server's task. If that has ended, the report is dropped.
async fn tell(news: &mpsc::Sender<News>, told: News) {
    drop(news.send(told).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_an_image_is_called_with_what_the_definition_says() {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let program = ImageProgram {
            entrypoint: list(&["/bin/serve", "--all"]),
            cmd: list(&["stdio"]),
            env: list(&["PATH=/app/bin", "MODE=slow", "=bad"]),
            working_dir: "/app".to_owned(),
        };
        let env: Environment = [("MODE".to_owned(), Secret::new("fast"))].into();
        let own = Stdio { env, ..Stdio::default() };
        let called = of_image(&program, &own).unwrap();
        assert_eq!((called.command.as_str(), called.args.join(" ").as_str()), ("/bin/serve", "--all stdio"));
        let env: Vec<_> = called.env.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(env, [("MODE", "fast"), ("PATH", "/app/bin")]);
        assert_eq!(called.cwd.as_deref(), Some("/app"));
        let other = Stdio { args: list(&["http"]), cwd: Some("/data".to_owned()), ..Stdio::default() };
        let called = of_image(&program, &other).unwrap();
        assert_eq!((called.args.join(" ").as_str(), called.cwd.as_deref()), ("--all http", Some("/data")));
        assert_eq!(of_image(&ImageProgram::default(), &own), None);
    }
}
