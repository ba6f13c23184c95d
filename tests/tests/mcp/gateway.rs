//! What clients of the gateway see of servers in boxes.

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use serde_json::json;

use crate::client::Mcp;
use crate::{Fixture, McpCase, TOOLS, cases, definition};

/// Calls that are on their way to one server at the same time.
const CALLS_AT_ONCE: usize = 1000;

pub(crate) fn cases() -> Vec<McpCase> {
    cases![
        a_server_is_added_connected_and_called,
        servers_are_in_one_session_and_each_is_reached_by_its_name,
        a_large_result_arrives,
        many_calls_at_once_are_each_answered,
        our_own_tools_are_a_server,
        a_server_that_is_starting_says_so_at_its_address,
        calls_are_counted_in_the_metrics,
    ]
}

async fn a_server_that_is_starting_says_so_at_its_address(fixture: &mut Fixture) -> Result<()> {
    fixture.put("mute", &definition(&["--mute"])).await?;
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let answer = fixture.client.post("/mcp/mute", &hello).await?;
    ensure!(answer.status == 503 && answer.header("retry-after") == "2", "{answer:?}");
    let told = answer.json;
    ensure!(told["jsonrpc"] == "2.0" && told["error"]["code"] == -32000, "{told}");
    let message = told["error"]["message"].as_str().unwrap_or_default();
    ensure!(message == "the MCP server mute is starting; try again in a few seconds", "{told}");
    let disabled = fixture.client.post_empty("/v1/mcp/servers/mute/disable").await?;
    disabled.must(200)?;
    let answer = fixture.client.post("/mcp/mute", &hello).await?;
    ensure!(answer.status == 503 && answer.header("retry-after").is_empty(), "waiting does not help: {answer:?}");
    Ok(())
}

async fn calls_are_counted_in_the_metrics(fixture: &mut Fixture) -> Result<()> {
    fixture.start("small", &[]).await?;
    for _ in 0..2 {
        fixture.call("small__echo", json!({"text": "x"})).await?;
    }
    let answer = fixture.owner.get("/metrics").await?;
    ensure!(answer.status == 200, "{answer:?}");
    let text = answer.text();
    for line in [
        "strongbox_mcp_servers{status=\"connected\"} 1",
        "server=\"small\",outcome=\"ok\"} 2",
        "strongbox_mcp_call_duration_seconds_count 2",
    ] {
        ensure!(text.contains(line), "{line} is not in {text}");
    }
    Ok(())
}

async fn a_server_is_added_connected_and_called(fixture: &mut Fixture) -> Result<()> {
    let info = fixture.start("small", &["--noise"]).await?;
    ensure!(info["tools"] == TOOLS && info["source"] == "stored", "{info}");
    let runtime = &info["runtime_info"];
    let session = runtime["box_session_id"].as_str().unwrap_or_default().to_owned();
    ensure!(runtime["box_enabled"] == true && session.starts_with("mcp-shared"), "{info}");
    let client = Mcp::connect(&fixture.server, "/mcp").await?;
    ensure!(client.tools().await?.contains(&"small__echo".to_owned()));
    ensure!(client.call("small__echo", json!({"text": "grüße"})).await? == "grüße");
    ensure!(client.call("small__env", json!({"name": "KEY"})).await? == "sesame");
    let alone = Mcp::connect(&fixture.server, "/mcp/small").await?;
    ensure!(alone.call("echo", json!({"text": "x"})).await? == "x", "by its own names at its own address");
    for path in ["/v1/mcp/servers", "/v1/mcp/servers/small/logs", &format!("/v1/sessions/{session}/processes")] {
        let told = fixture.owner.get(path).await?.must(200)?.to_string();
        ensure!(!told.contains("sesame"), "a secret is shown at {path}");
    }
    ensure!(!fixture.server.log().contains("sesame"), "a secret is in the log");
    Ok(())
}

async fn servers_are_in_one_session_and_each_is_reached_by_its_name(fixture: &mut Fixture) -> Result<()> {
    let (one, two) = tokio::try_join!(fixture.start("one", &[]), fixture.start("two", &[]))?;
    let session = one["runtime_info"]["box_session_id"].clone();
    ensure!(session == two["runtime_info"]["box_session_id"], "{one} {two}");
    ensure!(fixture.owner.sessions().await?.len() == 1);
    let client = Mcp::connect(&fixture.server, "/mcp").await?;
    let (first, second) = (client.call("one__pid", json!({})).await?, client.call("two__pid", json!({})).await?);
    ensure!(first != second);
    fixture.client.delete("/v1/mcp/servers/one").await?.must(200)?;
    ensure!(client.call("two__pid", json!({})).await? == second, "the other one was disturbed");
    ensure!(client.call("one__pid", json!({})).await.is_err());
    fixture.client.delete("/v1/mcp/servers/two").await?.must(200)?;
    ensure!(fixture.owner.sessions().await?.is_empty(), "an unused session is kept");
    Ok(())
}

async fn a_large_result_arrives(fixture: &mut Fixture) -> Result<()> {
    fixture.start("small", &[]).await?;
    let bytes = 10 << 20;
    let told = fixture.call("small__big", json!({"bytes": bytes})).await?;
    ensure!(told.len() == bytes, "{} bytes", told.len());
    Ok(())
}

async fn many_calls_at_once_are_each_answered(fixture: &mut Fixture) -> Result<()> {
    fixture.start("small", &[]).await?;
    let clients = try_join_all((0..8).map(|_| Mcp::connect(&fixture.server, "/mcp"))).await?;
    let call = async |number: usize| {
        let client = &clients[number % clients.len()];
        let told = client.call("small__echo", json!({"text": number.to_string()})).await?;
        ensure!(told == number.to_string(), "{number} was answered with {told}");
        Ok(())
    };
    try_join_all((0..CALLS_AT_ONCE).map(call)).await?;
    Ok(())
}

async fn our_own_tools_are_a_server(fixture: &mut Fixture) -> Result<()> {
    let client = Mcp::connect(&fixture.server, "/mcp/box").await?;
    let tools = client.tools().await?;
    for tool in
        ["exec", "run_code", "read", "write", "edit", "glob", "grep", "activate", "session_list", "process_start"]
    {
        ensure!(tools.iter().any(|name| name == tool), "{tool} is not among {tools:?}");
    }
    let told = client.result("exec", json!({"command": "echo hello > file; cat file"})).await?;
    ensure!(told["structuredContent"]["stdout"].as_str().is_some_and(|text| text.contains("hello")), "{told}");
    client.result("run_code", json!({"code": "x = 41"})).await?;
    let code = "display({'image/png': b'png', 'text/plain': 'p'}, raw=True)\nx + 1";
    let shown = client.result("run_code", json!({"code": code})).await?;
    let content = &shown["structuredContent"];
    ensure!(content["text"] == "42" && content.get("images").is_none(), "names stay: {shown}");
    let image = &shown["content"][1];
    ensure!(image["type"] == "image" && image["mimeType"] == "image/png" && image["data"] == "cG5n", "{shown}");
    let failed = client.result("run_code", json!({"code": "1 / 0"})).await?;
    ensure!(failed["isError"] == true && failed.to_string().contains("ZeroDivisionError"), "{failed}");
    client.call("process_start", json!({"process_id": "cat", "command": "cat; echo bye"})).await?;
    client.call("process_input", json!({"process_id": "cat", "text": "word\n", "end": true})).await?;
    let said = crate::eventually("what the process says", || async {
        let said = client.result("process_output", json!({"process_id": "cat"})).await?["structuredContent"].clone();
        Ok((said["text"] == "word\nbye\n").then_some(said))
    });
    said.await?;
    client.call("session_end", json!({})).await?;
    ensure!(fixture.owner.sessions().await?.is_empty());
    Ok(())
}
