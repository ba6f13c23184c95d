//! `strongbox serve` as a child process, and connections to it that cost as little as a client can cost.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;

use crate::commands;

/// The mark of a successful command in a response.
const GOOD: &[u8] = br#""exit_code":0,"#;

/// Bodies that are sent in one piece with their head.
const SMALL_BODY_BYTES: usize = 64 << 10;

/// A guard against hanging.
const ANSWER_TIME_MAX: Duration = Duration::from_mins(2);

/// A Strongbox server. Dropping it destroys its boxes.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: String,
    state: PathBuf,
}

impl Server {
    /// Starts a server on a state of its own, and returns when it serves.
    pub(crate) fn start(state: &Path) -> Result<Self> {
        let mut command = Command::new(program()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--on-stop", "destroy-all", "--state-dir"]).arg(state);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("starting the server")?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().context("the server has no output")?).read_line(&mut said)?;
        let address = said.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        let Some(address) = address.map(str::to_owned) else { bail!("the server did not say where it is: {said:?}") };
        Ok(Self { child, address, state: state.to_owned() })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it is.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// A token, which every caller needs from now on.
    pub(crate) fn token(&self) -> Result<String> {
        let mut command = Command::new(program()?);
        command.args(["token", "create", "--name", "bench", "--state-dir"]).arg(&self.state);
        let output = command.stderr(Stdio::inherit()).output().context("making a token")?;
        let token = String::from_utf8(output.stdout)?.trim().to_owned();
        ensure!(output.status.success() && !token.is_empty(), "no token was made: {}", output.status);
        Ok(token)
    }

    /// A connection that is kept.
    pub(crate) fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.address).context("connecting to the server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        Ok(Connection { stream: BufReader::new(stream), host: self.address.clone() })
    }

    /// `kill -9`. Its boxes stay.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        commands::end(&mut self.child, Signal::TERM);
    }
}

/// The request that runs `true`.
pub(crate) fn exec_of_true() -> String {
    format!(r#"{{"command":["{}"]}}"#, commands::TRUE)
}

fn program() -> Result<PathBuf> {
    commands::find("STRONGBOX_BIN", "strongbox").context("set STRONGBOX_BIN to the program")
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    host: String,
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A header by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Connection {
    /// Sends a request and reads the answer, which must be a good one.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        self.exchange(method, path, "", body).map(|answer| answer.body)
    }

    /// The same with more headers, each with the end of its line.
    pub(crate) fn exchange(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Result<Answer> {
        self.send(method, path, headers, "application/json", body)
    }

    /// The same with a body of another kind.
    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &str, kind: &str, body: &str) -> Result<Answer> {
        let (host, length) = (&self.host, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{headers}content-type: {kind}\r\n");
        let head = format!("{head}content-length: {length}\r\n\r\n");
        // Small ones in one piece, large ones without a copy.
        if length < SMALL_BODY_BYTES {
            self.stream.get_mut().write_all(format!("{head}{body}").as_bytes())?;
        } else {
            self.stream.get_mut().write_all(head.as_bytes())?;
            self.stream.get_mut().write_all(body.as_bytes())?;
        }
        let status = self.line()?.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut answer = Answer { headers: Vec::new(), body: Vec::new() };
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            answer.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if let Some(length) = answer.header("content-length") {
            let length = length.parse()?;
            self.read_more(length, &mut answer.body)?;
        } else if answer.header("transfer-encoding") == Some("chunked") {
            self.read_chunks(&mut answer.body)?;
        }
        let Answer { body, .. } = &answer;
        ensure!(status.starts_with('2'), "{method} {path}: {status} {}", String::from_utf8_lossy(body));
        Ok(answer)
    }

    /// A line without its end.
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line)? > 0, "the server closed the connection");
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    fn read_more(&mut self, length: usize, body: &mut Vec<u8>) -> Result<()> {
        // Reserving avoids zeroing the memory first, which the measurement would count.
        body.reserve(length);
        let taken = self.stream.by_ref().take(length as u64).read_to_end(body)?;
        ensure!(taken == length, "a body ends after {taken} of {length} bytes");
        Ok(())
    }

    /// A body that comes in pieces, each behind its length; the last is empty.
    fn read_chunks(&mut self, body: &mut Vec<u8>) -> Result<()> {
        loop {
            let length = usize::from_str_radix(&self.line()?, 16)?;
            self.read_more(length, body)?;
            ensure!(self.line()?.is_empty(), "a piece is longer than it says");
            if length == 0 {
                return Ok(());
            }
        }
    }

    /// Makes a session.
    pub(crate) fn create(&mut self, session: &str) -> Result<()> {
        self.ask("POST", &format!("/v1/sessions/{session}"), "{}").map(drop)
    }

    /// Runs `true` in a session and expects it to succeed.
    pub(crate) fn exec_true(&mut self, session: &str) -> Result<()> {
        self.exec(session, &exec_of_true())
    }

    /// Runs a command line in a session and expects it to succeed.
    pub(crate) fn succeed(&mut self, session: &str, line: &str) -> Result<()> {
        self.exec(session, &serde_json::json!({ "cmd": line }).to_string())
    }

    fn exec(&mut self, session: &str, request: &str) -> Result<()> {
        let answer = self.ask("POST", &format!("/v1/sessions/{session}/exec"), request)?;
        // The whole answer is read, and only this of it is looked at: a client's parsing is not the server's time.
        let good = answer.windows(GOOD.len()).any(|part| part == GOOD);
        ensure!(good, "{request} failed: {}", String::from_utf8_lossy(&answer));
        Ok(())
    }

    /// Removes a session.
    pub(crate) fn delete(&mut self, session: &str) -> Result<()> {
        self.ask("DELETE", &format!("/v1/sessions/{session}"), "").map(drop)
    }

    /// All sessions, page by page.
    pub(crate) fn list(&mut self) -> Result<Vec<Value>> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let after = all.last().and_then(|last| last["session_id"].as_str());
            let path = after.map_or("/v1/sessions".to_owned(), |after| format!("/v1/sessions?after={after}"));
            let page: Vec<Value> = serde_json::from_slice(&self.ask("GET", &path, "")?)?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }
}
