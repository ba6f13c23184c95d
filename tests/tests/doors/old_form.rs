//! The old REST form, field by field: what its clients send and what they read.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::socket::{Said, Socket};
use crate::{Door, DoorCase, cases, eventually};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![
        an_old_client_finds_everything_in_its_place,
        an_old_client_is_refused_with_its_codes,
        an_old_client_gets_results_as_it_knows_them,
        a_deadline_of_an_old_client_ends_its_session,
        an_image_that_nobody_knows_is_taken_from_old_clients_only,
        a_managed_process_starts_and_can_be_asked_about,
        a_relay_brings_back_what_is_sent_to_a_process_that_repeats_it,
        a_deleted_session_is_gone_with_its_process,
        a_session_shows_its_process_once_there_is_one,
        a_process_that_ends_is_seen_to_have_ended,
        asking_how_things_stand_removes_nothing,
    ]
}

/// The body that old clients send for everything.
fn spec(cmd: &str) -> Value {
    json!({
        "cmd": cmd, "workdir": "/workspace", "timeout_sec": 30, "network": "off", "session_id": "ignored", "env": { "A": "b" },
        "image": "python:3.11-slim", "host_path": null, "host_path_mode": "rw", "cpus": 1.0, "memory_mb": 512, "pids_limit": 128,
        "read_only_rootfs": true,
    })
}

fn has_all(value: &Value, names: &[&str]) -> Result<()> {
    for name in names {
        ensure!(value.get(name).is_some(), "{name} is missing in {value}");
    }
    Ok(())
}

const SESSION: [&str; 13] = [
    "session_id",
    "backend_name",
    "backend_session_id",
    "image",
    "network",
    "host_path",
    "host_path_mode",
    "cpus",
    "memory_mb",
    "pids_limit",
    "read_only_rootfs",
    "created_at",
    "last_used_at",
];
const PROCESS: [&str; 11] = [
    "session_id",
    "status",
    "command",
    "args",
    "cwd",
    "env_keys",
    "attached",
    "started_at",
    "exited_at",
    "exit_code",
    "stderr_preview",
];

async fn an_old_client_finds_everything_in_its_place(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let health = client.get("/v1/health").await?.must(200)?;
    ensure!(health["name"].is_string() && health["available"] == true, "{health}");
    let made = client.post("/v1/sessions/old", &spec("")).await?.must(201)?;
    has_all(&made, &SESSION)?;
    ensure!(made["session_id"] == "old" && made["image"] == "python:3.11-slim", "the path has the id: {made}");
    let result = client.post("/v1/sessions/old/exec", &spec("echo $A; echo e >&2; exit 3")).await?.must(200)?;
    has_all(&result, &["session_id", "backend_name", "status", "exit_code", "stdout", "stderr", "duration_ms"])?;
    ensure!(
        result["status"] == "completed"
            && result["stdout"] == "b"
            && result["stderr"] == "e"
            && result["exit_code"] == 3,
        "{result}"
    );
    let timed =
        client.post("/v1/sessions/old/exec", &json!({ "cmd": "sleep 100", "timeout_sec": 1 })).await?.must(200)?;
    ensure!(timed["status"] == "timed_out" && timed["exit_code"].is_null(), "{timed}");
    let listed = client.get("/v1/sessions").await?.must(200)?;
    ensure!(listed.as_array().is_some_and(|list| list.len() == 1), "{listed}");
    has_all(&listed[0], &SESSION)?;
    let start =
        json!({ "command": "sh", "args": ["-c", "echo warn >&2; cat"], "env": { "B": "c" }, "cwd": "/workspace" });
    let process = client.post("/v1/sessions/old/managed-process", &start).await?.must(201)?;
    has_all(&process, &PROCESS)?;
    ensure!(
        process["status"] == "running" && process["env_keys"] == json!(["B"]) && process["attached"] == false,
        "{process}"
    );
    client.post("/v1/sessions/old/managed-process", &start).await?.refused(409, "managed_process_conflict")?;
    eventually("the preview", || async {
        let shown = client.get("/v1/sessions/old/managed-process").await?.must(200)?;
        has_all(&shown, &PROCESS)?;
        Ok((shown["stderr_preview"] == "warn").then_some(()))
    })
    .await?;
    let shown = client.get("/v1/sessions/old").await?.must(200)?;
    ensure!(shown["managed_process"]["command"] == "sh", "{shown}");
    let status = client.get("/v1/status").await?.must(200)?;
    has_all(&status, &["backend", "active_sessions", "managed_processes", "session_ttl_sec"])?;
    ensure!(
        status["active_sessions"] == 1 && status["managed_processes"] == 1 && status["session_ttl_sec"] == 300,
        "{status}"
    );
    let stopped = client.delete("/v1/sessions/old/managed-process").await?.must(200)?;
    has_all(&stopped, &PROCESS)?;
    ensure!(client.post("/v1/sessions/old/managed-process/named", &start).await?.must(201)?["process_id"] == "named");
    client.get("/v1/sessions/old/managed-process/named").await?.must(200)?;
    client.delete("/v1/sessions/old/managed-process/named").await?.must(200)?;
    let deleted = client.delete("/v1/sessions/old").await?.must(200)?;
    ensure!(deleted == json!({ "deleted": "old" }), "{deleted}");
    Ok(())
}

async fn an_old_client_is_refused_with_its_codes(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.get("/v1/sessions/none").await?.refused(404, "session_not_found")?;
    client.delete("/v1/sessions/none").await?.refused(404, "session_not_found")?;
    client.get("/v1/sessions/none/managed-process").await?.refused(404, "session_not_found")?;
    client
        .post("/v1/sessions/none/managed-process", &json!({ "command": "cat" }))
        .await?
        .refused(404, "session_not_found")?;
    ensure!(client.sessions().await?.is_empty(), "the old form makes no sessions for processes");
    client.post("/v1/sessions/old", &spec("")).await?.must(201)?;
    client.get("/v1/sessions/old/managed-process").await?.refused(404, "managed_process_not_found")?;
    let mut other = spec("");
    other["memory_mb"] = 256.into();
    let refused = client.post("/v1/sessions/old", &other).await?.refused(409, "session_conflict")?;
    let message = "sandbox_exec session old already exists with memory_mb=512";
    ensure!(refused["message"] == message, "{refused}");
    let mut other = spec("true");
    other["network"] = "on".into();
    client.post("/v1/sessions/old/exec", &other).await?.refused(409, "session_conflict")?;
    let mut wrong = spec("true");
    wrong["timeout_sec"] = 0.into();
    client.post("/v1/sessions/old/exec", &wrong).await?.refused(400, "validation_error")?;
    client.post_raw("/v1/sessions/old/exec", "{").await?.refused(400, "validation_error")?;
    client.get("/v1/sessions/none/managed-process/ws").await?.refused(404, "session_not_found")?;
    client.get("/v1/sessions/old/managed-process/ws").await?.refused(404, "managed_process_not_found")?;
    client.post("/v1/sessions/old/exec", &spec("")).await?.refused(400, "validation_error")?;
    ensure!(client.request("PUT", "/v1/sessions/old").send().await?.status == 405);
    Ok(())
}

/// The body for a session of one of the old client's own tests.
fn alpine(session: &str) -> Value {
    let mut spec = spec("");
    spec["session_id"] = session.into();
    spec["image"] = "alpine:latest".into();
    spec["workdir"] = "/tmp".into();
    spec["env"] = json!({});
    spec
}

fn process(command: &str, args: &[&str]) -> Value {
    json!({ "command": command, "args": args, "env": {}, "cwd": "/tmp" })
}

async fn an_old_client_gets_results_as_it_knows_them(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.post("/v1/sessions/old", &spec("")).await?.must(201)?;
    let mut made = spec("pwd; echo \"[$A]\"");
    made["workdir"] = "/workspace/made/on demand".into();
    made["env"] = json!({});
    let result = client.post("/v1/sessions/old/exec", &made).await?.must(200)?;
    ensure!(
        result["stdout"] == "/workspace/made/on demand\n[]",
        "the directory is made, no environment stays: {result}"
    );
    let killed = client.post("/v1/sessions/old/exec", &spec("kill -9 $$")).await?.must(200)?;
    ensure!(killed["status"] == "completed" && killed["exit_code"] == 137, "{killed}");
    let missing = client.post("/v1/sessions/old/exec", &spec("no-such-program")).await?.must(200)?;
    ensure!(missing["exit_code"] == 127, "{missing}");
    let long = spec("yes x | tr -d '\\n' | head -c 1048586");
    let long = client.post("/v1/sessions/old/exec", &long).await?.must(200)?;
    let text = long["stdout"].as_str().unwrap_or_default();
    let end = "x\n... [raw output clipped at 1048576 bytes, 10 bytes discarded]";
    ensure!(text.ends_with(end) && text.len() == (1 << 20) + end.len() - 1, "{} bytes", text.len());
    Ok(())
}

async fn a_deadline_of_an_old_client_ends_its_session(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let mut slow = spec("echo partial; sleep 100");
    slow["timeout_sec"] = 2.into();
    let timed = client.post("/v1/sessions/old/exec", &slow).await?.must(200)?;
    ensure!(timed["status"] == "timed_out" && timed["exit_code"].is_null(), "{timed}");
    ensure!(timed["stdout"] == "partial" && timed["stderr"] == "Command timed out after 2 seconds.", "{timed}");
    client.get("/v1/sessions/old").await?.refused(404, "session_not_found")?;
    client.post("/v1/sessions/ours/exec", &json!({ "cmd": "sleep 100", "timeout_sec": 1 })).await?.must(200)?;
    client.get("/v1/sessions/ours").await?.must(200)?;
    Ok(())
}

async fn an_image_that_nobody_knows_is_taken_from_old_clients_only(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let made = client.post("/v1/sessions/old", &alpine("old")).await?.must(201)?;
    ensure!(made["image"] == "alpine:latest", "the name is repeated verbatim: {made}");
    let refused = client.post("/v1/sessions/ours", &json!({ "image": "alpine:latest" })).await?;
    refused.refused(400, "validation_error")?;
    Ok(())
}

async fn a_managed_process_starts_and_can_be_asked_about(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.post("/v1/sessions/life", &alpine("life")).await?.must(201)?;
    let endless = process("sh", &["-c", "while true; do sleep 1; done"]);
    let started = client.post("/v1/sessions/life/managed-process", &endless).await?.must(201)?;
    ensure!(started["status"] == "running", "{started}");
    let shown = client.get("/v1/sessions/life/managed-process").await?.must(200)?;
    ensure!(shown["status"] == "running" && shown["command"] == "sh" && shown["cwd"] == "/tmp", "{shown}");
    client.delete("/v1/sessions/life").await?.must(200)?;
    Ok(())
}

async fn a_relay_brings_back_what_is_sent_to_a_process_that_repeats_it(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.post("/v1/sessions/echo", &alpine("echo")).await?.must(201)?;
    client.post("/v1/sessions/echo/managed-process", &process("cat", &[])).await?.must(201)?;
    let mut socket = Socket::open(door.server.url()?, "/v1/sessions/echo/managed-process/ws", &[]).await?;
    socket.text("hello, who is there?").await?;
    ensure!(socket.line().await? == "hello, who is there?");
    client.delete("/v1/sessions/echo").await?.must(200)?;
    ensure!(socket.next().await? == Said::Closed(Some(1000)));
    Ok(())
}

async fn a_deleted_session_is_gone_with_its_process(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.post("/v1/sessions/gone", &alpine("gone")).await?.must(201)?;
    client.post("/v1/sessions/gone/managed-process", &process("sleep", &["3600"])).await?.must(201)?;
    client.delete("/v1/sessions/gone").await?.must(200)?;
    client.get("/v1/sessions/gone").await?.refused(404, "session_not_found")?;
    client.get("/v1/sessions/gone/managed-process").await?.refused(404, "session_not_found")?;
    ensure!(client.get("/v1/status").await?.must(200)?["managed_processes"] == 0);
    Ok(())
}

async fn a_session_shows_its_process_once_there_is_one(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.post("/v1/sessions/show", &alpine("show")).await?.must(201)?;
    let shown = client.get("/v1/sessions/show").await?.must(200)?;
    ensure!(shown["session_id"] == "show" && shown["image"] == "alpine:latest", "{shown}");
    ensure!(shown.get("managed_process").is_none(), "{shown}");
    client.post("/v1/sessions/show/managed-process", &process("sleep", &["3600"])).await?.must(201)?;
    let shown = client.get("/v1/sessions/show").await?.must(200)?;
    ensure!(shown["session_id"] == "show" && shown["managed_process"]["status"] == "running", "{shown}");
    Ok(())
}

async fn a_process_that_ends_is_seen_to_have_ended(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.post("/v1/sessions/exit", &alpine("exit")).await?.must(201)?;
    let short = process("sh", &["-c", "echo done && exit 0"]);
    client.post("/v1/sessions/exit/managed-process", &short).await?.must(201)?;
    let ended = eventually("its end", || async {
        let shown = client.get("/v1/sessions/exit/managed-process").await?.must(200)?;
        Ok((shown["status"] == "exited").then_some(shown))
    })
    .await?;
    ensure!(ended["exit_code"] == 0 && ended["exited_at"].is_string(), "{ended}");
    let missing = process("no-such-program", &[]);
    client.post("/v1/sessions/exit/managed-process", &missing).await?.must(201)?;
    eventually("the end of what cannot be started", || async {
        let shown = client.get("/v1/sessions/exit/managed-process").await?.must(200)?;
        Ok((shown["exit_code"] == 127).then_some(()))
    })
    .await
}

async fn asking_how_things_stand_removes_nothing(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.post("/v1/sessions/orphan", &alpine("orphan")).await?.must(201)?;
    for _ in 0..2 {
        let listed = client.get("/v1/sessions").await?.must(200)?;
        let is_there = listed.as_array().is_some_and(|all| all.iter().any(|one| one["session_id"] == "orphan"));
        ensure!(is_there, "{listed}");
        ensure!(client.get("/v1/status").await?.must(200)?["active_sessions"] == 1);
    }
    Ok(())
}
