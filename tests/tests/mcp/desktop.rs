//! `strongbox mcp serve --stdio`, as a desktop client starts it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context, Result, ensure};
use box_tests::server::{plain_command, program};
use serde_json::{Value, json};

use crate::{House, McpCase, cases};

pub(crate) fn cases() -> Vec<McpCase> {
    cases![a_desktop_client_gets_a_computer_without_any_configuration]
}

/// Our program, as a child of a client.
struct Desktop {
    child: Child,
    writer: Option<ChildStdin>,
    reader: BufReader<ChildStdout>,
}

impl Desktop {
    fn start(state: &std::path::Path) -> Result<Self> {
        let mut command = plain_command(&program()?);
        command.args(["mcp", "serve", "--stdio", "--state-dir"]).arg(state);
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

    fn talk(&mut self) -> Result<()> {
        let version = "2025-06-18";
        let hello =
            json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "desk", "version": "1"}});
        let told = self.ask(1, "initialize", &hello)?;
        ensure!(told["serverInfo"]["name"] == "strongbox" && told["protocolVersion"] == version, "{told}");
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        let exec = json!({"name": "exec", "arguments": {"command": "echo in a box"}});
        let told = self.ask(2, "tools/call", &exec)?;
        ensure!(told["structuredContent"]["stdout"].as_str().is_some_and(|text| text.contains("in a box")), "{told}");
        Ok(())
    }
}

async fn a_desktop_client_gets_a_computer_without_any_configuration(house: &mut House) -> Result<()> {
    // Its state is that of the server, which has ended, so that what is left of it is looked for in the same place.
    house.server.sigterm().await?;
    let state = house.server.state().to_owned();
    tokio::task::spawn_blocking(move || {
        let mut desktop = Desktop::start(&state)?;
        let talked = desktop.talk();
        // The end of its input is the end of the client.
        desktop.writer = None;
        let status = desktop.child.wait()?;
        talked?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    })
    .await?
}
