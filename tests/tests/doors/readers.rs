//! Clients that open a stream and never read it do not affect others.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::socket::Socket;
use crate::{Door, DoorCase, cases};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![readers_that_read_nothing_cost_nothing, connections_that_say_nothing_keep_nobody_out]
}

/// How much the server may grow.
const GROWTH_KB_MAX: u64 = 32 << 10;

async fn readers_that_read_nothing_cost_nothing(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("other", &json!({})).await?;
    let flood = client.start("flood", "head -c 400000000 /dev/zero").await?;
    let before = door.server.resident_kb()?;
    let base = format!("/v1/sessions/flood/execs/{flood}");
    let (mut streams, mut sockets) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        for end in ["events", "output"] {
            streams.push(client.request("GET", &format!("{base}/{end}")).open().await?);
        }
        sockets.push(Socket::open(door.server.url()?, &format!("{base}/ws"), &[]).await?);
    }
    for _ in 0..20 {
        ensure!(client.exec("other", "echo on").await?["stdout"] == "on\n");
    }
    let end = client.get(&format!("{base}/result")).await?.must(200)?;
    ensure!(end["exit_code"] == 0 && end["stdout_bytes"] == 400_000_000, "readers held the command up: {end}");
    let grown = door.server.resident_kb()?.saturating_sub(before);
    ensure!(grown < GROWTH_KB_MAX, "the server grew by {grown} kB");
    // They were there all the time.
    ensure!(streams.len() == 20 && sockets.len() == 10);
    Ok(())
}

async fn connections_that_say_nothing_keep_nobody_out(door: &mut Door) -> Result<()> {
    let address = door.server.address()?;
    let before = door.server.resident_kb()?;
    let mut silent = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(address).await.context("connecting")?;
        if number % 2 == 0 {
            stream.write_all(b"POST /v1/sessions/x/exec HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{").await?;
        }
        silent.push(stream);
    }
    ensure!(door.client.exec("one", "echo served").await?["stdout"] == "served\n");
    ensure!(door.client.sessions().await?.len() == 1, "half a request makes nothing");
    let grown = door.server.resident_kb()?.saturating_sub(before);
    ensure!(grown < GROWTH_KB_MAX, "the server grew by {grown} kB");
    drop(silent);
    Ok(())
}
