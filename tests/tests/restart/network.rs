//! What a box with a network must not reach, it does not reach after a restart either.

use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use box_tests::isolation::{self, UPSTREAM, UPSTREAM_PORT};
use box_tests::restart_server::{Client, Orders, StateDirectory};
use box_tests::suite::skip;
use serde_json::json;

/// An address that the host gets while no server runs.
const LATER: &str = "203.0.113.88";

/// With `pasta`, because there only the rules in the box know the host's addresses.
pub(crate) async fn an_address_that_the_host_got_meanwhile_is_closed(place: Arc<StateDirectory>) -> Result<()> {
    if !rustix::process::geteuid().is_root() || !isolation::network_is_isolated() {
        return skip("only root can give the host another address");
    }
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("config.toml");
    std::fs::write(&file, "network_method = \"pasta\"\n")?;
    let options = vec!["--config".to_owned(), file.display().to_string()];
    let orders = Orders { options, fault: None };
    let server = place.start_with(&orders).await?;
    server.client.create("a", &json!({ "network": "on" })).await?;
    ensure!(connects(&server.client, UPSTREAM, UPSTREAM_PORT).await?, "control: egress does not work");
    server.kill().await?;
    change_address("add")?;
    let listener = TcpListener::bind((LATER, 0)).context("listening on the new address")?;
    let server = place.start_with(&orders).await?;
    let reached = connects(&server.client, LATER, listener.local_addr()?.port()).await?;
    let goes_on = connects(&server.client, UPSTREAM, UPSTREAM_PORT).await?;
    change_address("delete")?;
    ensure!(!reached, "a box reaches the host by an address that it got while no server ran");
    ensure!(goes_on, "the way out is gone");
    server.kill().await
}

async fn connects(client: &Client, address: &str, port: u16) -> Result<bool> {
    let line = format!(
        "python3 -c 'import socket; socket.create_connection((\"{address}\", {port}), 5)' 2>/dev/null; echo $?"
    );
    Ok(client.said("a", &line).await? == "0")
}

fn change_address(verb: &str) -> Result<()> {
    let address = format!("{LATER}/32");
    let done = Command::new("ip").args(["address", verb, &address, "dev", "lo"]).status()?;
    ensure!(done.success(), "ip address {verb} {address} failed");
    Ok(())
}
