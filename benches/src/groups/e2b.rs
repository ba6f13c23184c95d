//! Sandboxes of E2B's clients: a whole life of one, and files in and out, by the real SDK and by a client that costs nothing.
//!
//! The SDK's own time is not the server's. So the same requests are also sent by a minimal client, whose times are the
//! server's share.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::launch::{Subject, Times, take_turns};
use crate::boxes::Boxes;
use crate::commands;
use crate::forwarding;
use crate::options::Options;
use crate::report::Report;
use crate::samples::{Samples, mib};
use crate::server::{Connection, Server};

const GROUP: &str = "e2b";
/// A life of a sandbox, as far as the server has to do with it, on a machine that forwards packets.
pub(crate) const LIFE: &str = "create+run+kill, the server's share";
/// The same in the network of this machine, whatever leads out of it.
const LIFE_HERE: &str = "create+run+kill in this machine's network, the server's share";
/// The same of one without a network.
const LIFE_CLOSED: &str = "create+run+kill without a network, the server's share";
/// The floor of [`LIFE_BY_PYTHON`], measured in turns with it.
pub(crate) const FLOOR: &str = "bare fork+exec, beside sandboxes";
/// The first by an independent client: the HTTP client of Python's library.
pub(crate) const LIFE_BY_PYTHON: &str = "create+run+kill, Python's http.client";
/// The first with the SDK.
const LIFE_BY_SDK: &str = "create+run+kill, the SDK";
/// Files into a sandbox and out of it, over a copy through a socket of this machine.
pub(crate) const WRITE_SHARE: &str = "files written, over a copy";
/// See [`WRITE_SHARE`].
pub(crate) const READ_SHARE: &str = "files read, over a copy";

/// The program that speaks with the SDK.
const SCRIPT: &str = include_str!("e2b.py");
/// Any key will do where there are no tokens.
const KEY: &str = "e2b_0000000000000000000000000000000000000000";
const FILE_BYTES: usize = 100 << 20;
const WARM_UP_ROUNDS: u32 = 5;

/// The group.
pub(crate) fn measure(_: &Boxes, options: &Options, directory: &Path, report: &mut Report) -> Result<()> {
    let server = Server::start(&directory.join("state-of-e2b"))?;
    files(&server, options, report)?;
    let mut connection = server.connect()?;
    let round = || timed_life(&mut connection, LIFE_HERE, true);
    take_all(vec![Subject { name: LIFE_HERE, every: 1, round: Box::new(round) }], options, report)?;
    drop(server);
    if !rustix::process::geteuid().is_root() {
        report.skip(LIFE, "only root can make a network that forwards packets");
        return Ok(());
    }
    let state = directory.join("state-of-e2b-forwarding");
    forwarding::within(|| lives(&Server::start(&state)?, options, report))
}

fn lives(server: &Server, options: &Options, report: &mut Report) -> Result<()> {
    let (mut connection, mut other) = (server.connect()?, server.connect()?);
    let mut python = |name, program: Result<OsString>| {
        let started = program.and_then(|program| Sdk::start(server, &program));
        started.map_err(|reason| report.skip(name, format!("{reason:#}"))).ok()
    };
    let named = std::env::var_os("STRONGBOX_E2B");
    let mut sdk = python(LIFE_BY_SDK, named.clone().context("STRONGBOX_E2B names no Python with e2b"));
    let mut plain = python(LIFE_BY_PYTHON, Ok(named.unwrap_or_else(|| "python3".into())));
    let floor = || Ok(vec![(FLOOR, commands::time(&mut commands::silent(commands::TRUE, &[]))?)]);
    let mut subjects = vec![
        Subject { name: FLOOR, every: 1, round: Box::new(floor) },
        Subject { name: LIFE, every: 1, round: Box::new(|| timed_life(&mut connection, LIFE, true)) },
        Subject { name: LIFE_CLOSED, every: 1, round: Box::new(|| timed_life(&mut other, LIFE_CLOSED, false)) },
    ];
    if let Some(sdk) = &mut sdk {
        let round = || Ok(vec![(LIFE_BY_SDK, sdk.tell("life")?)]);
        subjects.push(Subject { name: LIFE_BY_SDK, every: 1, round: Box::new(round) });
    }
    if let Some(plain) = &mut plain {
        let round = || Ok(vec![(LIFE_BY_PYTHON, plain.tell("plain_life")?)]);
        subjects.push(Subject { name: LIFE_BY_PYTHON, every: 1, round: Box::new(round) });
    }
    take_all(subjects, options, report)?;
    report.relate(LIFE_BY_SDK, LIFE);
    report.relate(LIFE_BY_PYTHON, FLOOR);
    Ok(())
}

/// Measures after a few rounds that only warm up.
fn take_all(mut subjects: Vec<Subject<'_>>, options: &Options, report: &mut Report) -> Result<()> {
    for _ in 0..WARM_UP_ROUNDS {
        for subject in &mut subjects {
            (subject.round)()?;
        }
    }
    for (name, samples) in take_turns(subjects, options.rounds())? {
        report.time(GROUP, name, &samples);
    }
    Ok(())
}

fn timed_life(connection: &mut Connection, name: &'static str, has_network: bool) -> Result<Times> {
    let start = Instant::now();
    life(connection, has_network)?;
    Ok(vec![(name, start.elapsed())])
}

/// What the SDK asks for `Sandbox.create()`, `commands.run("true")` and `kill()`.
fn life(connection: &mut Connection, has_network: bool) -> Result<()> {
    let sandbox = Sandbox::create(connection, has_network)?;
    let process = json!({"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "true"]}, "stdin": false}).to_string();
    let length = u32::try_from(process.len())?.to_be_bytes();
    let body = [&[0][..], &length, process.as_bytes()].concat();
    let body = std::str::from_utf8(&body).context("the length of a message is not text")?;
    let headers = format!("{}connect-protocol-version: 1\r\n", sandbox.headers());
    let answer = connection.exchange("POST", "/process.Process/Start", &headers, body)?;
    let said = String::from_utf8_lossy(&answer.body);
    ensure!(said.contains("exit status 0") && said.ends_with("{}"), "true ended badly: {said}");
    sandbox.kill(connection)
}

/// A sandbox that is there.
struct Sandbox {
    id: String,
    token: String,
}

impl Sandbox {
    fn create(connection: &mut Connection, has_network: bool) -> Result<Self> {
        let body = json!({"templateID": "base", "timeout": 300, "allow_internet_access": has_network}).to_string();
        let answer = connection.exchange("POST", "/v2/sandboxes", &format!("x-api-key: {KEY}\r\n"), &body)?;
        let made: Value = serde_json::from_slice(&answer.body)?;
        let text = |name: &str| made[name].as_str().map(str::to_owned).with_context(|| format!("no {name} in {made}"));
        Ok(Self { id: text("sandboxID")?, token: text("envdAccessToken")? })
    }

    fn headers(&self) -> String {
        let Self { id, token } = self;
        format!("e2b-sandbox-id: {id}\r\ne2b-sandbox-port: 49983\r\nx-access-token: {token}\r\n")
    }

    fn kill(self, connection: &mut Connection) -> Result<()> {
        let headers = format!("x-api-key: {KEY}\r\n");
        connection.exchange("DELETE", &format!("/sandboxes/{}", self.id), &headers, "").map(drop)
    }
}

fn files(server: &Server, options: &Options, report: &mut Report) -> Result<()> {
    let mut connection = server.connect()?;
    let sandbox = Sandbox::create(&mut connection, true)?;
    let content = vec![b'x'; FILE_BYTES];
    let text = std::str::from_utf8(&content)?;
    let [mut copied, mut written, mut read] = <[Samples; 3]>::default();
    for round in 0..=options.slow_rounds() {
        let took = [copy(&content)?, write(&mut connection, &sandbox, text)?, fetch(&mut connection, &sandbox)?];
        // The first round warms up.
        if round > 0 {
            for (samples, took) in [&mut copied, &mut written, &mut read].into_iter().zip(took) {
                samples.push(took);
            }
        }
    }
    sandbox.kill(&mut connection)?;
    let speed = |samples: &Samples| samples.summary().map_or(0.0, |it| mib(FILE_BYTES as u64) / (it.p50_ms / 1e3));
    report.figure(GROUP, "copy through a socket", speed(&copied), "MiB/s");
    report.figure(GROUP, "file written", speed(&written), "MiB/s");
    report.figure(GROUP, "file read", speed(&read), "MiB/s");
    report.figure(GROUP, WRITE_SHARE, speed(&written) / speed(&copied), "×");
    report.figure(GROUP, READ_SHARE, speed(&read) / speed(&copied), "×");
    Ok(())
}

/// The floor: the bytes go through a socket of this machine into the memory of another thread.
fn copy(content: &[u8]) -> Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::scope(|scope| {
        let start = Instant::now();
        let reader = scope.spawn(move || -> Result<usize> {
            let mut taken = Vec::with_capacity(FILE_BYTES);
            Ok(listener.accept()?.0.read_to_end(&mut taken)?)
        });
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(content)?;
        drop(stream);
        let taken = reader.join().map_err(|_| anyhow!("reading the copy failed"))??;
        ensure!(taken == FILE_BYTES, "{taken} bytes were copied");
        Ok(start.elapsed())
    })
}

fn write(connection: &mut Connection, sandbox: &Sandbox, content: &str) -> Result<Duration> {
    let headers = sandbox.headers();
    let start = Instant::now();
    connection.send("POST", "/files?path=/home/user/large", &headers, "application/octet-stream", content)?;
    Ok(start.elapsed())
}

fn fetch(connection: &mut Connection, sandbox: &Sandbox) -> Result<Duration> {
    let start = Instant::now();
    let answer = connection.exchange("GET", "/files?path=/home/user/large", &sandbox.headers(), "")?;
    ensure!(answer.body.len() == FILE_BYTES, "{} bytes were read", answer.body.len());
    Ok(start.elapsed())
}

/// A Python program that uses the SDK or the library's HTTP client and reads commands line by line. Dropping it ends
/// it.
struct Sdk {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Sdk {
    fn start(server: &Server, python: &OsStr) -> Result<Self> {
        let url = format!("http://{}", server.address());
        let mut command = Command::new(python);
        command.args(["-c", SCRIPT]).env("E2B_API_KEY", KEY).env("E2B_API_URL", &url).env("E2B_SANDBOX_URL", &url);
        command.env("NO_PROXY", "127.0.0.1").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().context("starting Python")?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else { bail!("no streams") };
        Ok(Self { child, stdin, stdout: BufReader::new(stdout) })
    }

    /// Has it run a command, and returns how long that took by its own clock.
    fn tell(&mut self, what: &str) -> Result<Duration> {
        writeln!(self.stdin, "{what}")?;
        let mut line = String::new();
        ensure!(self.stdout.read_line(&mut line)? > 0, "the program in Python ended");
        Ok(Duration::try_from_secs_f64(line.trim().parse()?)?)
    }
}

impl Drop for Sdk {
    fn drop(&mut self) {
        commands::end(&mut self.child, Signal::KILL);
    }
}
