//! Boxes that are gone: their owners are told, and nothing is rebuilt behind their backs.

use std::sync::Arc;

use anyhow::{Result, ensure};
use box_tests::restart_server::{Client, Place};
use box_tests::{host, system};
use hyper::StatusCode;
use serde_json::json;

use crate::adoption::until;

/// Kills the agents of all boxes of a place whose id begins so.
async fn kill_agents(place: &Place, box_id: &str) -> Result<()> {
    let agents = host::agents_of(&place.state(), box_id);
    ensure!(!agents.is_empty(), "no agent of {box_id:?} was found");
    for pid in &agents {
        system::kill(*pid)?;
    }
    let lives = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    until("the end of the agents", || async { Ok(!agents.iter().any(lives)) }).await
}

async fn is_lost(client: &Client, session: &str) -> Result<()> {
    let info = client.session(session).await?;
    let reason = info["lost_reason"].as_str().unwrap_or_default();
    ensure!(info["state"] == "lost" && !reason.is_empty(), "{session} is {info}");
    let refused = client.post(&format!("sessions/{session}/exec"), &json!({ "cmd": "true" })).await?;
    ensure!(refused.status == StatusCode::GONE, "a command in a lost session: {refused:?}");
    let told = refused.body["error"]["message"].as_str().unwrap_or_default();
    ensure!(told.contains("create the session again"), "it is not said what to do: {}", refused.body);
    Ok(())
}

/// While the server runs: the one box is lost with a reason, its neighbour is not touched, and its owner can have a new one.
pub(crate) async fn a_box_killed_from_outside_is_lost(place: Arc<Place>) -> Result<()> {
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
    let anew = client.create("lost", &json!({})).await?;
    ensure!(anew["state"] == "running" && anew["backend_session_id"] != id.as_str(), "{anew}");
    client.exec("lost", "true").await?;
    server.kill().await
}

/// While no server runs.
pub(crate) async fn a_box_killed_behind_our_back_is_lost(place: Arc<Place>) -> Result<()> {
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
pub(crate) async fn all_boxes_gone_are_all_lost(place: Arc<Place>) -> Result<()> {
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
