//! Managed processes.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::client::{Rpc, has_exactly, spec};
use crate::{Door, DoorCase, cases, eventually};

/// What a client of any version reads of a process.
const PROCESS: [&str; 12] = [
    "session_id",
    "process_id",
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

pub(super) fn cases() -> Vec<DoorCase> {
    cases![
        a_process_is_started_shown_and_stopped,
        a_process_that_ends_stays_to_be_asked_about,
        starting_an_id_again_replaces_the_process,
        a_program_that_is_not_there_ends_with_127,
        a_process_goes_with_its_session,
    ]
}

fn start(id: &str, script: &str) -> Value {
    let spec = json!({ "process_id": id, "command": "sh", "args": ["-c", script], "env": { "Z": "z", "B": "it's" },
        "cwd": "/tmp/made for it", "memory_mb": 0 });
    json!({ "session_id": "s", "spec": spec })
}

fn of(id: &str) -> Value {
    json!({ "session_id": "s", "process_id": id })
}

/// Asks until a process is as wanted.
async fn until(rpc: Rpc, id: &str, is_so: impl Fn(&Value) -> bool) -> Result<(Rpc, Value)> {
    let rpc = tokio::sync::Mutex::new(rpc);
    let found = eventually("the state of the process", || async {
        let shown = rpc.lock().await.ask("box_get_managed_process", &of(id)).await?;
        Ok(is_so(&shown).then_some(shown))
    });
    let found = found.await?;
    Ok((rpc.into_inner(), found))
}

async fn a_process_is_started_shown_and_stopped(door: &mut Door) -> Result<()> {
    for mut rpc in Rpc::both(door).await? {
        rpc.ask("box_create_session", &spec("s", "")).await?;
        let started = rpc.ask("box_start_managed_process", &start("p1", "pwd >&2; echo \"$B\" >&2; exec cat")).await?;
        has_exactly(&started, &PROCESS)?;
        ensure!(started["status"] == "running" && started["process_id"] == "p1", "{started}");
        ensure!(started["env_keys"] == json!(["B", "Z"]) && started["session_id"] == "s", "{started}");
        ensure!(started["cwd"] == "/tmp/made for it" && started["exited_at"].is_null(), "{started}");
        let wanted = "/tmp/made for it\nit's";
        (rpc, _) = until(rpc, "p1", |shown| shown["stderr_preview"] == wanted).await?;
        let shown = rpc.ask("box_get_session", &json!({ "session_id": "s" })).await?;
        ensure!(shown["managed_processes"]["p1"]["status"] == "running", "{shown}");
        ensure!(shown.get("managed_process").is_none(), "none is called default: {shown}");
        rpc.ask("box_start_managed_process", &json!({ "session_id": "s", "spec": { "command": "cat" } })).await?;
        let shown = rpc.ask("box_get_session", &json!({ "session_id": "s" })).await?;
        ensure!(shown["managed_process"]["cwd"] == "/workspace", "{shown}");
        ensure!(rpc.ask("box_stop_managed_process", &of("p1")).await? == json!({ "stopped": "p1" }));
        let stopped = rpc.ask("box_stop_managed_process", &json!({ "session_id": "s" })).await?;
        ensure!(stopped == json!({ "stopped": "default" }));
        for action in ["box_get_managed_process", "box_stop_managed_process"] {
            let refused = rpc.refused(action, &of("p1")).await?;
            ensure!(refused.starts_with("BoxManagedProcessNotFoundError: session "), "{refused}");
            ensure!(refused.ends_with("s has no managed process with process_id=p1"), "{refused}");
        }
    }
    Ok(())
}

async fn a_process_that_ends_stays_to_be_asked_about(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    rpc.ask("box_create_session", &spec("s", "")).await?;
    rpc.ask("box_start_managed_process", &start("default", "echo bye >&2; exit 7")).await?;
    let (mut rpc, ended) = until(rpc, "default", |shown| shown["status"] == "exited").await?;
    ensure!(ended["exit_code"] == 7 && ended["stderr_preview"] == "bye", "{ended}");
    ensure!(ended["exited_at"].as_str().context("no time")?.ends_with('Z'), "{ended}");
    let shown = rpc.ask("box_get_session", &json!({ "session_id": "s" })).await?;
    ensure!(shown["managed_process"]["exit_code"] == 7, "{shown}");
    rpc.ask("box_stop_managed_process", &of("default")).await?;
    Ok(())
}

async fn starting_an_id_again_replaces_the_process(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    rpc.ask("box_create_session", &spec("s", "")).await?;
    let hold = "echo $$ > /tmp/pid; exec sleep 1000";
    rpc.ask("box_start_managed_process", &start("p", hold)).await?;
    ensure!(rpc.exec("s", "until [ -s /tmp/pid ]; do sleep 0.05; done; mv /tmp/pid /tmp/old").await?["exit_code"] == 0);
    let second = rpc.ask("box_start_managed_process", &start("p", hold)).await?;
    ensure!(second["status"] == "running", "{second}");
    let gone = rpc.exec("s", "! kill -0 $(cat /tmp/old)").await?;
    ensure!(gone["exit_code"] == 0, "the first one goes on: {gone}");
    Ok(())
}

async fn a_program_that_is_not_there_ends_with_127(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    rpc.ask("box_create_session", &spec("s", "")).await?;
    let missing = json!({ "session_id": "s", "spec": { "command": "not-a-program", "process_id": "p" } });
    rpc.ask("box_start_managed_process", &missing).await?;
    let (mut rpc, ended) = until(rpc, "p", |shown| shown["status"] == "exited").await?;
    ensure!(ended["exit_code"] == 127, "{ended}");
    for bad in
        [json!({}), json!({ "command": " " }), json!({ "command": "cat", "cwd": "tmp" }), json!({ "command": 1 })]
    {
        let refused = rpc.refused("box_start_managed_process", &json!({ "session_id": "s", "spec": bad })).await?;
        ensure!(
            refused.starts_with("BoxValidationError: 1 validation error for BoxManagedProcessSpec\nc"),
            "{refused}"
        );
    }
    ensure!(rpc.refused("box_start_managed_process", &json!({ "session_id": "s" })).await? == "KeyError: 'spec'");
    Ok(())
}

async fn a_process_goes_with_its_session(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::legacy(door).await?;
    rpc.ask("box_create_session", &spec("s", "")).await?;
    rpc.ask("box_start_managed_process", &start("p", "exec sleep 1000")).await?;
    rpc.ask("box_delete_session", &json!({ "session_id": "s" })).await?;
    let refused = rpc.refused("box_get_managed_process", &of("p")).await?;
    ensure!(refused == "BoxSessionNotFoundError: session s not found", "{refused}");
    Ok(())
}
