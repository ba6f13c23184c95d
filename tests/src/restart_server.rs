//! `strongbox serve` as a child process that can be killed and started again on the same state, and a client that talks to it.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use hyper::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::events::Events;
use crate::{Leaks, Skip, http, leaks, server};

/// How long a server may take to say that it serves, or to end.
const LIMIT: Duration = Duration::from_mins(1);

/// How long after the end of everything something may still be on its way out.
const SETTLE: Duration = Duration::from_secs(30);

/// A directory in which servers of a case keep their state, one after the other.
#[derive(Debug)]
pub struct StateDirectory {
    directory: TempDir,
    program: PathBuf,
    before: Leaks,
}

/// Arguments for the start of a server.
#[derive(Debug, Clone, Default)]
pub struct Orders {
    /// More options of the command line.
    pub options: Vec<String>,
    /// The step at which it kills itself.
    pub fault: Option<&'static str>,
}

impl Orders {
    /// Serves, and does this with boxes when it is asked to stop.
    pub fn on_stop(what: &str) -> Self {
        Self { options: vec!["--on-stop".to_owned(), what.to_owned()], fault: None }
    }

    /// Serves until it reaches a step.
    pub fn dying_at(step: &'static str) -> Self {
        Self { options: Vec::new(), fault: Some(step) }
    }
}

impl StateDirectory {
    /// An empty state in which one server has run once, so that only what a case left can differ later.
    pub async fn fresh() -> Result<Self> {
        let directory = crate::ground::private_directory()?;
        let mut place = Self { directory, program: server::program()?, before: Leaks::default() };
        let server = place.start_with(&Orders::on_stop("destroy-all")).await?;
        server.client.exec("first", "echo 1").await?;
        server.stop().await?;
        place.note();
        Ok(place)
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Starts a server.
    pub async fn start(&self) -> Result<Server> {
        self.start_with(&Orders::default()).await
    }

    /// Starts a server with orders. Fails when it ends before it serves.
    pub async fn start_with(&self, orders: &Orders) -> Result<Server> {
        let mut child = self.command("serve");
        child.args(["--listen", "127.0.0.1:0"]).args(&orders.options).kill_on_drop(true);
        if let Some(step) = orders.fault {
            child.env(box_core::fault::VARIABLE, step);
        }
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log())?;
        let mut child = child.stdout(Stdio::piped()).stderr(log).spawn().context("starting the server")?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let said = tokio::time::timeout(LIMIT, lines.next_line()).await.context("the server does not come up")??;
        leaks::remember(&self.state());
        let Some(said) = said else {
            let status = child.wait().await?;
            bail!("the server ended with {status} before it served: {}", self.log_tail());
        };
        let address = said.split_whitespace().find(|word| word.starts_with("http://"));
        let client = Client::new(address.with_context(|| format!("no address in {said:?}"))?)?;
        Ok(Server { child, client })
    }

    /// The program with a verb on this state, not started yet.
    pub fn command(&self, verb: &str) -> Command {
        let mut command = Command::from(server::plain_command(&self.program));
        command.env("XDG_CONFIG_HOME", self.directory.path()).stdin(Stdio::null());
        command.args(verb.split(' ')).arg("--state-dir").arg(self.state());
        command
    }

    /// The log file of these servers.
    pub fn log(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    /// The end of what servers of this place complained of.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains(" INFO ")).collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    /// Counts everything that exists now as having been there before.
    pub fn note(&mut self) {
        self.before = Leaks::snapshot(&self.state());
    }

    /// Ends everything that is left, by the means of the program itself.
    pub async fn end(&self) -> Result<()> {
        let server = self.start_with(&Orders::on_stop("destroy-all")).await.context("the last start")?;
        server.stop().await.context("the last stop")
    }

    /// Holds that nothing is left.
    pub async fn settled(&self) -> Result<()> {
        self.before.settle(|| Leaks::snapshot(&self.state()), SETTLE).await
    }
}

/// Runs a case on a place of its own. Whatever it comes to, everything is removed afterwards and nothing may stay.
pub async fn on_place<F>(case: impl FnOnce(Arc<StateDirectory>) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let place = Arc::new(StateDirectory::fresh().await.context("a fresh place")?);
    let outcome = case(Arc::clone(&place)).await;
    let ended = place.end().await;
    let clean = ended.and(place.settled().await.context("after the case"));
    // What was left behind counts also after a case that could not run.
    let outcome = match outcome {
        Err(error) if error.is::<Skip>() => clean.and(Err(error)),
        outcome => outcome.and(clean),
    };
    let told = |error: anyhow::Error| if error.is::<Skip>() { error } else { explained(&place, &error) };
    outcome.map_err(told)
}

fn explained(place: &StateDirectory, error: &anyhow::Error) -> anyhow::Error {
    anyhow!("{error:#}\nlog of the server:\n{}", place.log_tail())
}

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Talks to it.
    pub client: Client,
}

impl Server {
    /// Its process id.
    pub fn pid(&self) -> Result<i32> {
        Ok(self.child.id().context("the server is gone")?.cast_signed())
    }

    /// `kill -9`, and waits until the kernel has done it.
    pub async fn kill(mut self) -> Result<()> {
        self.child.start_kill()?;
        self.child.wait().await?;
        Ok(())
    }

    /// Asks it to stop.
    pub fn terminate(&self) -> Result<()> {
        self.send(Signal::TERM)
    }

    fn send(&self, signal: Signal) -> Result<()> {
        let pid = rustix::process::Pid::from_raw(self.pid()?).context("no pid")?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        Ok(tokio::time::timeout(LIMIT, self.child.wait()).await.context("the server does not end")??)
    }

    /// Asks it to stop, and holds that it does so well.
    pub async fn stop(self) -> Result<()> {
        self.stop_by(Signal::TERM).await
    }

    /// The same by another signal; SIGINT is what Ctrl-C sends.
    pub async fn stop_by(mut self, signal: Signal) -> Result<()> {
        self.send(signal)?;
        let status = self.ended().await?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The body; null where there is none, or none that is JSON.
    pub body: Value,
}

impl Answer {
    /// The body of a call that must have succeeded.
    pub fn good(self) -> Result<Value> {
        ensure!(self.status.is_success(), "{}: {}", self.status, self.body);
        Ok(self.body)
    }
}

/// Talks to a server over HTTP, in the words of this suite.
#[derive(Debug, Clone)]
pub struct Client(http::Client);

impl Client {
    fn new(url: &str) -> Result<Self> {
        let address = url.strip_prefix("http://").context("an address without a scheme")?;
        Ok(Self(http::Client::new(address.parse()?)))
    }

    /// The same client with a token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self(self.0.with_token(token))
    }

    /// The same client for each door's protocol.
    pub fn http(&self) -> &http::Client {
        &self.0
    }

    fn request(&self, method: &Method, path: &str) -> http::Request {
        self.0.request(method.as_str(), &format!("/v1/{path}"))
    }

    /// Sends a request and returns the whole answer. A missing answer is an error.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        let request = self.request(&method, path);
        let answer = if let Some(body) = body { request.json(body) } else { request }.send().await?;
        Ok(Answer { status: StatusCode::from_u16(answer.status)?, body: answer.json })
    }

    /// Asks for something.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(Method::GET, path, None).await
    }

    /// Sends something.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(Method::POST, path, Some(body)).await
    }

    /// Makes a session.
    pub async fn create(&self, session: &str, body: &Value) -> Result<Value> {
        self.send(Method::POST, &format!("sessions/{session}"), Some(body)).await?.good()
    }

    /// One session.
    pub async fn session(&self, session: &str) -> Result<Value> {
        self.get(&format!("sessions/{session}")).await?.good()
    }

    /// Removes a session.
    pub async fn delete(&self, session: &str) -> Result<Value> {
        self.send(Method::DELETE, &format!("sessions/{session}"), None).await?.good()
    }

    /// Runs a command line to its end, which must be a good one.
    pub async fn exec(&self, session: &str, line: &str) -> Result<Value> {
        let result = self.post(&format!("sessions/{session}/exec"), &json!({ "cmd": line })).await?.good()?;
        ensure!(result["exit_code"] == 0, "{line:?} ended with {result}");
        Ok(result)
    }

    /// Runs a command line and returns what it said.
    pub async fn said(&self, session: &str, line: &str) -> Result<String> {
        let result = self.exec(session, line).await?;
        Ok(result["stdout"].as_str().unwrap_or_default().trim().to_owned())
    }

    /// Starts a command and returns its id.
    pub async fn begin(&self, session: &str, body: &Value) -> Result<String> {
        let info = self.post(&format!("sessions/{session}/exec?wait=false"), body).await?.good()?;
        Ok(info["exec_id"].as_str().context("no exec_id")?.to_owned())
    }

    /// Waits for the result of a command.
    pub async fn result(&self, session: &str, exec: &str) -> Result<Value> {
        self.get(&format!("sessions/{session}/execs/{exec}/result")).await?.good()
    }

    /// Stops a session where it is. Nothing is returned where boxes cannot be stopped.
    pub async fn pause(&self, session: &str) -> Result<Option<Value>> {
        let answer = self.post(&format!("sessions/{session}/pause"), &json!({})).await?;
        if answer.status == StatusCode::SERVICE_UNAVAILABLE && answer.body["error"]["code"] == "backend_unavailable" {
            return Ok(None);
        }
        answer.good().map(Some)
    }

    /// Starts a managed process that a shell runs.
    pub async fn start_process(&self, session: &str, process: &str, line: &str) -> Result<Value> {
        let body = json!({ "process_id": process, "command": "sh", "args": ["-c", line] });
        self.post(&format!("sessions/{session}/processes"), &body).await?.good()
    }

    /// One managed process.
    pub async fn process(&self, session: &str, process: &str) -> Result<Value> {
        self.get(&format!("sessions/{session}/processes/{process}")).await?.good()
    }

    /// The whole standard output that is kept of `execs/ID` or `processes/ID`.
    pub async fn output(&self, session: &str, target: &str) -> Result<Vec<u8>> {
        let answer = self.request(&Method::GET, &format!("sessions/{session}/{target}/output")).send().await?;
        ensure!((200..300).contains(&answer.status), "{answer:?}");
        Ok(answer.bytes)
    }

    /// Follows the output of `execs/ID` or `processes/ID` from a cursor on.
    pub async fn follow(&self, session: &str, target: &str, cursor: &str) -> Result<Events> {
        let path = format!("sessions/{session}/{target}/events?cursor={cursor}");
        Events::open(self.request(&Method::GET, &path)).await.with_context(|| format!("following {target}"))
    }
}

/// The names below a directory that hold boxes, to compare with the listed sessions.
pub fn boxes_on_file(state: &Path) -> Vec<String> {
    let mut found: Vec<String> = leaks::places(state)
        .iter()
        .flat_map(|place| leaks::files(place))
        .filter_map(|path| {
            let (_, below) = path.rsplit_once("/boxes/")?;
            (!below.contains('/')).then(|| below.to_owned())
        })
        .collect();
    found.sort();
    found.dedup();
    found
}
