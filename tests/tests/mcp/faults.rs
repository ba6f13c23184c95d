//! Deaths in the middle of a call: the waiting client gets an error at once, and everything recovers by itself.

use anyhow::{Context, Result, ensure};
use box_tests::{host, system};
use serde_json::{Value, json};

use crate::client::Mcp;
use crate::{Fixture, McpCase, SCRIPT, cases, definition, eventually};

/// One more than the lines in a row that a server may print without a message among them.
const TOO_MANY_LINES: u64 = 100_001;

pub(crate) fn cases() -> Vec<McpCase> {
    cases![
        a_call_fails_when_its_process_is_killed,
        a_call_says_that_a_server_which_crashed_is_starting,
        a_call_fails_when_its_session_is_deleted,
        a_call_fails_when_its_box_is_killed,
        a_call_fails_when_our_server_is_killed_and_its_process_goes_on,
        a_connection_that_is_lost_is_made_again_to_the_same_process,
        a_call_that_is_cancelled_is_cancelled_at_its_server,
    ]
}

/// A client, and the session that its server runs in.
async fn started(fixture: &Fixture) -> Result<(Mcp, String)> {
    let info = fixture.start("small", &[]).await?;
    let session = info["runtime_info"]["box_session_id"].as_str().context("no session")?.to_owned();
    Ok((Mcp::connect(&fixture.server, "/mcp").await?, session))
}

/// Holds that the server is tried once more, that it is said why, and that the same client can call it again then.
async fn recovers(fixture: &Fixture, client: &Mcp) -> Result<Value> {
    let trying = fixture.until("small", |info| info["runtime_info"]["error_phase"] == "runtime").await?;
    ensure!(trying["status"] == "connecting" && trying["runtime_info"]["retry_count"] == 1, "{trying}");
    let again = fixture.connected("small").await?;
    ensure!(again["runtime_info"]["error_phase"].is_null(), "{again}");
    ensure!(client.call("small__echo", json!({"text": "back"})).await? == "back");
    Ok(again)
}

async fn a_call_fails_when_its_process_is_killed(fixture: &mut Fixture) -> Result<()> {
    let (client, session) = started(fixture).await?;
    let before = client.call("small__pid", json!({})).await?;
    let held = client.hold("small__hold", "first").await?;
    fixture.owner.exec(&session, &format!("kill -9 {before}")).await?;
    held.fails().await?;
    let again = recovers(fixture, &client).await?;
    ensure!(again["runtime_info"]["box_session_id"] == session.as_str(), "{again}");
    ensure!(client.call("small__pid", json!({})).await? != before);
    Ok(())
}

async fn a_call_says_that_a_server_which_crashed_is_starting(fixture: &mut Fixture) -> Result<()> {
    // Once the file is there, the next start waits until it is gone.
    let script = format!("import os, time\nwhile os.path.exists('/tmp/wait'): time.sleep(0.05)\n{SCRIPT}");
    let mut definition = definition(&[]);
    definition["args"] = json!(["-c", script]);
    fixture.put("small", &definition).await?;
    let info = fixture.connected("small").await?;
    let session = info["runtime_info"]["box_session_id"].as_str().context("no session")?.to_owned();
    let client = Mcp::connect(&fixture.server, "/mcp").await?;
    let before = client.call("small__pid", json!({})).await?;
    fixture.owner.exec(&session, &format!("touch /tmp/wait; kill -9 {before}")).await?;
    fixture.until("small", |info| info["status"] == "connecting").await?;
    let told = client.result("small__echo", json!({"text": "x"})).await?;
    let text = told["content"][0]["text"].as_str().unwrap_or_default();
    let says = "the MCP server small is starting; try again in a few seconds";
    ensure!(told["isError"] == true && text.ends_with(says), "{told}");
    fixture.owner.exec(&session, "rm /tmp/wait").await?;
    fixture.connected("small").await?;
    ensure!(client.call("small__echo", json!({"text": "back"})).await? == "back");
    Ok(())
}

async fn a_call_fails_when_its_session_is_deleted(fixture: &mut Fixture) -> Result<()> {
    let (client, session) = started(fixture).await?;
    let held = client.hold("small__hold", "first").await?;
    fixture.owner.delete(&format!("/v1/sessions/{session}")).await?.must(200)?;
    held.fails().await?;
    recovers(fixture, &client).await?;
    Ok(())
}

async fn a_call_fails_when_its_box_is_killed(fixture: &mut Fixture) -> Result<()> {
    let (client, session) = started(fixture).await?;
    let before = box_of(fixture, &session).await?;
    let held = client.hold("small__hold", "first").await?;
    let agents = host::agents_of(fixture.server.state(), &before);
    ensure!(!agents.is_empty(), "no agent of {before} was found");
    agents.into_iter().try_for_each(system::kill)?;
    held.fails().await?;
    recovers(fixture, &client).await?;
    ensure!(box_of(fixture, &session).await? != before);
    Ok(())
}

/// Which box a session has.
async fn box_of(fixture: &Fixture, session: &str) -> Result<String> {
    let info = fixture.owner.get(&format!("/v1/sessions/{session}")).await?.must(200)?;
    Ok(info["backend_session_id"].as_str().context("a session without a box")?.to_owned())
}

async fn a_call_fails_when_our_server_is_killed_and_its_process_goes_on(fixture: &mut Fixture) -> Result<()> {
    let (client, _) = started(fixture).await?;
    let before = client.call("small__pid", json!({})).await?;
    let held = client.hold("small__hold", "first").await?;
    fixture.server.kill_9()?;
    ensure!(held.result().await.is_err(), "a call was answered without a server");
    fixture.server.launch().await?;
    fixture.client = fixture.server.client()?;
    let again = fixture.connected("small").await?;
    ensure!(again["runtime_info"]["retry_count"] == 0 && again["runtime_info"]["error_phase"].is_null(), "{again}");
    let client = Mcp::connect(&fixture.server, "/mcp").await?;
    ensure!(client.call("small__pid", json!({})).await? == before, "it was restarted");
    // The process now answers the earlier call, whose client is gone.
    let held = client.hold("small__hold", "second").await?;
    client.call("small__let_go", json!({})).await?;
    ensure!(held.text().await? == "second");
    ensure!(client.call("small__echo", json!({"text": "back"})).await? == "back");
    Ok(())
}

async fn a_connection_that_is_lost_is_made_again_to_the_same_process(fixture: &mut Fixture) -> Result<()> {
    let (client, _) = started(fixture).await?;
    let before = client.call("small__pid", json!({})).await?;
    let held = client.hold("small__hold", "first").await?;
    let babble = client.call("small__babble", json!({"lines": TOO_MANY_LINES})).await;
    ensure!(babble.is_err(), "a server with too many invalid lines stays connected");
    held.fails().await?;
    let call = || async { Ok(client.call("small__pid", json!({})).await.ok()) };
    ensure!(eventually("a call", call).await? == before, "it was restarted");
    let again = fixture.connected("small").await?;
    ensure!(again["runtime_info"]["retry_count"] == 0 && again["runtime_info"]["error_phase"].is_null(), "{again}");
    let log = fixture.client.get("/v1/mcp/servers/small/logs").await?.must(200)?.to_string();
    ensure!(log.contains("the connection is lost; its process runs"), "{log}");
    Ok(())
}

async fn a_call_that_is_cancelled_is_cancelled_at_its_server(fixture: &mut Fixture) -> Result<()> {
    let (client, _) = started(fixture).await?;
    let held = client.hold("small__hold", "first").await?;
    held.cancel("no longer needed").await?;
    let is_told = |info: &Value| info["runtime_info"]["stderr_tail"].to_string().contains("a call was cancelled");
    fixture.until("small", is_told).await?;
    client.call("small__let_go", json!({})).await?;
    ensure!(client.call("small__echo", json!({"text": "next"})).await? == "next");
    Ok(())
}
