//! An MCP server in a container, called while its engine is killed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use box_core::BackendName;
use box_tests::mcp::{Mcp, PendingCall, SCRIPT};
use box_tests::server::{ServerOptions, TestServer};
use box_tests::{engines, http};
use serde_json::{Value, json};

use crate::site::Site;

/// Pause between checks of a server, and their number before the test fails.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOKS_MAX: u32 = 1800;

/// Calls go on without the engine. If the engine ends its containers when it is back, waiting callers get an error, and
/// the server is started again by itself; if it keeps them, callers notice nothing.
pub(crate) async fn a_server_is_called_while_its_engine_is_killed(site: Arc<Site>) -> Result<()> {
    let server = TestServer::start_with(ServerOptions::configured(&config(&site))).await?;
    let rest = server.client()?;
    define(&rest).await?;
    let info = until(&rest, |info| info["status"] == "connected").await?;
    ensure!(info["runtime_info"]["box_enabled"] == true, "{info}");
    let client = Mcp::connect(&server, "/mcp").await?;
    let before = client.call("small__pid", json!({})).await?;
    let held = client.hold("small__hold", "held").await?;
    site.daemon.kill()?;
    ensure!(client.call("small__echo", json!({"text": "alone"})).await? == "alone", "a call without the engine");
    let daemon = Arc::clone(&site.daemon);
    tokio::task::spawn_blocking(move || daemon.rise()).await??;
    if site.daemon.backend() == BackendName::Podman {
        goes_on(&rest, &client, held, &before).await?;
    } else {
        comes_back(&rest, &client, held).await?;
    }
    rest.delete("/v1/mcp/servers/small").await?.must(200)?;
    ensure!(rest.sessions().await?.is_empty(), "an unused session is kept");
    server.finish().await
}

/// What `docker run` names is in the image, even where this machine has a directory of that name.
pub(crate) async fn an_imported_docker_run_is_started(site: Arc<Site>) -> Result<()> {
    let server = TestServer::start_with(ServerOptions::configured(&config(&site))).await?;
    let rest = server.client()?;
    let image = engines::image();
    let run = ["run", "-i", "--network", "none", "-w", "/tmp", "-e", "KEY=sesame", &image, "python3", "-c", SCRIPT];
    let document = json!({"mcpServers": {"small": {"command": "docker", "args": run}}});
    rest.post("/v1/mcp/import", &document).await?.must(200)?;
    let info = until(&rest, |info| info["status"] == "connected").await?;
    ensure!(info["definition"]["box"]["host_path_mode"] == "none", "{info}");
    let client = Mcp::connect(&server, "/mcp").await?;
    ensure!(client.call("small__env", json!({"name": "KEY"})).await? == "sesame");
    rest.delete("/v1/mcp/servers/small").await?.must(200)?;
    server.finish().await
}

fn config(site: &Site) -> String {
    let (backend, address, image) = (site.daemon.backend(), site.daemon.address(), engines::image());
    format!("backend = \"{backend}\"\n[{backend}]\naddress = \"{address}\"\nimage = \"{image}\"\npull = \"never\"\n")
}

async fn define(rest: &http::Client) -> Result<()> {
    let definition = json!({"command": "python3", "args": ["-c", SCRIPT], "box": {"network": "off"}});
    rest.request("PUT", "/v1/mcp/servers/small").json(&definition).send().await?.must(201).map(drop)
}

/// The container was kept: the call is answered by the process that it was sent to.
async fn goes_on(rest: &http::Client, client: &Mcp, held: PendingCall, before: &str) -> Result<()> {
    client.call("small__let_go", json!({})).await?;
    ensure!(held.text().await? == "held");
    ensure!(client.call("small__pid", json!({})).await? == before, "it was restarted");
    let info = until(rest, |info| info["status"] == "connected").await?;
    ensure!(info["runtime_info"]["retry_count"] == 0 && info["runtime_info"]["error_phase"].is_null(), "{info}");
    Ok(())
}

/// The container was ended: the call fails with a reason, and the same client can call again when the server has a new one.
async fn comes_back(rest: &http::Client, client: &Mcp, held: PendingCall) -> Result<()> {
    held.fails().await?;
    let trying = until(rest, |info| info["runtime_info"]["error_phase"] == "runtime").await?;
    ensure!(trying["runtime_info"]["retry_count"] == 1, "{trying}");
    let again = until(rest, |info| info["status"] == "connected").await?;
    ensure!(again["runtime_info"]["error_phase"].is_null(), "{again}");
    ensure!(client.call("small__echo", json!({"text": "back"})).await? == "back");
    Ok(())
}

/// Waits until the server stands in a way.
async fn until(rest: &http::Client, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    let mut last = Value::Null;
    for _ in 0..LOOKS_MAX {
        last = rest.get("/v1/mcp/servers/small").await?.must(200)?;
        if is_so(&last) {
            return Ok(last);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    bail!("it stands so: {last}")
}
