//! Databases of earlier schemas: a server starts on each, knows its tokens, and reports what became of its sessions.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use box_core::Store as _;
use box_store::SqliteStore;
use box_tests::restart_server::{Client, StateDirectory};
use hyper::StatusCode;
use rusqlite::Connection;
use serde_json::Value;

use crate::adoption::until;

/// A database of each schema, oldest first.
const FIXTURES: [&str; 8] = [
    include_str!("../../../crates/store/fixtures/schema-1.sql"),
    include_str!("../../../crates/store/fixtures/schema-2.sql"),
    include_str!("../../../crates/store/fixtures/schema-3.sql"),
    include_str!("../../../crates/store/fixtures/schema-4.sql"),
    include_str!("../../../crates/store/fixtures/schema-5.sql"),
    include_str!("../../../crates/store/fixtures/schema-6.sql"),
    include_str!("../../../crates/store/fixtures/schema-7.sql"),
    include_str!("../../../crates/store/fixtures/schema-8.sql"),
];

/// The instance in the fixtures.
const INSTANCE: &str = "0123456789abcdef";

/// Tokens in the fixtures, by number.
const ADMIN: u32 = 1;
const EXPIRED: u32 = 2;
const OF_ACME: u32 = 3;
const OF_A_PROFILE: u32 = 4;
const WITH_LISTS: u32 = 5;
const OF_A_SESSION: u32 = 7;

/// The fixtures have no boxes, so every session that ran is lost.
pub(crate) async fn a_server_starts_on_a_database_of_each_schema(place: Arc<StateDirectory>) -> Result<()> {
    for (schema, fixture) in (1..).zip(FIXTURES) {
        starts_on(&place, schema, fixture).await.with_context(|| format!("schema {schema}"))?;
    }
    Ok(())
}

async fn starts_on(place: &StateDirectory, schema: u32, fixture: &str) -> Result<()> {
    replace_store(place, fixture).await?;
    let server = place.start().await?;
    let client = &server.client;
    let refused = client.get("sessions").await?;
    ensure!(refused.status == StatusCode::UNAUTHORIZED, "without a token: {refused:?}");
    let refused = with(client, EXPIRED).get("sessions").await?;
    ensure!(refused.status == StatusCode::UNAUTHORIZED, "with an expired token: {refused:?}");
    sessions_are_lost(&with(client, ADMIN), schema).await?;
    ensure!(sessions(&with(client, OF_ACME)).await? == ["running"], "the sessions of another tenant");
    if schema >= 2 {
        with(client, OF_A_PROFILE).get("sessions").await?.good()?;
    }
    if schema >= 3 {
        let mut all = vec!["remote", "time"];
        all.extend((schema >= 7).then_some("image"));
        all.extend((schema >= 8).then_some("pinned"));
        all.sort_unstable();
        servers_are(&with(client, ADMIN), &all).await?;
        servers_are(&with(client, WITH_LISTS), &["time"]).await?;
    }
    if schema >= 5 {
        let templates = texts(&of_e2b(client, "/templates").await?, "templateID");
        ensure!(["t2", "t3"].iter().all(|id| templates.iter().any(|found| found == id)), "templates {templates:?}");
    }
    if schema >= 6 {
        let volumes = texts(&of_e2b(client, "/volumes").await?, "name");
        ensure!(volumes == ["data", "é"], "volumes {volumes:?}");
    }
    if schema >= 7 {
        ensure!(
            sessions(&with(client, OF_A_SESSION)).await? == ["running"],
            "sessions of a token that is bound to one"
        );
    }
    server.kill().await
}

/// Replaces the store by a fixture. The instance id stays, because directories of boxes are named by it.
async fn replace_store(place: &StateDirectory, fixture: &str) -> Result<()> {
    let path = place.state().join("strongbox.db");
    let instance = SqliteStore::open(&path)?.instance_id().await?;
    for suffix in ["", "-wal", "-shm"] {
        match fs::remove_file(format!("{}{suffix}", path.display())) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    // Made first, because a server refuses a file that others can write.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    Ok(Connection::open(&path)?.execute_batch(&fixture.replace(INSTANCE, &instance))?)
}

/// Sessions that ran or were paused are lost with a reason; those that were being made or removed are gone.
async fn sessions_are_lost(client: &Client, schema: u32) -> Result<()> {
    let mut expected = vec!["lost", "paused 用户", "running"];
    expected.extend((schema >= 8).then_some("earlier"));
    expected.sort_unstable();
    ensure!(sessions(client).await? == expected, "other sessions than {expected:?}");
    for info in client.get("sessions").await?.good()?.as_array().into_iter().flatten() {
        let reason = info["lost_reason"].as_str().unwrap_or_default();
        ensure!(info["state"] == "lost" && !reason.is_empty(), "{info}");
    }
    // Rows from before protocol versions were recorded.
    let older = if schema < 8 { "running" } else { "earlier" };
    let reason = client.session(older).await?["lost_reason"].to_string();
    ensure!(reason.contains("agent too old"), "lost for another reason: {reason}");
    Ok(())
}

async fn servers_are(client: &Client, expected: &[&str]) -> Result<()> {
    until(&format!("the MCP servers {expected:?}"), || async {
        let listed = client.get("mcp/servers").await?;
        Ok(listed.status == StatusCode::OK && texts(&listed.body, "name") == expected)
    })
    .await
}

async fn sessions(client: &Client) -> Result<Vec<String>> {
    Ok(texts(&client.get("sessions").await?.good()?, "session_id"))
}

async fn of_e2b(client: &Client, path: &str) -> Result<Value> {
    let key = format!("e2b_{ADMIN:012}{}", secret());
    client.http().request("GET", path).header("X-API-KEY", &key).send().await?.must(200)
}

fn with(client: &Client, token: u32) -> Client {
    client.with_token(&format!("sbx_{token:012}_{}", secret()))
}

/// The secret of every token in the fixtures.
fn secret() -> String {
    "5".repeat(64)
}

/// A field of each item of a list, sorted.
fn texts(listed: &Value, field: &str) -> Vec<String> {
    let items = listed.as_array().into_iter().flatten();
    let mut found: Vec<String> = items.filter_map(|item| item[field].as_str().map(str::to_owned)).collect();
    found.sort();
    found
}
