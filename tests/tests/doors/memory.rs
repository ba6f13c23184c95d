//! A command that the kernel killed for lack of memory says so through every door.

use anyhow::{Context, Result, ensure};
use box_tests::mcp::Mcp;
use box_tests::server::{plain_command, program};
use serde_json::{Value, json};

use crate::langbot::client::{Rpc, spec, with};
use crate::locks::{e2b, e2b_start};
use crate::{Door, DoorCase, case};

/// Boxes with little memory, for all callers.
const SMALL: &str = "\
default_profile = 'small'
[profiles.small]
memory_mb = 64
[e2b_door.templates.small]
profile = 'small'
";

/// Takes memory piece by piece until the kernel kills it; no single piece is so large that it would be refused.
const GREEDY: &str = "exec python3 -c 'held = [bytearray(1 << 20) for _ in range(1 << 12)]'";

/// What clients read that have no field for it.
const NOTICE: &str = "Out of memory: a process of the command was killed because the session reached its memory_mb.";

pub(crate) fn cases() -> Vec<DoorCase> {
    vec![case!(a_lack_of_memory_is_told_through_every_door).configured(SMALL)]
}

async fn a_lack_of_memory_is_told_through_every_door(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let made = client.create("rest", &json!({})).await?;
    let memory = made["guarantees"].as_array().and_then(|all| all.iter().find(|one| one["dimension"] == "memory"));
    if memory.is_none_or(|memory| memory["level"] != "hard") {
        return box_tests::suite::skip("nothing holds the memory of a box here".to_owned());
    }
    let rest = client.post("/v1/sessions/rest/exec", &json!({ "cmd": GREEDY })).await?.must(200)?;
    ensure!(rest["oom_killed"] == true && rest["signal"] == 9 && rest["exit_code"].is_null(), "REST: {rest}");
    let old = json!({
        "cmd": GREEDY, "workdir": "/tmp", "timeout_sec": 60, "network": "off", "session_id": "old", "env": {},
        "image": "python:3.11-slim", "host_path": null, "host_path_mode": "rw", "cpus": 1.0, "memory_mb": 64, "pids_limit": 128,
        "read_only_rootfs": true,
    });
    let old = client.post("/v1/sessions/old/exec", &old).await?.must(200)?;
    ensure!(old["exit_code"] == 137 && says(&old["stderr"]), "the old form: {old}");
    let tool = json!({ "parameters": { "command": GREEDY }, "query": {} });
    let tool = client.post("/v1/tools/exec", &tool).await?.must(200)?;
    ensure!(tool["ok"] == false && tool["oom_killed"] == true && says(&tool["notice"]), "tools: {tool}");
    let mcp = Mcp::connect(&door.server, "/mcp/box").await?;
    let called = mcp.result("exec", json!({ "command": GREEDY })).await?.to_string();
    ensure!(called.contains(NOTICE), "MCP: {called}");
    for mut rpc in Rpc::both(door).await? {
        let result = rpc.ask("box_exec", &with(spec("langbot", GREEDY), json!({ "memory_mb": 64 }))).await?;
        ensure!(result["exit_code"] == 137 && says(&result["stderr"]), "LangBot: {result}");
    }
    let sandbox = e2b(door, "/v2/sandboxes", &json!({ "templateID": "small" })).await?.must(201)?;
    let told = e2b_start(door, &sandbox, GREEDY).await?;
    ensure!(told.contains("signal: killed (out of memory: the sandbox reached its memory limit)"), "E2B: {told}");
    told_by_the_command_line(door)
}

fn says(text: &Value) -> bool {
    text.as_str().is_some_and(|text| text.contains(NOTICE))
}

fn told_by_the_command_line(door: &Door) -> Result<()> {
    let mut command = plain_command(&program()?);
    command.args(["exec", "--state-dir"]).arg(door.server.state()).args(["cli", "--", "sh", "-c", GREEDY]);
    let output = command.stdin(std::process::Stdio::null()).output().context("starting the program")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(137), "the command line: {}: {told}", output.status);
    ensure!(told.contains("killed: the session is out of memory"), "the command line: {told}");
    Ok(())
}
