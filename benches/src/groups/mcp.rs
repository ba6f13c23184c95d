//! A tool of an MCP server in a box, called through the gateway, next to the same call of the same server without anything in between.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::launch::{Subject, take_turns};
use crate::boxes::Boxes;
use crate::commands;
use crate::options::Options;
use crate::report::Report;
use crate::server::{Connection, Server};

const GROUP: &str = "mcp";
/// Through the gateway, in a session that is kept, to a process in a box.
pub(crate) const GATEWAY: &str = "tool call, gateway";
/// To a process of this machine, over its own standard streams.
pub(crate) const DIRECT: &str = "tool call, the process itself";

/// The server: one of what every Python brings along.
const SCRIPT: &str = include_str!("../../../crates/doors/mcp/src/testing/server.py");
/// What all clients say of themselves.
const PROTOCOL_VERSION: &str = "2025-11-25";
/// Calls before anything counts.
const WARM_UP_ROUNDS: u32 = 20;
/// How long the server may take to answer in its box. Only a guard against hanging.
const START_TIME_MAX: Duration = Duration::from_mins(1);

/// The group.
pub(crate) fn measure(_: &Boxes, options: &Options, directory: &Path, report: &mut Report) -> Result<()> {
    let server = Server::start(&directory.join("state-of-mcp"))?;
    define(&mut server.connect()?)?;
    let (mut session, mut process) = (Session::open(&server)?, Process::start()?);
    for number in 0..WARM_UP_ROUNDS {
        session.call(number)?;
        process.call(number)?;
    }
    let (mut through, mut direct) = (WARM_UP_ROUNDS, WARM_UP_ROUNDS);
    let gateway = || {
        through += 1;
        Ok(vec![(GATEWAY, session.call(through)?)])
    };
    let direct = || {
        direct += 1;
        Ok(vec![(DIRECT, process.call(direct)?)])
    };
    let subjects = vec![
        Subject { name: GATEWAY, every: 1, round: Box::new(gateway) },
        Subject { name: DIRECT, every: 1, round: Box::new(direct) },
    ];
    for (name, samples) in take_turns(subjects, options.rounds() * 2)? {
        report.time(GROUP, name, &samples);
    }
    report.relate(GATEWAY, DIRECT);
    server.connect()?.ask("DELETE", "/v1/mcp/servers/small", "").map(drop)
}

/// Defines the server, and waits until it answers.
fn define(connection: &mut Connection) -> Result<()> {
    let definition = json!({"command": "python3", "args": ["-c", SCRIPT], "box": {"network": "off"}});
    connection.ask("PUT", "/v1/mcp/servers/small", &definition.to_string())?;
    let start = Instant::now();
    loop {
        let info: Value = serde_json::from_slice(&connection.ask("GET", "/v1/mcp/servers/small", "")?)?;
        if info["status"] == "connected" {
            return Ok(());
        }
        ensure!(info["status"] != "error" && start.elapsed() < START_TIME_MAX, "the server does not answer: {info}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn initialize() -> Value {
    let about = json!({"name": "bench", "version": "1"});
    let params = json!({"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": about});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

/// A call with a unique text, by which its answer is recognized.
fn echo(tool: &str, number: u32) -> (String, String) {
    let text = format!("call number {number}");
    let params = json!({"name": tool, "arguments": {"text": text}});
    let call = json!({"jsonrpc": "2.0", "id": number + 1, "method": "tools/call", "params": params});
    (call.to_string(), text)
}

/// A session with the gateway, over a connection that is kept.
struct Session {
    connection: Connection,
    headers: String,
}

impl Session {
    fn open(server: &Server) -> Result<Self> {
        let mut connection = server.connect()?;
        let accept = "accept: application/json, text/event-stream\r\n";
        let answer = connection.exchange("POST", "/mcp", accept, &initialize().to_string())?;
        let id = answer.header("mcp-session-id").context("the gateway named no session")?;
        let headers = format!("{accept}mcp-session-id: {id}\r\nmcp-protocol-version: {PROTOCOL_VERSION}\r\n");
        connection.exchange("POST", "/mcp", &headers, &initialized().to_string())?;
        Ok(Self { connection, headers })
    }

    fn call(&mut self, number: u32) -> Result<Duration> {
        let (call, expected) = echo("small__echo", number);
        let start = Instant::now();
        let answer = self.connection.exchange("POST", "/mcp", &self.headers, &call)?;
        let took = start.elapsed();
        let told = String::from_utf8_lossy(&answer.body);
        ensure!(told.contains(&expected), "{call} was answered with {told}");
        Ok(took)
    }
}

/// The server as a child, spoken to over its standard streams. Dropping it ends it.
struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start() -> Result<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("starting python3")?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else { bail!("no streams") };
        let mut process = Self { child, stdin, stdout: BufReader::new(stdout) };
        process.write(&initialize().to_string())?;
        process.read()?;
        process.write(&initialized().to_string())?;
        Ok(process)
    }

    fn write(&mut self, message: &str) -> Result<()> {
        Ok(self.stdin.write_all(format!("{message}\n").as_bytes())?)
    }

    fn read(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.stdout.read_line(&mut line)? > 0, "the process ended");
        Ok(line)
    }

    fn call(&mut self, number: u32) -> Result<Duration> {
        let (call, expected) = echo("echo", number);
        let start = Instant::now();
        self.write(&call)?;
        let told = self.read()?;
        let took = start.elapsed();
        ensure!(told.contains(&expected), "{call} was answered with {told}");
        Ok(took)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        commands::end(&mut self.child, Signal::KILL);
    }
}
