//! What becomes of boxes when the server is asked to stop.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use box_tests::restart_server::{Orders, StateDirectory, boxes_on_file};
use hyper::StatusCode;
use rustix::process::Signal;
use serde_json::json;

use crate::adoption::{marked_sleep, pid_on_host, until};

/// Idle time of a session that must survive until its server is killed, and little longer.
const IDLE_SEC: u64 = 10;

/// Makes a persistent session and one that is not, stops the server as ordered, and says which of them the next one has.
async fn survivors(place: &StateDirectory, orders: &Orders, signal: Signal) -> Result<(bool, bool)> {
    let server = place.start_with(orders).await?;
    server.client.create("lasting", &json!({ "persistent": true })).await?;
    for session in ["lasting", "fleeting"] {
        server.client.exec(session, "echo kept > /workspace/f").await?;
        server.client.start_process(session, "p", "sleep 1000").await?;
    }
    server.stop_by(signal).await?;
    let server = place.start().await?;
    let mut kept = Vec::new();
    for session in ["lasting", "fleeting"] {
        let found = server.client.get(&format!("sessions/{session}")).await?;
        kept.push(found.status == StatusCode::OK);
        if found.status == StatusCode::OK {
            ensure!(server.client.said(session, "cat /workspace/f").await? == "kept", "{session} has other files");
            ensure!(server.client.process(session, "p").await?["status"] == "running", "its process ended");
        }
    }
    let boxes = boxes_on_file(&place.state()).len();
    ensure!(boxes == kept.iter().filter(|kept| **kept).count(), "{boxes} boxes are there, kept are {kept:?}");
    server.kill().await?;
    Ok((kept[0], kept[1]))
}

/// What the last server that stopped said of the stop.
fn said_at_stop(place: &StateDirectory) -> Result<String> {
    let log = std::fs::read_to_string(place.log())?;
    let told = log.lines().rfind(|line| line.contains("stopped; ")).context("the log has no line about the stop")?;
    Ok(told.to_owned())
}

/// The default. The last log line says what is kept, and how to reach it.
pub(crate) async fn a_stop_keeps_all_and_says_so(place: Arc<StateDirectory>) -> Result<()> {
    keeps_all(&place, Signal::TERM).await
}

/// Ctrl-C stops it no other way.
pub(crate) async fn ctrl_c_keeps_all_and_says_so(place: Arc<StateDirectory>) -> Result<()> {
    keeps_all(&place, Signal::INT).await
}

async fn keeps_all(place: &StateDirectory, signal: Signal) -> Result<()> {
    let kept = survivors(place, &Orders::default(), signal).await?;
    ensure!(kept == (true, true), "persistent and other sessions kept: {kept:?}");
    let told = said_at_stop(place)?;
    let state = place.state().display().to_string();
    for part in ["sessions kept: 2 (persistent: 1)", "with 2 running", "ends by itself", &state, "session rm --all"] {
        ensure!(told.contains(part), "no {part:?} in {told:?}");
    }
    ensure!(!told.contains("removed:"), "{told:?}");
    Ok(())
}

/// `--on-stop keep-persistent`.
pub(crate) async fn a_stop_can_keep_persistent_sessions(place: Arc<StateDirectory>) -> Result<()> {
    let kept = survivors(&place, &Orders::on_stop("keep-persistent"), Signal::TERM).await?;
    ensure!(kept == (true, false), "persistent and other sessions kept: {kept:?}");
    let told = said_at_stop(&place)?;
    for part in ["sessions kept: 1 (persistent: 1)", "; sessions removed: 1;"] {
        ensure!(told.contains(part), "no {part:?} in {told:?}");
    }
    Ok(())
}

/// A box that is not kept ends itself after its idle time without a server, and is reported as lost with that reason. A
/// running process keeps one, and so does `persistent`. While a server is there, no box ends itself.
pub(crate) async fn a_box_that_is_left_alone_ends_itself(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    for session in ["idle", "changed", "busy"] {
        server.client.create(session, &json!({ "ttl_sec": IDLE_SEC })).await?;
    }
    // The last idle time counts.
    server.client.create("changed", &json!({ "ttl_sec": 600 })).await?;
    server.client.create("lasting", &json!({ "ttl_sec": IDLE_SEC, "persistent": true })).await?;
    server.client.start_process("busy", "p", "sleep 1000").await?;
    let marks = ["lasting", "busy", "changed", "idle"].map(|session| (session, marked_sleep()));
    for (session, sleep) in &marks {
        server.client.exec(session, &format!("{sleep} > /dev/null 2>&1 &")).await?;
    }
    server.kill().await?;
    let sleeps = |wanted: &str| {
        let (_, sleep) = marks.iter().find(|(session, _)| *session == wanted).context("an unknown session")?;
        Ok::<_, anyhow::Error>(pid_on_host(sleep).is_ok())
    };
    until("the end of the idle box", || async { Ok(!sleeps("idle")?) }).await?;
    for session in ["changed", "busy", "lasting"] {
        ensure!(sleeps(session)?, "the box of {session} ended");
    }
    let server = place.start().await?;
    let lost = server.client.session("idle").await?;
    let reason = lost["lost_reason"].as_str().unwrap_or_default();
    ensure!(
        lost["state"] == "lost" && reason.contains("ended itself") && reason.contains(&format!("ttl_sec {IDLE_SEC}")),
        "{lost}"
    );
    for session in ["changed", "busy", "lasting"] {
        ensure!(server.client.session(session).await?["state"] == "running", "{session} is not there");
    }
    ensure!(server.client.process("busy", "p").await?["status"] == "running", "its process ended");
    ensure!(boxes_on_file(&place.state()).len() == 3, "{:?}", boxes_on_file(&place.state()));
    server.client.create("idle", &json!({})).await?;
    ensure!(server.client.said("idle", "echo again").await? == "again");
    server.kill().await
}

/// `--on-stop destroy-all`.
pub(crate) async fn a_stop_can_destroy_all(place: Arc<StateDirectory>) -> Result<()> {
    let kept = survivors(&place, &Orders::on_stop("destroy-all"), Signal::TERM).await?;
    ensure!(kept == (false, false), "persistent and other sessions kept: {kept:?}");
    let told = said_at_stop(&place)?;
    ensure!(told.contains("stopped; no session was kept; sessions removed: 2"), "{told:?}");
    Ok(())
}

/// A request that runs holds up the first signal, and not the second. Boxes stay.
pub(crate) async fn a_second_signal_stops_at_once(place: Arc<StateDirectory>) -> Result<()> {
    let mut server = place.start_with(&Orders::on_stop("destroy-all")).await?;
    let (client, marker) = (server.client.clone(), marked_sleep());
    let waiting = tokio::spawn(async move { client.exec("a", &marker).await });
    let client = server.client.clone();
    until("the command", || async { Ok(client.get("sessions/a/execs").await?.body[0]["status"] == "running") }).await?;
    server.terminate()?;
    // The first signal is heard when no new connection is taken any more.
    until("the first signal", || async { Ok(client.get("sessions").await.is_err()) }).await?;
    server.terminate()?;
    let status = server.ended().await?;
    ensure!(status.code() == Some(128 + 15), "it ended with {status}");
    ensure!(waiting.await?.is_err(), "the request was answered");
    let server = place.start().await?;
    ensure!(server.client.session("a").await?["state"] == "running", "the box is gone");
    server.kill().await
}
