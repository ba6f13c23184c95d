//! The relay, as clients of workspaces and those that name nothing attach to it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::client::{Rpc, spec};
use crate::socket::{Said, Socket};
use crate::{Door, DoorCase, cases};

pub(super) fn cases() -> Vec<DoorCase> {
    cases![
        a_client_of_a_workspace_attaches_by_the_id_that_it_computes,
        an_id_that_means_several_sessions_means_the_right_one,
        whoever_is_not_of_that_placement_is_told_nothing,
        what_is_not_there_is_told_in_langbots_words,
        a_new_generation_ends_the_relays_of_the_old_one,
        a_client_that_names_nothing_means_its_own_session_first,
    ]
}

const INSTANCE: (&str, &str) = ("x-langbot-instance-id", "test-instance");
const WORKSPACE: (&str, &str) = ("x-langbot-workspace-id", "workspace");
const GENERATION: (&str, &str) = ("x-langbot-placement-generation", "1");
const HEADERS: [(&str, &str); 3] = [INSTANCE, WORKSPACE, GENERATION];

/// The prefix of a client's session ids in URLs, taken from an error.
async fn prefix(rpc: &mut Rpc) -> Result<String> {
    let text = rpc.refused("box_get_session", &json!({ "session_id": "nope" })).await?;
    let id = text.split(' ').find_map(|word| word.strip_suffix("nope")).context("no id in the text")?;
    ensure!(id.starts_with("ws-") && id.ends_with("-g1-"), "{text}");
    Ok(id.to_owned())
}

async fn start(rpc: &mut Rpc, session: &str, process: &str, line: &str) -> Result<()> {
    rpc.ask("box_create_session", &spec(session, "")).await?;
    let started = json!({ "process_id": process, "command": "sh", "args": ["-c", line], "env": {}, "cwd": "/tmp", "memory_mb": 0 });
    rpc.ask("box_start_managed_process", &json!({ "session_id": session, "spec": started })).await?;
    Ok(())
}

async fn process(rpc: &mut Rpc, session: &str, process: &str) -> Result<Value> {
    rpc.ask("box_get_managed_process", &json!({ "session_id": session, "process_id": process })).await
}

fn path(prefix: &str, session: &str, process: &str) -> String {
    format!("/v1/sessions/{prefix}{session}/managed-process/{process}/ws")
}

async fn a_client_of_a_workspace_attaches_by_the_id_that_it_computes(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    let prefix = prefix(&mut rpc).await?;
    start(&mut rpc, "a:b", "p1", "exec cat").await?;
    let url = door.server.url()?.to_owned();
    let path = path(&prefix, "a-b", "p1");
    let mut headers = HEADERS.to_vec();
    headers.push(("sec-websocket-protocol", "mcp"));
    let mut first = Socket::open(&url, &path, &headers).await?;
    ensure!(first.protocol == "mcp");
    first.text("line1").await?;
    ensure!(first.line().await? == "line1");
    ensure!(process(&mut rpc, "a:b", "p1").await?["attached"] == true);
    let mut second = Socket::open(&url, &path, &headers).await?;
    second.text("queued").await?;
    first.vanish();
    ensure!(second.line().await? == "queued");
    let mut third = Socket::open(&url, &path, &headers).await?;
    rpc.ask("box_stop_managed_process", &json!({ "session_id": "a:b", "process_id": "p1" })).await?;
    for socket in [&mut second, &mut third] {
        ensure!(socket.next().await? == Said::Closed(Some(1000)));
    }
    Ok(())
}

async fn an_id_that_means_several_sessions_means_the_right_one(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    let prefix = prefix(&mut rpc).await?;
    let url = door.server.url()?.to_owned();
    for (session, process) in [("a-b", "p"), ("a:b", "p"), ("a:b", "q"), ("a/b", "r")] {
        start(&mut rpc, session, process, &format!("echo {session} {process}; exec cat")).await?;
    }
    for (process, line) in [("p", "a-b p"), ("q", "a:b q"), ("r", "a/b r")] {
        let mut socket = Socket::open(&url, &path(&prefix, "a-b", process), &HEADERS).await?;
        let told = socket.line().await?;
        ensure!(told == line, "{process}: {told}");
    }
    Ok(())
}

/// Status and body of the answer to a request without upgrade, which is the same.
async fn asked(door: &Door, path: &str, headers: &[(&str, &str)]) -> Result<(u16, String)> {
    let asking = door.client.request("GET", path);
    let asking = headers.iter().fold(asking, |request, (name, value)| request.header(name, value));
    let answer = asking.send().await?;
    Ok((answer.status, answer.text()))
}

async fn whoever_is_not_of_that_placement_is_told_nothing(door: &mut Door) -> Result<()> {
    let any = path("ws-0123456789abcdef01234567-g1-", "s", "p");
    let unauthorized = (401, "Unauthorized".to_owned());
    ensure!(asked(door, &any, &HEADERS).await? == unauthorized, "no instance is pinned yet");
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    let prefix = prefix(&mut rpc).await?;
    start(&mut rpc, "s", "p", "exec cat").await?;
    let path = path(&prefix, "s", "p");
    let other = |name: &'static str, value: &'static str| {
        HEADERS.map(|header| if header.0 == name { (name, value) } else { header }).to_vec()
    };
    let foreign = [
        HEADERS[..1].to_vec(),
        HEADERS[..2].to_vec(),
        other(INSTANCE.0, "another"),
        other(INSTANCE.0, "-bad-"),
        other(WORKSPACE.0, "another"),
        other(GENERATION.0, "2"),
        other(GENERATION.0, "01"),
    ];
    for headers in foreign {
        ensure!(asked(door, &path, &headers).await? == unauthorized, "{headers:?}");
    }
    ensure!(asked(door, &any, &HEADERS).await? == unauthorized, "the session of another workspace");
    let raw = asked(door, &path, &[]).await?;
    ensure!(raw.0 == 400 && raw.1.contains("BoxSessionNotFoundError"), "without headers it is another's name: {raw:?}");
    Ok(())
}

async fn what_is_not_there_is_told_in_langbots_words(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    let prefix = prefix(&mut rpc).await?;
    let told = |code: &str, message: String| (400, json!({ "error": { "code": code, "message": message } }));
    let ask = async |session: &str, process: &str| -> Result<(u16, Value)> {
        let (status, text) = asked(door, &path(&prefix, session, process), &HEADERS).await?;
        Ok((status, serde_json::from_str(&text)?))
    };
    let nothing = told("BoxSessionNotFoundError", format!("session {prefix}none not found"));
    ensure!(ask("none", "p").await? == nothing);
    start(&mut rpc, "s", "p", "exit 0").await?;
    let missing = format!("session {prefix}s has no managed process with process_id=q");
    ensure!(ask("s", "q").await? == told("BoxManagedProcessNotFoundError", missing));
    while process(&mut rpc, "s", "p").await?["status"] != "exited" {
        tokio::task::yield_now().await;
    }
    let ended = format!("managed process p in session {prefix}s is not running");
    ensure!(ask("s", "p").await? == told("BoxManagedProcessConflictError", ended));
    Ok(())
}

async fn a_new_generation_ends_the_relays_of_the_old_one(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    let prefix = prefix(&mut rpc).await?;
    start(&mut rpc, "s", "p", "exec cat").await?;
    let (url, path) = (door.server.url()?.to_owned(), path(&prefix, "s", "p"));
    let mut first = Socket::open(&url, &path, &HEADERS).await?;
    first.text("a").await?;
    ensure!(first.line().await? == "a");
    let mut second = Socket::open(&url, &path, &HEADERS).await?;
    rpc.move_to(2);
    rpc.ask("box_status", &json!({})).await?;
    for socket in [&mut first, &mut second] {
        ensure!(socket.next().await? == Said::Closed(Some(1000)));
    }
    ensure!(asked(door, &path, &HEADERS).await?.0 == 401, "the old generation is over");
    Ok(())
}

async fn a_client_that_names_nothing_means_its_own_session_first(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::legacy(door).await?;
    let url = door.server.url()?.to_owned();
    let ours = json!({ "command": "sh", "args": ["-c", "echo ours; exec cat"] });
    for session in ["both", "ours"] {
        door.client.create(session, &json!({})).await?;
        door.client.post(&format!("/v1/sessions/{session}/managed-process/p"), &ours).await?.must(201)?;
    }
    start(&mut rpc, "both", "p", "echo theirs; exec cat").await?;
    for (session, line) in [("both", "theirs"), ("ours", "ours")] {
        let mut socket = Socket::open(&url, &path("", session, "p"), &[]).await?;
        ensure!(socket.line().await? == line, "{session}");
    }
    rpc.ask("box_delete_session", &json!({ "session_id": "both" })).await?;
    let mut socket = Socket::open(&url, &path("", "both", "p"), &[]).await?;
    ensure!(socket.line().await? == "ours");
    Ok(())
}
