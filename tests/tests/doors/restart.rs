//! The server dies, and what its callers hold does not.

use anyhow::{Context, Result, ensure};
use box_tests::events::Events;
use serde_json::{Value, json};

use crate::socket::{Said, Socket};
use crate::{Door, DoorCase, cases, eventually};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![
        sessions_commands_and_processes_outlive_a_killed_server,
        a_stream_goes_on_over_a_killed_server,
        a_box_that_died_while_nobody_looked_is_lost,
        a_stop_that_is_asked_for_lets_callers_know,
        tokens_outlive_the_server,
    ]
}

async fn sessions_commands_and_processes_outlive_a_killed_server(door: &mut Door) -> Result<()> {
    let client = door.client.clone();
    let session = client.create("one", &json!({ "memory_mb": 64, "env": { "KEY": "kept" } })).await?;
    client.exec("one", "echo kept > /workspace/file").await?;
    let running =
        client.start("one", "echo before; until [ -e /workspace/go ]; do sleep 0.01; done; echo after").await?;
    client.post("/v1/sessions/one/processes", &json!({ "command": "cat" })).await?.must(201)?;
    door.server.restart().await?;
    let client = door.server.client()?;
    let again = client.get("/v1/sessions/one").await?.must(200)?;
    ensure!(again["backend_session_id"] == session["backend_session_id"] && again["state"] == "running", "{again}");
    ensure!(again["memory_mb"] == 64 && again["created_at"] == session["created_at"], "{again}");
    ensure!(
        client.exec("one", "cat /workspace/file; echo $KEY; touch /workspace/go").await?["stdout"] == "kept\nkept\n"
    );
    let result = client.get(&format!("/v1/sessions/one/execs/{running}/result")).await?.must(200)?;
    ensure!(result["stdout"] == "before\nafter\n" && result["exit_code"] == 0, "{result}");
    let process = client.get("/v1/sessions/one/processes/default").await?.must(200)?;
    ensure!(process["status"] == "running", "{process}");
    client.request("POST", "/v1/sessions/one/processes/default/stdin").body("fed\n").send().await?;
    eventually("the echo", || async {
        Ok((client.get("/v1/sessions/one/processes/default/output").await?.text() == "fed\n").then_some(()))
    })
    .await?;
    let listed = client.get("/v1/sessions/one/execs").await?.must(200)?;
    ensure!(listed.as_array().is_some_and(|list| list.len() == 3), "{listed}");
    Ok(())
}

async fn a_stream_goes_on_over_a_killed_server(door: &mut Door) -> Result<()> {
    let client = door.client.clone();
    let exec = client.start("one", "i=0; while [ $i -lt 400 ]; do echo line-$i; i=$((i+1)); sleep 0.005; done").await?;
    let path = format!("/v1/sessions/one/execs/{exec}/events");
    let (mut seen, mut last) = (Vec::new(), String::new());
    for _ in 0..2 {
        let mut events =
            Events::open(door.server.client()?.request("GET", &path).header("last-event-id", &last)).await?;
        for _ in 0..5 {
            let event = events.next().await?.context("the stream ended")?;
            last.clone_from(&event.id);
            seen.extend(event.output()?);
        }
        door.server.restart().await?;
    }
    let rest =
        Events::open(door.server.client()?.request("GET", &path).header("last-event-id", &last)).await?.rest().await?;
    for event in rest.iter().filter(|event| event.name == "output") {
        seen.extend(event.output()?);
    }
    let expected: String = (0..400).map(|number| format!("line-{number}\n")).collect::<Vec<_>>().concat();
    ensure!(seen == expected.as_bytes(), "{} of {} bytes", seen.len(), expected.len());
    ensure!(rest.last().is_some_and(|event| event.name == "ended" && event.data["exit_code"] == 0));
    Ok(())
}

async fn a_box_that_died_while_nobody_looked_is_lost(door: &mut Door) -> Result<()> {
    let session = door.client.create("one", &json!({})).await?;
    let agent = crate::sessions::agent_of(door, &session)?;
    door.server.kill_9()?;
    box_tests::system::kill(agent)?;
    door.server.launch().await?;
    let client = door.server.client()?;
    let lost = client.get("/v1/sessions/one").await?.must(200)?;
    ensure!(lost["state"] == "lost" && lost["lost_reason"].is_string(), "{lost}");
    client.post("/v1/sessions/one/exec", &json!({ "cmd": "true" })).await?.refused(410, "box_gone")?;
    client.create("one", &json!({})).await?;
    ensure!(client.exec("one", "true").await?["exit_code"] == 0);
    Ok(())
}

async fn a_stop_that_is_asked_for_lets_callers_know(door: &mut Door) -> Result<()> {
    let mut socket = Socket::open(door.server.url()?, "/v1/sessions/one/exec/ws", &[]).await?;
    socket.text(json!({ "cmd": "echo ready; sleep 1000" }).to_string()).await?;
    let started: Value = socket.told("started").await?;
    socket.until("ready").await?;
    let exec = started["exec"]["exec_id"].as_str().context("an id")?;
    let mut events = Events::open(door.client.request("GET", &format!("/v1/sessions/one/execs/{exec}/events"))).await?;
    events.next().await?.context("the first event")?;
    let status = door.server.sigterm().await?;
    ensure!(status.success(), "{status}");
    ensure!(socket.next().await? == Said::Closed(Some(1001)));
    ensure!(!events.rest().await?.iter().any(|event| event.name == "ended"), "it did not end");
    Ok(())
}

async fn tokens_outlive_the_server(door: &mut Door) -> Result<()> {
    let token = door.server.token(&["--name", "first"])?;
    door.server.restart().await?;
    let client = door.server.client()?;
    client.get("/v1/status").await?.refused(401, "unauthorized")?;
    client.with_token(&token).get("/v1/status").await?.must(200)?;
    Ok(())
}
