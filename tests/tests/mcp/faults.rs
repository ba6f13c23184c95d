//! What dies in the middle of a call: whoever waits is told at once, and everything comes back by itself.

use anyhow::{Context, Result, ensure};
use box_tests::{host, system};
use serde_json::{Value, json};

use crate::client::Mcp;
use crate::{House, McpCase, cases, eventually};

/// One line more than a server may say in a row that is no message.
const TOO_MANY_LINES: u64 = 100_001;

pub(crate) fn cases() -> Vec<McpCase> {
    cases![
        a_call_fails_when_its_process_is_killed,
        a_call_fails_when_its_session_is_deleted,
        a_call_fails_when_its_box_is_killed,
        a_call_fails_when_our_server_is_killed_and_its_process_goes_on,
        a_connection_that_is_lost_is_made_again_to_the_same_process,
        a_call_that_is_cancelled_is_cancelled_at_its_server,
    ]
}

/// A client, and the session that its server runs in.
async fn started(house: &House) -> Result<(Mcp, String)> {
    let info = house.start("small", &[]).await?;
    let session = info["runtime_info"]["box_session_id"].as_str().context("no session")?.to_owned();
    Ok((Mcp::connect(&house.server, "/mcp").await?, session))
}

/// Holds that the server is tried once more, that it is said why, and that the same client can call it again then.
async fn recovers(house: &House, client: &Mcp) -> Result<Value> {
    let trying = house.until("small", |info| info["runtime_info"]["error_phase"] == "runtime").await?;
    ensure!(trying["status"] == "connecting" && trying["runtime_info"]["retry_count"] == 1, "{trying}");
    let again = house.connected("small").await?;
    ensure!(again["runtime_info"]["error_phase"].is_null(), "{again}");
    ensure!(client.call("small__echo", json!({"text": "back"})).await? == "back");
    Ok(again)
}

async fn a_call_fails_when_its_process_is_killed(house: &mut House) -> Result<()> {
    let (client, session) = started(house).await?;
    let before = client.call("small__pid", json!({})).await?;
    let held = client.hold("small__hold", "first").await?;
    house.owner.exec(&session, &format!("kill -9 {before}")).await?;
    held.fails().await?;
    let again = recovers(house, &client).await?;
    ensure!(again["runtime_info"]["box_session_id"] == session.as_str(), "{again}");
    ensure!(client.call("small__pid", json!({})).await? != before);
    Ok(())
}

async fn a_call_fails_when_its_session_is_deleted(house: &mut House) -> Result<()> {
    let (client, session) = started(house).await?;
    let held = client.hold("small__hold", "first").await?;
    house.owner.delete(&format!("/v1/sessions/{session}")).await?.must(200)?;
    held.fails().await?;
    recovers(house, &client).await?;
    Ok(())
}

async fn a_call_fails_when_its_box_is_killed(house: &mut House) -> Result<()> {
    let (client, session) = started(house).await?;
    let before = box_of(house, &session).await?;
    let held = client.hold("small__hold", "first").await?;
    let agents = host::agents_of(house.server.state(), &before);
    ensure!(!agents.is_empty(), "no agent of {before} was found");
    agents.into_iter().try_for_each(system::kill)?;
    held.fails().await?;
    recovers(house, &client).await?;
    ensure!(box_of(house, &session).await? != before);
    Ok(())
}

/// Which box a session has.
async fn box_of(house: &House, session: &str) -> Result<String> {
    let info = house.owner.get(&format!("/v1/sessions/{session}")).await?.must(200)?;
    Ok(info["backend_session_id"].as_str().context("a session without a box")?.to_owned())
}

async fn a_call_fails_when_our_server_is_killed_and_its_process_goes_on(house: &mut House) -> Result<()> {
    let (client, _) = started(house).await?;
    let before = client.call("small__pid", json!({})).await?;
    let held = client.hold("small__hold", "first").await?;
    house.server.kill_9()?;
    ensure!(held.result().await.is_err(), "a call was answered by nobody");
    house.server.launch().await?;
    house.client = house.server.client()?;
    let again = house.connected("small").await?;
    ensure!(again["runtime_info"]["retry_count"] == 0 && again["runtime_info"]["error_phase"].is_null(), "{again}");
    let client = Mcp::connect(&house.server, "/mcp").await?;
    ensure!(client.call("small__pid", json!({})).await? == before, "it was started anew");
    // What the process answers now to the call of before, is for nobody.
    let held = client.hold("small__hold", "second").await?;
    client.call("small__let_go", json!({})).await?;
    ensure!(held.text().await? == "second");
    ensure!(client.call("small__echo", json!({"text": "back"})).await? == "back");
    Ok(())
}

async fn a_connection_that_is_lost_is_made_again_to_the_same_process(house: &mut House) -> Result<()> {
    let (client, _) = started(house).await?;
    let before = client.call("small__pid", json!({})).await?;
    let held = client.hold("small__hold", "first").await?;
    let babble = client.call("small__babble", json!({"lines": TOO_MANY_LINES})).await;
    ensure!(babble.is_err(), "who says so much that is no message is heard on");
    held.fails().await?;
    let call = || async { Ok(client.call("small__pid", json!({})).await.ok()) };
    ensure!(eventually("a call", call).await? == before, "it was started anew");
    let again = house.connected("small").await?;
    ensure!(again["runtime_info"]["retry_count"] == 0 && again["runtime_info"]["error_phase"].is_null(), "{again}");
    let log = house.client.get("/v1/mcp/servers/small/logs").await?.must(200)?.to_string();
    ensure!(log.contains("the connection is lost; its process runs"), "{log}");
    Ok(())
}

async fn a_call_that_is_cancelled_is_cancelled_at_its_server(house: &mut House) -> Result<()> {
    let (client, _) = started(house).await?;
    let held = client.hold("small__hold", "first").await?;
    held.cancel("nobody waits").await?;
    let is_told = |info: &Value| info["runtime_info"]["stderr_tail"].to_string().contains("a call was cancelled");
    house.until("small", is_told).await?;
    client.call("small__let_go", json!({})).await?;
    ensure!(client.call("small__echo", json!({"text": "next"})).await? == "next");
    Ok(())
}
