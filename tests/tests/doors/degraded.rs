//! A server that cannot make boxes: it serves all the same, says why, and recovers by itself.

use anyhow::{Context, Result, ensure};
use box_tests::server::ServerOptions;
use box_tests::{Case, TestServer};
use serde_json::{Value, json};

use crate::{Door, DoorCase, case, eventually, locks};

pub(crate) fn cases() -> Vec<DoorCase> {
    vec![
        case!(a_server_that_is_switched_off_says_so_and_makes_nothing).unready("enabled = false\n"),
        // Named, because with "auto" another backend of this machine would take its place.
        case!(a_backend_that_cannot_be_opened_is_tried_again_and_its_sessions_are_found)
            .configured("backend = \"native\"\n"),
        case!(a_forced_backend_that_is_not_there_is_refused_with_reason_and_fix_and_all_backends_are_listed)
            .unready("backend = \"docker\"\n[docker]\naddress = \"unix:///nonexistent/docker.sock\"\n"),
        case!(a_profile_can_name_a_backend_and_nothing_stands_in_for_it).configured(ELSEWHERE),
    ]
}

/// Cases that make something before their server starts.
pub(crate) fn own_servers() -> Vec<Case> {
    vec![
        Case::new("degraded/an_engine_that_says_nothing_is_told_as_that", an_engine_that_says_nothing),
        Case::new("degraded/a_machine_without_a_way_out_says_so_and_is_not_asked_again", a_machine_without_a_way_out),
    ]
}

/// The program that connects boxes to the network is not installed: the server reports that at its start, and a client
/// of E2B gets the fix and no hint to try again.
async fn a_machine_without_a_way_out() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return box_tests::suite::skip("only root can hide programs of the machine".to_owned());
    }
    let hidden_programs = &["pasta", "slirp4netns", "nft"];
    let options = ServerOptions { hidden_programs, ..ServerOptions::configured("backend = \"native\"\n") };
    let mut server = TestServer::start_with(options).await?;
    let (missing, mut server) =
        tokio::task::spawn_blocking(move || (server.says("Missing:     network"), server)).await?;
    let missing = missing?;
    ensure!(missing.contains("fix: ") && missing.contains("apt-get install passt"), "{missing}");
    let request = server.client()?.request("POST", "/v2/sandboxes").header("x-api-key", locks::KEY);
    let refused = request.json(&json!({ "templateID": "base" })).send().await?;
    ensure!(refused.status == 500 && refused.header("should-retry") == "false", "{refused:?}");
    ensure!(refused.text().contains("apt-get install passt"), "the fix is not named: {refused:?}");
    let made = server.client()?.create("offline", &json!({ "network": "off" })).await?;
    ensure!(made["state"] == "running", "{made}");
    ensure!(server.is_alive()?);
    server.finish().await
}

/// It accepts connections as a stopped daemon does, whose kernel goes on listening.
async fn an_engine_that_says_nothing() -> Result<()> {
    let place = tempfile::tempdir()?;
    let socket = place.path().join("engine.sock");
    let _engine = tokio::net::UnixListener::bind(&socket)?;
    let config = format!("backend = \"docker\"\n[docker]\naddress = \"unix://{}\"\n", socket.display());
    let options = ServerOptions { unready: true, ..ServerOptions::configured(&config) };
    let server = TestServer::start_with(options).await?;
    let client = server.client()?;
    let ready = client.get("/readyz").await?;
    ensure!(ready.status == 503 && ready.json["error"]["code"] == "backend_unavailable", "{ready:?}");
    let refused = client.post("/v1/sessions/one", &json!({})).await?.refused(503, "backend_unavailable")?;
    ensure!(says(&refused["message"], "no answer from unix://") && refused["hint"].is_string(), "{refused}");
    eventually("a reason", || async {
        let status = client.get("/v1/status").await?.must(200)?;
        Ok(says(&status["reason"], "no answer from unix://").then_some(()))
    })
    .await?;
    server.finish().await
}

/// Boxes are native, except those of a profile whose engine is not running.
const ELSEWHERE: &str = "backend = \"native\"\n[docker]\naddress = \"unix:///nonexistent/docker.sock\"\n\
    [profiles.elsewhere]\nbackend = \"docker\"\n";

async fn a_forced_backend_that_is_not_there_is_refused_with_reason_and_fix_and_all_backends_are_listed(
    door: &mut Door,
) -> Result<()> {
    let client = &door.client;
    let status = client.get("/v1/status").await?.must(200)?;
    ensure!(status["backend"] == "docker" && status["available"] == false, "{status}");
    ensure!(status["reason"].is_string() && status["fix"].is_string(), "{status}");
    let refused = client.post("/v1/sessions/one", &json!({})).await?.refused(503, "backend_unavailable")?;
    ensure!(says(&refused["message"], "docker") && refused["hint"].is_string(), "{refused}");
    ensure!(client.get("/v1/sessions/one").await?.status == 404, "no other backend stands in for it");
    let backends = client.get("/v1/backends").await?.must(200)?;
    let named = |name: &str| backends.as_array().into_iter().flatten().find(|one| one["name"] == name);
    let docker = named("docker").context("docker is not listed")?;
    ensure!(
        docker["chosen"] == true && docker["available"] == false && docker["reason"] == status["reason"],
        "{docker}"
    );
    for name in ["native", "podman", "nsjail"] {
        let other = named(name).with_context(|| format!("{name} is not listed"))?;
        ensure!(other["chosen"] == false && other["available"].is_null(), "it was not left alone: {other}");
    }
    Ok(())
}

async fn a_profile_can_name_a_backend_and_nothing_stands_in_for_it(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let refused = client.post("/v1/sessions/one", &json!({ "profile": "elsewhere" })).await?;
    let refused = refused.refused(503, "backend_unavailable")?;
    ensure!(says(&refused["message"], "the docker backend"), "{refused}");
    let made = client.create("two", &json!({})).await?;
    ensure!(made["backend_name"] == "native", "{made}");
    ensure!(client.get("/v1/status").await?.must(200)?["available"] == true);
    Ok(())
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
