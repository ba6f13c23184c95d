//! The old REST form, field by field: what its clients send and what they read.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{Door, DoorCase, cases, eventually};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![an_old_client_finds_everything_in_its_place, an_old_client_is_refused_with_its_codes]
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
            && result["stdout"] == "b\n"
            && result["stderr"] == "e\n"
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
        Ok((shown["stderr_preview"] == "warn\n").then_some(()))
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
    client.post("/v1/sessions/old", &other).await?.refused(409, "session_conflict")?;
    client.post("/v1/sessions/old/exec", &spec("")).await?.refused(400, "validation_error")?;
    ensure!(client.request("PUT", "/v1/sessions/old").send().await?.status == 405);
    Ok(())
}
