//! Many servers at once.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use serde_json::json;

use crate::client::Mcp;
use crate::{Fixture, McpCase, cases};

/// Servers that run at once.
const SERVERS: usize = 20;

pub(crate) fn cases() -> Vec<McpCase> {
    cases![twenty_servers_run_at_once_and_leave_nothing]
}

async fn twenty_servers_run_at_once_and_leave_nothing(fixture: &mut Fixture) -> Result<()> {
    let fixture = &*fixture;
    let names: Vec<String> = (0..SERVERS).map(|number| format!("s{number}")).collect();
    let started = try_join_all(names.iter().map(|name| fixture.start(name, &[]))).await?;
    let sessions: BTreeSet<String> =
        started.iter().map(|info| info["runtime_info"]["box_session_id"].to_string()).collect();
    ensure!(sessions.len() == 1 && fixture.owner.sessions().await?.len() == 1, "they are in {sessions:?}");
    let client = Mcp::connect(&fixture.server, "/mcp").await?;
    let tools: BTreeSet<String> = client.tools().await?.into_iter().collect();
    ensure!(names.iter().all(|name| tools.contains(&format!("{name}__echo"))), "a server is not in the list");
    let each = started.first().and_then(|info| info["tools"].as_u64()).unwrap_or_default();
    ensure!(tools.len() as u64 == each * SERVERS as u64, "{} tools of {SERVERS} servers", tools.len());
    let pids = names.iter().map(|name| call_pid(&client, name));
    let pids: BTreeSet<String> = try_join_all(pids).await?.into_iter().collect();
    ensure!(pids.len() == SERVERS, "they are not {SERVERS} processes: {pids:?}");
    let removals =
        names.iter().map(async |name| fixture.client.delete(&format!("/v1/mcp/servers/{name}")).await?.must(200));
    try_join_all(removals).await?;
    ensure!(client.tools().await?.is_empty(), "tools of servers that are gone are listed");
    ensure!(fixture.owner.sessions().await?.is_empty(), "an unused session is kept");
    Ok(())
}

async fn call_pid(client: &Mcp, server: &str) -> Result<String> {
    client.call(&format!("{server}__pid"), json!({})).await
}
