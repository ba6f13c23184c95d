//! What a profile locks holds through every door: REST, tools, MCP and E2B. LangBot's case is among its own.

use anyhow::{Context, Result, ensure};
use box_tests::http::Answer;
use box_tests::mcp::Mcp;
use serde_json::{Value, json};

use crate::{Door, DoorCase, case};

/// A profile that locks deadlines, idle times and what may be written.
pub(crate) const LOCKED: &str = "\
default_profile = 'locked'
[profiles.locked]
inherits = 'offline_readonly'
timeout_sec = 1
timeout_sec_max = 5
locked = ['timeout_sec', 'ttl_sec']
[e2b_door.templates.locked]
profile = 'locked'
[e2b_door.templates.closed]
profile = 'closed'
[profiles.closed]
locked = ['extra_mounts']
";

/// A profile with another usual deadline than its longest.
const BOUNDED: &str = "\
default_profile = 'bounded'
[profiles.bounded]
timeout_sec = 1
timeout_sec_max = 2
";

/// Any key will do where there are no tokens.
pub(crate) const KEY: &str = "e2b_0000000000000000000000000000000000000000";

pub(crate) fn cases() -> Vec<DoorCase> {
    vec![
        case!(a_locked_deadline_holds_through_every_door).configured(LOCKED),
        case!(a_deadline_that_is_cut_says_by_which_limit).configured(BOUNDED),
        case!(an_e2b_client_gets_volumes_and_a_lifetime_as_they_are_locked).configured(LOCKED),
    ]
}

pub(crate) async fn e2b(door: &Door, path: &str, body: &Value) -> Result<Answer> {
    door.client.request("POST", path).header("x-api-key", KEY).json(body).send().await
}

async fn a_locked_deadline_holds_through_every_door(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let limit = "profile locked locks timeout_sec to 1;";
    for tty in [Value::Null, json!({ "rows": 24, "columns": 80 })] {
        let mut body = json!({ "cmd": "sleep 1000", "timeout_sec": 600 });
        if tty.is_object() {
            body["tty"] = tty;
        }
        let result = client.post("/v1/sessions/rest/exec", &body).await?.must(200)?;
        ensure!(result["status"] == "timed_out" && result["timeout_ms"] == 1000, "{result}");
        ensure!(names_limit(&result["timeout_limit"], limit) && names_limit(&result["timeout_cut"], limit), "{result}");
    }
    let unasked = client.post("/v1/sessions/rest/exec", &json!({ "cmd": "true" })).await?.must(200)?;
    ensure!(names_limit(&unasked["timeout_limit"], limit) && unasked["timeout_cut"].is_null(), "{unasked}");
    let old = json!({
        "cmd": "sleep 1000", "workdir": "/tmp", "timeout_sec": 600, "network": "off", "session_id": "old", "env": {},
        "image": "python:3.11-slim", "host_path": null, "host_path_mode": "rw", "cpus": 1.0, "memory_mb": 512, "pids_limit": 128,
        "read_only_rootfs": true,
    });
    let old = client.post("/v1/sessions/old/exec", &old).await?.must(200)?;
    let told = format!("Command timed out after 1 seconds.\nThe deadline cannot be longer: {limit}");
    ensure!(names_limit(&old["stderr"], &told), "{old}");
    told_by_tools(door, 1, limit).await?;
    let made = e2b(door, "/v2/sandboxes", &json!({ "templateID": "locked" })).await?.must(201)?;
    let text = e2b_start(door, &made, "sleep 1000").await?;
    let told = format!("deadline of 1 s passed: {limit}");
    ensure!(text.contains("deadline_exceeded") && text.contains(&told), "{text}");
    Ok(())
}

async fn a_deadline_that_is_cut_says_by_which_limit(door: &mut Door) -> Result<()> {
    let limit = "the session (profile bounded) has timeout_sec_max 2;";
    let exec = async |body: Value| door.client.post("/v1/sessions/rest/exec", &body).await?.must(200);
    let cut = exec(json!({ "cmd": "sleep 1000", "timeout_sec": 600 })).await?;
    ensure!(cut["status"] == "timed_out" && cut["timeout_ms"] == 2000, "{cut}");
    ensure!(names_limit(&cut["timeout_limit"], limit) && names_limit(&cut["timeout_cut"], limit), "{cut}");
    let usual = exec(json!({ "cmd": "sleep 1000" })).await?;
    ensure!(usual["status"] == "timed_out" && usual["timeout_ms"] == 1000, "{usual}");
    ensure!(usual["timeout_limit"].is_null() && usual["timeout_cut"].is_null(), "more can be requested: {usual}");
    told_by_tools(door, 2, limit).await
}

fn names_limit(text: &Value, limit: &str) -> bool {
    text.as_str().is_some_and(|text| text.starts_with(limit))
}

/// What the tool `exec` answers, over REST and MCP, when a limit made its deadline so short.
async fn told_by_tools(door: &Door, seconds: u64, limit: &str) -> Result<()> {
    let (notice, command) = (format!("The deadline cannot be longer: {limit}"), "sleep 1000");
    let tool = json!({ "parameters": { "command": command, "timeout_sec": 600 }, "query": {} });
    let answer = door.client.post("/v1/tools/exec", &tool).await?.must(200)?;
    ensure!(answer["status"] == "timed_out" && answer["timeout_sec"] == seconds, "{answer}");
    ensure!(answer["stderr"] == format!("Command timed out after {seconds} seconds."), "{answer}");
    ensure!(names_limit(&answer["notice"], &notice), "{answer}");
    let mcp = Mcp::connect(&door.server, "/mcp/box").await?;
    let called = mcp.result("exec", json!({ "command": command, "timeout_sec": 600 })).await?.to_string();
    ensure!(called.contains("timed_out") && called.contains(&notice), "{called}");
    Ok(())
}

/// Runs a shell line as E2B's clients do, to its end.
pub(crate) async fn e2b_start(door: &Door, made: &Value, line: &str) -> Result<String> {
    let (id, token) = (made["sandboxID"].as_str(), made["envdAccessToken"].as_str());
    let message = json!({ "process": { "cmd": "/bin/sh", "args": ["-c", line] } }).to_string();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len())?.to_be_bytes());
    body.extend(message.into_bytes());
    let request = door.client.request("POST", "/process.Process/Start").body(body);
    let request = request.header("content-type", "application/connect+json").header("connect-protocol-version", "1");
    let request = request.header("e2b-sandbox-id", id.context("an id")?).header("e2b-sandbox-port", "49983");
    let answer = request.header("x-access-token", token.context("a token")?).send().await?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(answer.text())
}

async fn an_e2b_client_gets_volumes_and_a_lifetime_as_they_are_locked(door: &mut Door) -> Result<()> {
    let volume = e2b(door, "/volumes", &json!({ "name": "data" })).await?.must(201)?;
    let mounts = json!([{ "name": "data", "path": "/mnt/data" }]);
    let asked = json!({ "templateID": "locked", "timeout": 86_400, "volumeMounts": mounts });
    let made = e2b(door, "/v2/sandboxes", &asked).await?.must(201)?;
    let id = made["sandboxID"].as_str().context("an id")?;
    let session = door.client.get(&format!("/v1/sessions/{id}")).await?.must(200)?;
    ensure!(session["persistent"] == false && session["ttl_sec"] == 300, "it ends when it is idle: {session}");
    ensure!(session["volumes"][0]["mode"] == "ro", "{session}");
    let tried = door.client.exec(id, "ls -d /mnt/data && touch /mnt/data/x").await?;
    ensure!(tried["stdout"] == "/mnt/data\n" && tried["exit_code"] != 0, "{tried}");
    let asked = json!({ "templateID": "closed", "volumeMounts": mounts });
    let refused = e2b(door, "/v2/sandboxes", &asked).await?;
    ensure!(refused.status == 400 && refused.text().contains("closed locks mounts"), "{refused:?}");
    // A volume outlives the server.
    let volume = volume["volumeID"].as_str().context("an id")?;
    for path in [format!("/sandboxes/{id}"), format!("/volumes/{volume}")] {
        let removed = door.client.request("DELETE", &path).header("x-api-key", KEY).send().await?;
        ensure!(removed.status == 204, "{path}: {removed:?}");
    }
    Ok(())
}
