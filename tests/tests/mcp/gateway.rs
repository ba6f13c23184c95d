//! What clients of the gateway see of servers in boxes.

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use serde_json::json;

use crate::client::Mcp;
use crate::{House, McpCase, TOOLS, cases};

/// Calls that are on their way to one server at the same time.
const CALLS_AT_ONCE: usize = 1000;

pub(crate) fn cases() -> Vec<McpCase> {
    cases![
        a_server_is_added_connected_and_called,
        servers_are_in_one_session_and_each_is_reached_by_its_name,
        a_large_result_arrives,
        many_calls_at_once_are_each_answered,
        our_own_tools_are_a_server,
    ]
}

async fn a_server_is_added_connected_and_called(house: &mut House) -> Result<()> {
    let info = house.start("small", &["--noise"]).await?;
    ensure!(info["tools"] == TOOLS && info["source"] == "stored", "{info}");
    let runtime = &info["runtime_info"];
    let session = runtime["box_session_id"].as_str().unwrap_or_default().to_owned();
    ensure!(runtime["box_enabled"] == true && session.starts_with("mcp-shared"), "{info}");
    let client = Mcp::connect(&house.server, "/mcp").await?;
    ensure!(client.tools().await?.contains(&"small__echo".to_owned()));
    ensure!(client.call("small__echo", json!({"text": "grüße"})).await? == "grüße");
    ensure!(client.call("small__env", json!({"name": "KEY"})).await? == "sesame");
    let alone = Mcp::connect(&house.server, "/mcp/small").await?;
    ensure!(alone.call("echo", json!({"text": "x"})).await? == "x", "by its own names at its own address");
    for path in ["/v1/mcp/servers", "/v1/mcp/servers/small/logs", &format!("/v1/sessions/{session}/processes")] {
        let told = house.owner.get(path).await?.must(200)?.to_string();
        ensure!(!told.contains("sesame"), "a secret is shown at {path}");
    }
    ensure!(!house.server.log().contains("sesame"), "a secret is in the log");
    Ok(())
}

async fn servers_are_in_one_session_and_each_is_reached_by_its_name(house: &mut House) -> Result<()> {
    let (one, two) = tokio::try_join!(house.start("one", &[]), house.start("two", &[]))?;
    let session = one["runtime_info"]["box_session_id"].clone();
    ensure!(session == two["runtime_info"]["box_session_id"], "{one} {two}");
    ensure!(house.owner.sessions().await?.len() == 1);
    let client = Mcp::connect(&house.server, "/mcp").await?;
    let (first, second) = (client.call("one__pid", json!({})).await?, client.call("two__pid", json!({})).await?);
    ensure!(first != second);
    house.client.delete("/v1/mcp/servers/one").await?.must(200)?;
    ensure!(client.call("two__pid", json!({})).await? == second, "the other one was disturbed");
    ensure!(client.call("one__pid", json!({})).await.is_err());
    house.client.delete("/v1/mcp/servers/two").await?.must(200)?;
    ensure!(house.owner.sessions().await?.is_empty(), "a session that nobody needs is kept");
    Ok(())
}

async fn a_large_result_arrives(house: &mut House) -> Result<()> {
    house.start("small", &[]).await?;
    let bytes = 10 << 20;
    let told = house.call("small__big", json!({"bytes": bytes})).await?;
    ensure!(told.len() == bytes, "{} bytes", told.len());
    Ok(())
}

async fn many_calls_at_once_are_each_answered(house: &mut House) -> Result<()> {
    house.start("small", &[]).await?;
    let clients = try_join_all((0..8).map(|_| Mcp::connect(&house.server, "/mcp"))).await?;
    let call = async |number: usize| {
        let client = &clients[number % clients.len()];
        let told = client.call("small__echo", json!({"text": number.to_string()})).await?;
        ensure!(told == number.to_string(), "{number} was answered with {told}");
        Ok(())
    };
    try_join_all((0..CALLS_AT_ONCE).map(call)).await?;
    Ok(())
}

async fn our_own_tools_are_a_server(house: &mut House) -> Result<()> {
    let client = Mcp::connect(&house.server, "/mcp/box").await?;
    let tools = client.tools().await?;
    for tool in ["exec", "read", "write", "edit", "glob", "grep", "activate", "session_list", "process_start"] {
        ensure!(tools.iter().any(|name| name == tool), "{tool} is not among {tools:?}");
    }
    let told = client.result("exec", json!({"command": "echo hello > file; cat file"})).await?;
    ensure!(told["structuredContent"]["stdout"].as_str().is_some_and(|text| text.contains("hello")), "{told}");
    client.call("process_start", json!({"process_id": "cat", "command": "cat; echo bye"})).await?;
    client.call("process_input", json!({"process_id": "cat", "text": "word\n", "end": true})).await?;
    let said = crate::eventually("what the process says", || async {
        let said = client.result("process_output", json!({"process_id": "cat"})).await?["structuredContent"].clone();
        Ok((said["text"] == "word\nbye\n").then_some(said))
    });
    said.await?;
    client.call("session_end", json!({})).await?;
    ensure!(house.owner.sessions().await?.is_empty());
    Ok(())
}
