//! Servers that end, are slow, or are left alone, and what becomes of them.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::{House, McpCase, cases, definition};

pub(crate) fn cases() -> Vec<McpCase> {
    cases![
        a_process_that_is_killed_is_started_again,
        a_server_that_is_killed_finds_its_process_again,
        a_box_that_dies_is_made_again,
        a_slow_start_is_waited_for,
        a_server_that_cannot_work_is_given_up_and_told_why,
        a_disabled_server_has_no_process,
        servers_of_the_configuration_run_and_cannot_be_changed
            with "[mcp.servers.fixed]\ncommand = 'python3'\nargs = ['-c', 'import sys; sys.exit(5)']\nbox = { network = 'off' }\n",
    ]
}

async fn a_process_that_is_killed_is_started_again(house: &mut House) -> Result<()> {
    let session = house.start("small", &[]).await?["runtime_info"]["box_session_id"].clone();
    let before = house.call("small__pid", json!({})).await?;
    ensure!(house.call("small__die", json!({"code": 7})).await.is_err(), "a call that was under way must fail");
    let trying = house.until("small", |info| info["runtime_info"]["error_phase"] == "runtime").await?;
    ensure!(trying["runtime_info"]["error_message"].as_str().is_some_and(|text| text.contains('7')), "{trying}");
    let again = house.connected("small").await?;
    ensure!(again["runtime_info"]["error_phase"].is_null() && again["runtime_info"]["box_session_id"] == session);
    ensure!(house.call("small__pid", json!({})).await? != before);
    let log = house.client.get("/v1/mcp/servers/small/logs").await?.must(200)?.to_string();
    ensure!(log.contains("the small server is up") && log.contains("keeper"), "{log}");
    Ok(())
}

async fn a_server_that_is_killed_finds_its_process_again(house: &mut House) -> Result<()> {
    house.start("small", &[]).await?;
    let before = house.call("small__pid", json!({})).await?;
    house.server.restart().await?;
    house.client = house.server.client()?;
    let again = house.connected("small").await?;
    ensure!(again["runtime_info"]["retry_count"] == 0, "{again}");
    ensure!(house.call("small__pid", json!({})).await? == before, "it was started anew");
    ensure!(house.call("small__env", json!({"name": "KEY"})).await? == "sesame");
    house.client.post_empty("/v1/mcp/servers/small/restart").await?.must(200)?;
    house.connected("small").await?;
    ensure!(house.call("small__pid", json!({})).await? != before, "it was not started anew");
    Ok(())
}

async fn a_box_that_dies_is_made_again(house: &mut House) -> Result<()> {
    let info = house.start("small", &[]).await?;
    let session = info["runtime_info"]["box_session_id"].as_str().context("no session")?.to_owned();
    house.owner.delete(&format!("/v1/sessions/{session}")).await?.must(200)?;
    house.until("small", |info| info["status"] != "connected").await?;
    house.connected("small").await?;
    ensure!(house.call("small__echo", json!({"text": "back"})).await? == "back");
    Ok(())
}

async fn a_slow_start_is_waited_for(house: &mut House) -> Result<()> {
    let info = house.start("slow", &["--slow", "8"]).await?;
    ensure!(info["runtime_info"]["retry_count"] == 0, "{info}");
    Ok(())
}

async fn a_server_that_cannot_work_is_given_up_and_told_why(house: &mut House) -> Result<()> {
    house.put("broken", &definition(&["--broken"])).await?;
    for count in 1..=3 {
        let trying = house.until("broken", |info| info["runtime_info"]["retry_count"] == count).await?;
        ensure!(trying["runtime_info"]["error_phase"] == "mcp_init", "{trying}");
    }
    let info = house.until("broken", |info| info["status"] == "error").await?;
    let runtime = &info["runtime_info"];
    ensure!(runtime["error_phase"] == "mcp_init" && runtime["retry_count"] == 3, "{info}");
    ensure!(runtime["error_message"].as_str().is_some_and(|text| text.contains("ended with 4")), "{info}");
    ensure!(runtime["stderr_tail"].to_string().contains("this server is broken"), "{info}");
    let mended = house.start("broken", &[]).await?;
    ensure!(mended["runtime_info"]["retry_count"] == 0 && mended["runtime_info"]["error_phase"].is_null(), "{mended}");
    let missing = json!({"command": "no-such-program", "box": {"network": "off"}});
    house.put("missing", &missing).await?;
    house.until("missing", |info| info["runtime_info"]["error_phase"] == "process_start").await?;
    Ok(())
}

async fn a_disabled_server_has_no_process(house: &mut House) -> Result<()> {
    let info = house.start("small", &[]).await?;
    let session = info["runtime_info"]["box_session_id"].as_str().context("no session")?.to_owned();
    let disabled = house.client.post_empty("/v1/mcp/servers/small/disable").await?.must(200)?;
    ensure!(disabled["status"] == "disabled" && disabled["enabled"] == false, "{disabled}");
    let processes = house.owner.get(&format!("/v1/sessions/{session}/processes")).await?.must(200)?;
    ensure!(processes.as_array().is_some_and(Vec::is_empty), "{processes}");
    house.server.restart().await?;
    house.client = house.server.client()?;
    ensure!(house.show("small").await?["status"] == "disabled");
    house.client.post_empty("/v1/mcp/servers/small/enable").await?.must(200)?;
    house.connected("small").await?;
    Ok(())
}

async fn servers_of_the_configuration_run_and_cannot_be_changed(house: &mut House) -> Result<()> {
    let info = house.until("fixed", |info| info["runtime_info"]["retry_count"] != 0).await?;
    ensure!(info["source"] == "config" && info["runtime_info"]["error_phase"] == "mcp_init", "{info}");
    house.client.delete("/v1/mcp/servers/fixed").await?.refused(409, "mcp_server_fixed")?;
    house.client.post_empty("/v1/mcp/servers/fixed/disable").await?.refused(409, "mcp_server_fixed")?;
    Ok(())
}
