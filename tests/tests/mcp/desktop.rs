//! `strongbox mcp serve --stdio`, as a desktop client starts it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context, Result, ensure};
use box_tests::server::{plain_command, program};
use serde_json::{Value, json};

use crate::{Fixture, McpCase, cases};

pub(crate) fn cases() -> Vec<McpCase> {
    cases![
        a_desktop_client_gets_a_computer_without_any_configuration,
        a_desktop_client_that_is_held_to_a_session_names_no_other,
    ]
}

/// Our program, as a child of a client.
struct Desktop {
    child: Child,
    writer: Option<ChildStdin>,
    reader: BufReader<ChildStdout>,
}

impl Desktop {
    fn start(state: &std::path::Path, options: &[&str]) -> Result<Self> {
        let mut command = plain_command(&program()?);
        command.args(["mcp", "serve", "--stdio", "--state-dir"]).arg(state).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let writer = child.stdin.take();
        let reader = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { child, writer, reader })
    }

    fn say(&mut self, message: &Value) -> Result<()> {
        let writer = self.writer.as_mut().context("no standard input")?;
        writeln!(writer, "{message}")?;
        Ok(writer.flush()?)
    }

    fn ask(&mut self, id: u32, method: &str, params: &Value) -> Result<Value> {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let mut line = String::new();
            ensure!(self.reader.read_line(&mut line)? > 0, "it ended without an answer");
            let message: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
            if message["id"] == id {
                return Ok(message["result"].clone());
            }
        }
    }

    fn greet(&mut self) -> Result<()> {
        let version = "2025-06-18";
        let hello =
            json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "desk", "version": "1"}});
        let told = self.ask(1, "initialize", &hello)?;
        ensure!(told["serverInfo"]["name"] == "strongbox" && told["protocolVersion"] == version, "{told}");
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    }

    /// What a tool answers.
    fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        let called = self.ask(2, "tools/call", &json!({"name": tool, "arguments": arguments}))?;
        Ok(called["structuredContent"].clone())
    }
}

/// Starts our program after the server of the fixture has ended, and talks with it. Both have one state, so that what is
/// left of it is looked for in the same place.
async fn with_desktop(
    fixture: &mut Fixture,
    options: &'static [&'static str],
    talk: fn(&mut Desktop) -> Result<()>,
) -> Result<()> {
    fixture.server.sigterm().await?;
    let state = fixture.server.state().to_owned();
    tokio::task::spawn_blocking(move || {
        let mut desktop = Desktop::start(&state, options)?;
        let talked = desktop.greet().and_then(|()| talk(&mut desktop));
        // The end of its input is the end of the client.
        desktop.writer = None;
        let status = desktop.child.wait()?;
        talked?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    })
    .await?
}

async fn a_desktop_client_gets_a_computer_without_any_configuration(fixture: &mut Fixture) -> Result<()> {
    with_desktop(fixture, &[], |desktop| {
        let told = desktop.call("exec", &json!({"command": "echo in a box"}))?;
        ensure!(told["stdout"].as_str().is_some_and(|text| text.contains("in a box")), "{told}");
        let told = desktop.call("exec", &json!({"command": "echo elsewhere", "session_id": "other"}))?;
        ensure!(told["stdout"] == "elsewhere\n", "{told}");
        Ok(())
    })
    .await
}

async fn a_desktop_client_that_is_held_to_a_session_names_no_other(fixture: &mut Fixture) -> Result<()> {
    with_desktop(fixture, &["--session", "own"], |desktop| {
        let told = desktop.call("exec", &json!({"command": "echo here"}))?;
        ensure!(told["stdout"] == "here\n", "{told}");
        let told = desktop.call("exec", &json!({"command": "true", "session_id": "other"}))?;
        ensure!(told["error"]["code"] == "invalid" && told.to_string().contains("bound"), "{told}");
        let listed = desktop.call("session_list", &json!({}))?.to_string();
        ensure!(listed.contains("own") && !listed.contains("other"), "{listed}");
        Ok(())
    })
    .await
}
