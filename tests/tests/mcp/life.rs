//! Servers that end, are slow, or are left alone, and what becomes of them.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::{Fixture, McpCase, cases, definition};

pub(crate) fn cases() -> Vec<McpCase> {
    cases![
        a_process_that_is_killed_is_started_again,
        a_server_that_is_killed_finds_its_process_again,
        a_box_that_dies_is_made_again,
        a_slow_start_is_waited_for,
        a_server_that_cannot_work_is_given_up_and_told_why,
        a_server_that_is_out_of_memory_says_so,
        a_disabled_server_has_no_process,
        servers_of_the_configuration_run_and_cannot_be_changed
            with "[mcp.servers.fixed]\ncommand = 'python3'\nargs = ['-c', 'import sys; sys.exit(5)']\nbox = { network = 'off' }\n",
    ]
}

async fn a_process_that_is_killed_is_started_again(fixture: &mut Fixture) -> Result<()> {
    let session = fixture.start("small", &[]).await?["runtime_info"]["box_session_id"].clone();
    let before = fixture.call("small__pid", json!({})).await?;
    ensure!(fixture.call("small__die", json!({"code": 7})).await.is_err(), "a call that was under way must fail");
    let trying = fixture.until("small", |info| info["runtime_info"]["error_phase"] == "runtime").await?;
    ensure!(trying["runtime_info"]["error_message"].as_str().is_some_and(|text| text.contains('7')), "{trying}");
    let again = fixture.connected("small").await?;
    ensure!(again["runtime_info"]["error_phase"].is_null() && again["runtime_info"]["box_session_id"] == session);
    ensure!(fixture.call("small__pid", json!({})).await? != before);
    let log = fixture.client.get("/v1/mcp/servers/small/logs").await?.must(200)?.to_string();
    ensure!(log.contains("the small server is up") && log.contains("keeper"), "{log}");
    Ok(())
}

async fn a_server_that_is_killed_finds_its_process_again(fixture: &mut Fixture) -> Result<()> {
    fixture.start("small", &[]).await?;
    let before = fixture.call("small__pid", json!({})).await?;
    fixture.server.restart().await?;
    fixture.client = fixture.server.client()?;
    let again = fixture.connected("small").await?;
    ensure!(again["runtime_info"]["retry_count"] == 0, "{again}");
    ensure!(fixture.call("small__pid", json!({})).await? == before, "it was restarted");
    ensure!(fixture.call("small__env", json!({"name": "KEY"})).await? == "sesame");
    fixture.client.post_empty("/v1/mcp/servers/small/restart").await?.must(200)?;
    fixture.connected("small").await?;
    ensure!(fixture.call("small__pid", json!({})).await? != before, "it was not restarted");
    Ok(())
}

async fn a_box_that_dies_is_made_again(fixture: &mut Fixture) -> Result<()> {
    let info = fixture.start("small", &[]).await?;
    let session = info["runtime_info"]["box_session_id"].as_str().context("no session")?.to_owned();
    fixture.owner.delete(&format!("/v1/sessions/{session}")).await?.must(200)?;
    fixture.until("small", |info| info["status"] != "connected").await?;
    fixture.connected("small").await?;
    ensure!(fixture.call("small__echo", json!({"text": "back"})).await? == "back");
    Ok(())
}

async fn a_slow_start_is_waited_for(fixture: &mut Fixture) -> Result<()> {
    let info = fixture.start("slow", &["--slow", "8"]).await?;
    ensure!(info["runtime_info"]["retry_count"] == 0, "{info}");
    Ok(())
}

async fn a_server_that_cannot_work_is_given_up_and_told_why(fixture: &mut Fixture) -> Result<()> {
    fixture.put("broken", &definition(&["--broken"])).await?;
    for count in 1..=3 {
        let trying = fixture.until("broken", |info| info["runtime_info"]["retry_count"] == count).await?;
        ensure!(trying["runtime_info"]["error_phase"] == "mcp_init", "{trying}");
    }
    let info = fixture.until("broken", |info| info["status"] == "error").await?;
    let runtime = &info["runtime_info"];
    ensure!(runtime["error_phase"] == "mcp_init" && runtime["retry_count"] == 3, "{info}");
    ensure!(runtime["error_message"].as_str().is_some_and(|text| text.contains("ended with 4")), "{info}");
    ensure!(runtime["stderr_tail"].to_string().contains("this server is broken"), "{info}");
    let mended = fixture.start("broken", &[]).await?;
    ensure!(mended["runtime_info"]["retry_count"] == 0 && mended["runtime_info"]["error_phase"].is_null(), "{mended}");
    let missing = json!({"command": "no-such-program", "box": {"network": "off"}});
    fixture.put("missing", &missing).await?;
    fixture.until("missing", |info| info["runtime_info"]["error_phase"] == "process_start").await?;
    Ok(())
}

async fn a_server_that_is_out_of_memory_says_so(fixture: &mut Fixture) -> Result<()> {
    let greedy = json!({
        "command": "python3", "args": ["-c", "x = b'x' * (1 << 30)"], "box": {"network": "off", "memory_mb": 64},
    });
    if !holds_memory(fixture).await? {
        return box_tests::suite::skip("nothing holds the memory of a box here".to_owned());
    }
    fixture.put("greedy", &greedy).await?;
    let info = fixture.until("greedy", |info| !info["runtime_info"]["error_message"].is_null()).await?;
    let told = info["runtime_info"]["error_message"].as_str().unwrap_or_default();
    ensure!(told.contains("ended with 137: its box ran out of memory") && told.contains("box.memory_mb"), "{info}");
    let report = fixture.owner.post("/v1/mcp/test", &greedy).await?.must(200)?;
    ensure!(report["runtime_info"]["error_message"].to_string().contains("ran out of memory"), "{report}");
    Ok(())
}

/// Whether boxes have a limit of memory that holds here.
async fn holds_memory(fixture: &Fixture) -> Result<bool> {
    let made = fixture.owner.create("probe", &json!({})).await?;
    fixture.owner.delete("/v1/sessions/probe").await?.must(200)?;
    let mut guarantees = made["guarantees"].as_array().into_iter().flatten();
    Ok(guarantees.any(|one| one["dimension"] == "memory" && one["level"] == "hard"))
}

async fn a_disabled_server_has_no_process(fixture: &mut Fixture) -> Result<()> {
    let info = fixture.start("small", &[]).await?;
    let session = info["runtime_info"]["box_session_id"].as_str().context("no session")?.to_owned();
    let disabled = fixture.client.post_empty("/v1/mcp/servers/small/disable").await?.must(200)?;
    ensure!(disabled["status"] == "disabled" && disabled["enabled"] == false, "{disabled}");
    let processes = fixture.owner.get(&format!("/v1/sessions/{session}/processes")).await?.must(200)?;
    ensure!(processes.as_array().is_some_and(Vec::is_empty), "{processes}");
    fixture.server.restart().await?;
    fixture.client = fixture.server.client()?;
    ensure!(fixture.show("small").await?["status"] == "disabled");
    fixture.client.post_empty("/v1/mcp/servers/small/enable").await?.must(200)?;
    fixture.connected("small").await?;
    Ok(())
}

async fn servers_of_the_configuration_run_and_cannot_be_changed(fixture: &mut Fixture) -> Result<()> {
    let info = fixture.until("fixed", |info| info["runtime_info"]["retry_count"] != 0).await?;
    ensure!(info["source"] == "config" && info["runtime_info"]["error_phase"] == "mcp_init", "{info}");
    fixture.client.delete("/v1/mcp/servers/fixed").await?.refused(409, "mcp_server_fixed")?;
    fixture.client.post_empty("/v1/mcp/servers/fixed/disable").await?.refused(409, "mcp_server_fixed")?;
    Ok(())
}
