//! Boxes that are gone: their owners get an error, and nothing is rebuilt silently.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use box_core::Store as _;
use box_core::store::{Change, Wait};
use box_store::SqliteStore;
use box_tests::restart_server::{Client, StateDirectory};
use box_tests::{host, system};
use box_wire::version::Hello;
use hyper::StatusCode;
use serde_json::json;

use crate::adoption::until;

/// Kills the agents of all boxes of a place whose id begins so.
async fn kill_agents(place: &StateDirectory, box_id: &str) -> Result<()> {
    let agents = host::agents_of(&place.state(), box_id);
    ensure!(!agents.is_empty(), "no agent of {box_id:?} was found");
    for pid in &agents {
        system::kill(*pid)?;
    }
    let lives = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    until("the end of the agents", || async { Ok(!agents.iter().any(lives)) }).await
}

pub(crate) async fn is_lost(client: &Client, session: &str) -> Result<()> {
    let info = client.session(session).await?;
    let reason = info["lost_reason"].as_str().unwrap_or_default();
    ensure!(info["state"] == "lost" && !reason.is_empty(), "{session} is {info}");
    let refused = client.post(&format!("sessions/{session}/exec"), &json!({ "cmd": "true" })).await?;
    ensure!(refused.status == StatusCode::GONE, "a command in a lost session: {refused:?}");
    let told = refused.body["error"]["message"].as_str().unwrap_or_default();
    ensure!(told.contains("create the session again"), "it is not said what to do: {}", refused.body);
    Ok(())
}

/// While the server runs: the one box is lost with a reason, its neighbor is not touched, and its owner can have a new one.
pub(crate) async fn a_box_killed_from_outside_is_lost(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    let client = server.client.clone();
    let lost = client.create("lost", &json!({})).await?;
    client.exec("other", "echo kept > /workspace/f").await?;
    let id = lost["backend_session_id"].as_str().unwrap_or_default().to_owned();
    let running = client.begin("lost", &json!({ "cmd": "sleep 25" })).await?;
    kill_agents(&place, &id).await?;
    let told = client.get(&format!("sessions/lost/execs/{running}/result")).await?;
    ensure!(told.status == StatusCode::GONE, "a command whose box vanished: {told:?}");
    is_lost(&client, "lost").await?;
    ensure!(client.said("other", "cat /workspace/f").await? == "kept", "the neighbour was touched");
    server.kill().await?;
    let server = place.start().await?;
    let client = server.client.clone();
    is_lost(&client, "lost").await?;
    let fresh = client.create("lost", &json!({})).await?;
    ensure!(fresh["state"] == "running" && fresh["backend_session_id"] != id.as_str(), "{fresh}");
    client.exec("lost", "true").await?;
    server.kill().await
}

/// A box older than protocol version numbers: its messages cannot be read, so it is reported as lost and removed.
pub(crate) async fn a_box_of_an_older_protocol_is_lost(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    server.client.exec("other", "echo kept > /workspace/f").await?;
    server.client.create("older", &json!({ "persistent": true })).await?;
    let running = server.client.begin("older", &json!({ "cmd": "sleep 1000" })).await?;
    server.kill().await?;
    record_agent(&place, "older", Hello::default()).await?;
    let server = place.start().await?;
    is_lost(&server.client, "older").await?;
    let info = server.client.session("older").await?;
    let reason = info["lost_reason"].as_str().unwrap_or_default();
    ensure!(reason.starts_with("agent too old"), "lost for another reason: {reason}");
    let told = server.client.get(&format!("sessions/older/execs/{running}/result")).await?;
    ensure!(told.status.is_client_error(), "a result of a box that cannot be read: {told:?}");
    ensure!(server.client.said("other", "cat /workspace/f").await? == "kept", "the neighbour was touched");
    server.client.create("older", &json!({})).await?;
    ensure!(server.client.said("older", "echo new").await? == "new", "no new box took its place");
    server.kill().await
}

/// A box whose agent lacks every feature: it is used as before, and without a lease nothing ends it.
pub(crate) async fn a_box_whose_agent_lacks_features_goes_on(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    server.client.create("older", &json!({ "ttl_sec": 600 })).await?;
    server.client.exec("older", "echo kept > /workspace/f").await?;
    let running = server.client.begin("older", &json!({ "cmd": "sleep 1; echo done" })).await?;
    server.kill().await?;
    record_agent(&place, "older", Hello { features: BTreeSet::new(), ..Hello::ours() }).await?;
    let server = place.start().await?;
    ensure!(server.client.said("older", "cat /workspace/f").await? == "kept", "the box was not adopted");
    let told = server.client.get(&format!("sessions/older/execs/{running}/result?timeout_sec=20")).await?;
    ensure!(told.status == StatusCode::OK, "the result of a command that ran meanwhile: {told:?}");
    server.client.delete("older").await?;
    server.kill().await
}

/// Rewrites a session row as a server wrote it that recorded this of the box's agent.
pub(crate) async fn record_agent(place: &StateDirectory, session: &str, agent: Hello) -> Result<()> {
    let store = SqliteStore::open(&place.state().join("strongbox.db"))?;
    let found = store.load().await?.sessions.into_iter().find(|row| row.key.id.as_str() == session);
    let mut row = found.context("the session is not in the store")?;
    row.handle.as_mut().context("the session has no box")?.agent = agent;
    Ok(store.write(Change::PutSession(Box::new(row)), Wait::Committed).await?)
}

/// While no server runs.
pub(crate) async fn a_box_killed_behind_our_back_is_lost(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    let lost = server.client.create("lost", &json!({ "persistent": true })).await?;
    server.client.exec("other", "echo kept > /workspace/f").await?;
    server.kill().await?;
    kill_agents(&place, lost["backend_session_id"].as_str().unwrap_or_default()).await?;
    let server = place.start().await?;
    is_lost(&server.client, "lost").await?;
    ensure!(server.client.said("other", "cat /workspace/f").await? == "kept", "the neighbour was touched");
    server.client.delete("lost").await?;
    ensure!(server.client.get("sessions/lost").await?.status == StatusCode::NOT_FOUND, "a deleted loss is still there");
    server.kill().await
}

/// As after the death of the machine: all are lost, none is silently rebuilt, nothing of them is left.
pub(crate) async fn all_boxes_gone_are_all_lost(place: Arc<StateDirectory>) -> Result<()> {
    const SESSIONS: [&str; 4] = ["a", "b", "c", "d"];
    let server = place.start().await?;
    for session in SESSIONS {
        server.client.start_process(session, "p", "sleep 1000").await?;
    }
    server.kill().await?;
    kill_agents(&place, "").await?;
    let server = place.start().await?;
    for session in SESSIONS {
        is_lost(&server.client, session).await?;
    }
    until("the end of what is left", || async {
        Ok(box_tests::restart_server::boxes_on_file(&place.state()).is_empty())
    })
    .await?;
    for session in SESSIONS {
        server.client.delete(session).await?;
    }
    server.kill().await
}
