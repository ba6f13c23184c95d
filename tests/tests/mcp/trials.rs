//! Tests of definitions: apart from everything that lives, and without a trace.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::{Fixture, McpCase, TOOLS, cases, definition};

pub(crate) fn cases() -> Vec<McpCase> {
    cases![a_test_tells_what_a_server_has_and_leaves_nothing, a_test_of_a_bad_definition_leaves_nothing]
}

async fn a_test_tells_what_a_server_has_and_leaves_nothing(fixture: &mut Fixture) -> Result<()> {
    fixture.start("small", &[]).await?;
    let before = fixture.call("small__pid", json!({})).await?;
    for path in ["/v1/mcp/test", "/v1/mcp/servers/small/test"] {
        let report = fixture.client.post(path, &definition(&["--slow", "1"])).await?.must(200)?;
        ensure!(report["ok"] == true && report["server_name"] == "small", "{report}");
        ensure!(report["tools"].as_array().is_some_and(|tools| tools.len() == TOOLS), "{report}");
        ensure!(report["tools"][0]["description"].as_str().is_some_and(|text| !text.is_empty()), "{report}");
    }
    ensure!(fixture.owner.sessions().await?.len() == 1, "a test left its session");
    ensure!(fixture.call("small__pid", json!({})).await? == before, "a test disturbed the server that runs");
    Ok(())
}

async fn a_test_of_a_bad_definition_leaves_nothing(fixture: &mut Fixture) -> Result<()> {
    let broken = fixture.owner.post("/v1/mcp/test", &definition(&["--broken"])).await?.must(200)?;
    ensure!(broken["ok"] == false && broken["runtime_info"]["error_phase"] == "mcp_init", "{broken}");
    ensure!(broken["runtime_info"]["stderr_tail"].to_string().contains("broken"), "{broken}");
    let missing = json!({"command": "no-such-program", "box": {"network": "off"}});
    let missing = fixture.owner.post("/v1/mcp/test", &missing).await?.must(200)?;
    ensure!(missing["runtime_info"]["error_phase"] == "process_start", "{missing}");
    let mute = definition(&["--mute"]);
    let mut mute = mute.clone();
    mute["box"]["startup_timeout_sec"] = json!(5);
    let mute = fixture.owner.post("/v1/mcp/test", &mute).await?.must(200)?;
    ensure!(mute["ok"] == false && mute["runtime_info"]["error_phase"] == "mcp_init", "{mute}");
    ensure!(fixture.owner.sessions().await?.is_empty(), "a test left its session");
    ensure!(fixture.client.get("/v1/mcp/servers").await?.must(200)?.as_array().is_some_and(Vec::is_empty));
    Ok(())
}
