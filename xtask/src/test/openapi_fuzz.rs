//! `openapi-fuzz`: requests made from the OpenAPI document by a tool that knows nothing else of us, against a real server.

use super::{Proof, Verdict};
use crate::cargo;
use crate::run::Ending;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The tool, at a version whose options are known.
const TOOL: &str = "schemathesis>=4,<5";

/// Installing is downloading; longer than this is a network that hangs.
const INSTALL_TIME_MAX: Duration = Duration::from_mins(10);

/// The tool ends by itself after a minute and a half of requests; only a hang is ended by this.
const FUZZ_TIME_MAX: Duration = Duration::from_mins(10);

pub(super) fn run(proof: &mut Proof) -> Result<Verdict> {
    let tool = match install(proof) {
        Ok(tool) => tool,
        Err(error) => return Ok(Verdict::Skipped(format!("schemathesis cannot be installed: {error:#}"))),
    };
    let strongbox = proof.artefacts()?.strongbox;
    let server = Server::start(&strongbox)?;
    let ending = proof.stream_uncounted(fuzz(&tool, &server), FUZZ_TIME_MAX)?;
    let healthy = server.is_healthy();
    let log = server.stop()?;
    if log.contains("panicked") || log.contains("http.status=500") {
        return Ok(Verdict::Failed("the server's log tells of a panic or an answer with status 500".into()));
    }
    proof.tally.passed += 1;
    Ok(match (ending, healthy) {
        (_, false) => Verdict::Failed("the server does not answer any more".into()),
        (Ending::TimedOut, _) => Verdict::Failed("not finished in time".into()),
        (ending, _) if !ending.is_success() => Verdict::Failed(format!("schemathesis found something; {ending}")),
        _ => Verdict::Passed,
    })
}

/// Finds the tool in an environment of its own below the target directory, or puts it there.
fn install(proof: &mut Proof) -> Result<PathBuf> {
    let place = proof.target.join("schemathesis");
    let tool = place.join("bin/schemathesis");
    if tool.is_file() {
        return Ok(tool);
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(&place);
    ensure!(proof.stream_uncounted(make, INSTALL_TIME_MAX)?.is_success(), "python3 -m venv failed");
    let mut fetch = Command::new(place.join("bin/pip"));
    fetch.args(["install", "--quiet", "--disable-pip-version-check", TOOL]);
    ensure!(proof.stream_uncounted(fetch, INSTALL_TIME_MAX)?.is_success(), "pip install failed");
    Ok(tool)
}

/// The checks are those that hold for every request, whatever it is: no error of ours, and answers as they are documented.
/// WebSockets and what waits for a command's end are left to the doors suite, as a fuzzer can only wait there.
fn fuzz(tool: &Path, server: &Server) -> Command {
    let mut command = Command::new(tool);
    command.arg("run").arg(format!("{}/openapi.json", server.url)).current_dir(server.place.path());
    command.args(["--checks", "not_a_server_error,response_schema_conformance,content_type_conformance"]);
    command.args(["--max-examples", "20", "--seed", "1", "--workers", "2", "--request-timeout", "10", "--no-color"]);
    command.args(["--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all"]);
    command.args(["--exclude-path-regex", "/ws$|/events$", "--generation-database", "none", "--max-time", "90"]);
    command.arg("--header").arg(format!("Authorization: Bearer {}", server.token));
    command.args(["--generation-with-security-parameters", "false"]);
    cargo::without_cargo_traces(&mut command);
    command
}

/// Makes a token that opens every route.
fn token(strongbox: &Path, state: &Path, config: &Path) -> Result<String> {
    let mut command = Command::new(strongbox);
    command.args(["token", "create", "--name", "fuzz", "--scope", "exec,files,skills,admin", "--state-dir"]).arg(state);
    let output = command.arg("--config").arg(config).output().context("making a token")?;
    ensure!(output.status.success(), "no token: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A server that ends with us.
struct Server {
    child: Child,
    url: String,
    token: String,
    place: tempfile::TempDir,
}

impl Server {
    fn start(strongbox: &Path) -> Result<Self> {
        let place = tempfile::Builder::new().prefix("sbt-").tempdir()?;
        let log = std::fs::File::create(place.path().join("log"))?;
        let config = place.path().join("config.toml");
        // Sessions that are made at random go soon, and never fill the machine.
        std::fs::write(&config, "session_ttl_sec = 5\nmax_sessions = 50\nmax_managed_processes = 20\n")?;
        let state = place.path().join("state");
        let token = token(strongbox, &state, &config)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(strongbox).args(["serve", "--listen", "127.0.0.1:0"]);
        command.args(["--on-stop", "destroy-all", "--state-dir"]).arg(&state);
        command.arg("--config").arg(config).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().context("starting the server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no standard output")?).read_line(&mut line)?;
        let url = line.split_whitespace().find(|word| word.starts_with("http")).map(str::to_owned);
        let Some(url) = url else {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("the server did not start: {}", std::fs::read_to_string(place.path().join("log"))?);
        };
        Ok(Self { child, url, token, place })
    }

    fn is_healthy(&self) -> bool {
        let address = self.url.trim_start_matches("http://");
        let ask = || -> std::io::Result<String> {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            write!(stream, "GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// Ends the server with all its boxes, and returns what it logged.
    fn stop(mut self) -> Result<String> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(std::fs::read_to_string(self.place.path().join("log"))?)
    }
}
