//! A server that cannot make boxes: it serves all the same, says why, and recovers by itself.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{Door, DoorCase, case, eventually};

pub(crate) fn cases() -> Vec<DoorCase> {
    vec![
        case!(a_server_that_is_switched_off_says_so_and_makes_nothing).unready("enabled = false\n"),
        case!(a_backend_that_cannot_be_opened_is_tried_again_and_its_sessions_are_found),
    ]
}

async fn a_server_that_is_switched_off_says_so_and_makes_nothing(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let status = client.get("/v1/status").await?.must(200)?;
    ensure!(status["enabled"] == false && status["available"] == false, "{status}");
    ensure!(says(&status["reason"], "disabled") && says(&status["fix"], "enabled = true"), "{status}");
    ensure!(client.get("/v1/health").await?.must(200)?["available"] == false);
    let ready = client.get("/readyz").await?;
    ensure!(ready.status == 503 && ready.json["error"]["code"] == "disabled", "{ready:?}");
    ensure!(client.get("/healthz").await?.must(200)?["live"] == true, "the server itself is well");
    client.post("/v1/sessions/one", &json!({})).await?.refused(503, "disabled")?;
    client.get("/v1/sessions/one").await?.refused(503, "disabled")?;
    client.get("/v1/sessions").await?.refused(503, "disabled")?;
    client.post("/v1/sessions/one/exec", &json!({ "cmd": "true" })).await?.refused(503, "disabled")?;
    client.post("/v1/sessions/one/processes", &json!({ "command": "cat" })).await?.refused(503, "disabled")?;
    client.delete("/v1/sessions/one").await?.refused(503, "disabled")?;
    let errors = client.get("/v1/errors").await?.must(200)?;
    ensure!(errors[0]["code"] == "disabled" && errors[0]["at"].is_string(), "{errors}");
    let said = door.server.verb(&["status"], &[])?;
    ensure!(said.contains("disabled") && said.contains("enabled = true"), "{said}");
    let untouched = ["instances", "images", "disks", "journals"];
    let made = untouched.into_iter().find(|name| door.server.state().join(name).exists());
    ensure!(made.is_none(), "the backend was touched: {made:?}");
    Ok(())
}

fn says(value: &Value, words: &str) -> bool {
    value.as_str().is_some_and(|text| text.contains(words))
}

/// A file stands where the backend keeps its images. The server was killed before, so there is a box to be found again.
async fn a_backend_that_cannot_be_opened_is_tried_again_and_its_sessions_are_found(door: &mut Door) -> Result<()> {
    door.client.create("kept", &json!({})).await?;
    door.client.exec("kept", "echo here > /workspace/file").await?;
    door.server.kill_9()?;
    let images = door.server.state().join("images");
    let aside = door.server.state().join("images.aside");
    std::fs::rename(&images, &aside)?;
    std::fs::write(&images, "no directory")?;
    door.server.launch_unready().await?;
    door.client = door.server.client()?;
    let client = &door.client;
    let status = client.get("/v1/status").await?.must(200)?;
    ensure!(status["enabled"] == true && status["available"] == false, "{status}");
    ensure!(status["reason"].is_string() && says(&status["fix"], "strongbox doctor"), "{status}");
    let refused = client.get("/v1/sessions/kept").await?.refused(503, "backend_unavailable")?;
    ensure!(refused["hint"].is_string(), "{refused}");
    client.post("/v1/sessions/kept/exec", &json!({ "cmd": "true" })).await?.refused(503, "backend_unavailable")?;
    let findings = client.get("/v1/backend").await?.must(200)?;
    ensure!(findings["findings"][0]["name"] == "backend", "{findings}");
    std::fs::remove_file(&images)?;
    std::fs::rename(&aside, &images)?;
    eventually("a backend that is there", || async {
        let status = client.get("/v1/status").await?.must(200)?;
        Ok((status["available"] == true && status["reason"].is_null()).then_some(()))
    })
    .await?;
    let said = client.exec("kept", "cat /workspace/file").await?;
    ensure!(said["stdout"].as_str().context("no output")?.trim() == "here", "{said}");
    Ok(())
}
