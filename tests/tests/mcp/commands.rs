//! `strongbox mcp add`, `call` and `logs`, against a server in a box.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, Result, ensure};
use box_tests::server::{plain_command, program};
use serde_json::json;

use crate::{Fixture, McpCase, SCRIPT, cases, definition};

pub(crate) fn cases() -> Vec<McpCase> {
    cases![
        a_server_is_added_called_and_followed_by_commands,
        what_does_not_work_ends_with_one,
        held_tools_are_approved_by_command_and_over_rest with "[mcp]\npin_tools = true\n",
    ]
}

/// `strongbox mcp logs --follow`. It ends when it is dropped.
struct Followed {
    child: Child,
    reader: BufReader<ChildStdout>,
}

impl Followed {
    fn start(state: &std::path::Path, server: &str) -> Result<Self> {
        let mut command = plain_command(&program()?);
        command.args(["mcp", "logs", "--follow", server, "--state-dir"]).arg(state);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let reader = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { child, reader })
    }

    /// Reads up to a line that holds a text.
    async fn until(mut self, text: &'static str) -> Result<Self> {
        let reading = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            while !line.contains(text) {
                line.clear();
                ensure!(self.reader.read_line(&mut line)? > 0, "the log ended before {text:?}");
            }
            Ok(self)
        });
        reading.await?
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn a_server_is_added_called_and_followed_by_commands(fixture: &mut Fixture) -> Result<()> {
    let server = &fixture.server;
    let mcp = |verb, arguments: &[&str]| server.verb(&["mcp", verb], arguments);
    mcp("add", &["small", "--wait", "--network=off", "--env=KEY=sesame", "--", "python3", "-c", SCRIPT])?;
    ensure!(fixture.show("small").await?["status"] == "connected", "--wait did not wait");
    for (arguments, expected) in [
        (&["small", "echo", "text=two words"][..], "two words"),
        (&["small", "echo", r#"{"text": "grüße"}"#][..], "grüße"),
        (&["small", "env", "name=KEY"][..], "sesame"),
    ] {
        let told = mcp("call", arguments)?;
        ensure!(told == expected, "{arguments:?} returned {told:?}");
    }
    for arguments in [["small", "none"], ["none", "echo"]] {
        ensure!(mcp("call", &arguments).is_err(), "{arguments:?} did not fail");
    }
    let followed = Followed::start(server.state(), "small")?.until("the small server is up").await?;
    fixture.call("small__complain", json!({"text": "said later"})).await?;
    followed.until("said later").await.map(drop)
}

async fn what_does_not_work_ends_with_one(fixture: &mut Fixture) -> Result<()> {
    let mcp = |verb, arguments: &[&str]| fixture.server.verb(&["mcp", verb], arguments);
    let broken = ["broken", "--wait", "--network=off", "--", "python3", "-c", "import sys; sys.exit(4)"];
    let refused = mcp("add", &broken).err().context("a server that does not work was waited for")?.to_string();
    for part in ["exit status: 1:", "broken does not work", "its process ended with 4", "mcp logs broken"] {
        ensure!(refused.contains(part), "{part:?} is not in {refused}");
    }
    ensure!(fixture.show("broken").await?["status"] == "error", "it stays defined");
    // A command that is missing is an error of the tool, not of the protocol.
    let refused = mcp("call", &["box", "process_start"]).err().context("a tool that fails ended with 0")?.to_string();
    ensure!(refused.contains("exit status: 1:"), "{refused}");
    Ok(())
}

async fn held_tools_are_approved_by_command_and_over_rest(fixture: &mut Fixture) -> Result<()> {
    let place = tempfile::tempdir()?;
    let describe = |tools: serde_json::Value| std::fs::write(place.path().join("tools.json"), tools.to_string());
    describe(json!({"echo": "Returns the text", "announce": "Tells of changes"}))?;
    let mut definition = definition(&["--described", "/workspace/tools.json"]);
    definition["box"]["host_path"] = json!(place.path());
    // It does not say whether its tools are pinned: the configuration does.
    fixture.put("small", &definition).await?;
    fixture.connected("small").await?;
    describe(json!({"echo": "Returns more", "announce": "Tells of changes", "pid": "Returns a number"}))?;
    fixture.call("small__announce", json!({})).await?;
    let held = |info: &serde_json::Value| -> Vec<String> {
        let held = info["runtime_info"]["held_tools"].as_array().into_iter().flatten();
        held.filter_map(|tool| Some(format!("{} {}", tool["name"].as_str()?, tool["change"].as_str()?))).collect()
    };
    let info = fixture.until("small", |info| held(info).len() == 2).await?;
    ensure!(held(&info) == ["echo changed", "pid added"], "{info}");
    let refused = fixture.call("small__echo", json!({"text": "x"})).await.err().context("a held tool was called")?;
    ensure!(format!("{refused:#}").contains("strongbox mcp approve small echo"), "{refused:#}");

    let told = fixture.server.verb(&["mcp", "approve"], &["small", "echo"])?;
    ensure!(told.contains("echo") && told.contains("Returns more") && !told.contains("pid"), "{told}");
    ensure!(fixture.call("small__echo", json!({"text": "x"})).await? == "x");
    ensure!(held(&fixture.show("small").await?) == ["pid added"]);
    let approved = fixture.owner.post("/v1/mcp/servers/small/approve", &json!({})).await?.must(200)?;
    ensure!(held(&approved).is_empty() && approved["tools"] == 3, "{approved}");
    ensure!(fixture.call("small__pid", json!({})).await?.parse::<u32>().is_ok());
    let entries = fixture.server.verb(&["audit", "tail"], &["-n", "50"])?;
    let approvals = entries.lines().filter(|line| line.contains("mcp_approve") && line.contains("small")).count();
    ensure!(approvals == 2, "{entries}");
    Ok(())
}
