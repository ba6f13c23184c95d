//! What becomes of boxes when the server is asked to stop.

use std::sync::Arc;

use anyhow::{Result, ensure};
use box_tests::restart_server::{Orders, Place, boxes_on_file};
use hyper::StatusCode;
use serde_json::json;

use crate::adoption::{marked_sleep, until};

/// Makes a persistent session and one that is not, stops the server as ordered, and says which of them the next one has.
async fn survivors(place: &Place, orders: &Orders) -> Result<(bool, bool)> {
    let server = place.start_with(orders).await?;
    server.client.create("lasting", &json!({ "persistent": true })).await?;
    for session in ["lasting", "fleeting"] {
        server.client.exec(session, "echo kept > /workspace/f").await?;
        server.client.start_process(session, "p", "sleep 1000").await?;
    }
    server.stop().await?;
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

/// The default.
pub(crate) async fn a_stop_keeps_persistent_sessions(place: Arc<Place>) -> Result<()> {
    let kept = survivors(&place, &Orders::default()).await?;
    ensure!(kept == (true, false), "persistent and other sessions kept: {kept:?}");
    Ok(())
}

/// `--on-stop keep-all`.
pub(crate) async fn a_stop_can_keep_all(place: Arc<Place>) -> Result<()> {
    let kept = survivors(&place, &Orders::on_stop("keep-all")).await?;
    ensure!(kept == (true, true), "persistent and other sessions kept: {kept:?}");
    Ok(())
}

/// `--on-stop destroy-all`.
pub(crate) async fn a_stop_can_destroy_all(place: Arc<Place>) -> Result<()> {
    let kept = survivors(&place, &Orders::on_stop("destroy-all")).await?;
    ensure!(kept == (false, false), "persistent and other sessions kept: {kept:?}");
    Ok(())
}

/// A request that runs holds up the first signal, and not the second. Boxes stay.
pub(crate) async fn a_second_signal_stops_at_once(place: Arc<Place>) -> Result<()> {
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
