//! The API of an engine as a client uses it that costs as little as a client can cost: one connection for each question, and no library.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// A guard against hanging.
const ANSWER_TIME_MAX: Duration = Duration::from_mins(2);

/// An engine that listens at a socket.
#[derive(Debug, Clone)]
pub(crate) struct EngineApi {
    socket: PathBuf,
}

impl EngineApi {
    /// The engine at an address of the form `unix:///path`.
    pub(crate) fn at(address: &str) -> Result<Self> {
        let socket =
            address.strip_prefix("unix://").with_context(|| format!("{address} is not a socket; use unix:///path"))?;
        Ok(Self { socket: socket.into() })
    }

    /// Runs `true` in a container to its end, and asks how it ended.
    pub(crate) fn exec_true(&self, container: &str) -> Result<()> {
        let wanted = json!({ "Cmd": ["true"], "AttachStdout": true, "AttachStderr": true });
        let made = self.ask("POST", &format!("/containers/{container}/exec"), &wanted.to_string())?;
        let made: Value = serde_json::from_slice(&made)?;
        let id = made["Id"].as_str().context("an exec without an id")?;
        self.ask("POST", &format!("/exec/{id}/start"), r#"{"Detach":false,"Tty":false}"#)?;
        let ended: Value = serde_json::from_slice(&self.ask("GET", &format!("/exec/{id}/json"), "")?)?;
        ensure!(ended["ExitCode"] == 0, "true ended with {}", ended["ExitCode"]);
        Ok(())
    }

    /// Names of running containers.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let all: Vec<Value> = serde_json::from_slice(&self.ask("GET", "/containers/json", "")?)?;
        let name = |one: &Value| one["Names"][0].as_str().unwrap_or_default().trim_start_matches('/').to_owned();
        Ok(all.iter().map(name).collect())
    }

    /// One question. With this version of the protocol the answer ends where the connection does.
    fn ask(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket).context("dialling the engine")?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: engine\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n").context("an answer without a head")?;
        let body = answer.split_off(end + 4);
        let head = String::from_utf8_lossy(&answer);
        let status = head.split(' ').nth(1).unwrap_or_default();
        ensure!(status.starts_with('2') || status == "101", "{method} {path}: {head}");
        Ok(body)
    }
}
