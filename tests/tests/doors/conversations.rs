//! WebSockets to commands: both directions, terminals, coming back.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::socket::{Said, Socket};
use crate::{Door, DoorCase, cases};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![
        a_command_is_run_and_talked_to,
        a_terminal_has_the_size_that_it_is_told,
        a_signal_reaches_a_command_by_websocket,
        attaching_again_goes_on_where_one_stopped,
        many_may_listen_to_one_command,
        a_flood_arrives_whole,
    ]
}

async fn open(door: &Door, session: &str) -> Result<Socket> {
    Socket::open(door.server.url()?, &format!("/v1/sessions/{session}/exec/ws"), &[]).await
}

async fn a_command_is_run_and_talked_to(door: &mut Door) -> Result<()> {
    let mut socket =
        Socket::open(door.server.url()?, "/v1/sessions/new/exec/ws", &[("sec-websocket-protocol", "strongbox.v1")])
            .await?;
    ensure!(socket.protocol == "strongbox.v1");
    socket.text(json!({ "cmd": "echo warn >&2; cat; exit 5" }).to_string()).await?;
    let started = socket.told("started").await?;
    ensure!(started["cursor"] == "0.0.0" && started["exec"]["session_id"] == "new", "{started}");
    socket.bytes("hello\n").await?;
    socket.bytes(vec![0, 255, 10]).await?;
    socket.text(json!({ "type": "stdin_end" }).to_string()).await?;
    let (out, err, end) = socket.drain().await?;
    ensure!(out == b"hello\n\x00\xff\n" && err == b"warn\n", "{out:?} {err:?}");
    ensure!(end["exec"]["exit_code"] == 5 && end["cursor"] == "0.9.5", "{end}");
    ensure!(socket.next().await? == Said::Closed(Some(1000)));
    let mut socket = open(door, "new").await?;
    socket.text(json!({ "cmd": "cat", "stdin": "given" }).to_string()).await?;
    socket.told("started").await?;
    ensure!(socket.drain().await?.0 == b"given", "a body with input needs no more");
    Ok(())
}

async fn a_terminal_has_the_size_that_it_is_told(door: &mut Door) -> Result<()> {
    let mut socket = open(door, "one").await?;
    let line = "trap 'stty size' WINCH; stty size; echo ready; while :; do sleep 0.05; done";
    socket.text(json!({ "cmd": line, "tty": { "rows": 24, "columns": 80 } }).to_string()).await?;
    let exec = socket.told("started").await?["exec"]["exec_id"].as_str().context("an id")?.to_owned();
    ensure!(socket.until("ready").await?.contains("24 80"));
    socket.text(json!({ "type": "resize", "rows": 50, "columns": 132 }).to_string()).await?;
    socket.until("50 132").await?;
    let resized = door
        .client
        .post(&format!("/v1/sessions/one/execs/{exec}/resize"), &json!({ "rows": 10, "columns": 20 }))
        .await?;
    ensure!(resized.status == 204, "{resized:?}");
    socket.until("10 20").await?;
    // The terminal itself makes a signal of this byte.
    socket.bytes(vec![3]).await?;
    let (_, _, end) = socket.drain().await?;
    ensure!(end["exec"]["signal"] == 2 || end["exec"]["exit_code"] == 130, "{end}");
    Ok(())
}

async fn a_signal_reaches_a_command_by_websocket(door: &mut Door) -> Result<()> {
    let mut socket = open(door, "one").await?;
    socket
        .text(json!({ "cmd": "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done" }).to_string())
        .await?;
    socket.told("started").await?;
    socket.until("ready").await?;
    socket.text(json!({ "type": "signal", "signal": "INT" }).to_string()).await?;
    let (out, _, end) = socket.drain().await?;
    ensure!(out.ends_with(b"caught\n") && end["exec"]["exit_code"] == 9, "{end}");
    Ok(())
}

async fn attaching_again_goes_on_where_one_stopped(door: &mut Door) -> Result<()> {
    let url = door.server.url()?.to_owned();
    let mut socket = open(door, "one").await?;
    socket.text(json!({ "cmd": "while read line; do echo got $line; done; echo bye >&2" }).to_string()).await?;
    let exec = socket.told("started").await?["exec"]["exec_id"].as_str().context("an id")?.to_owned();
    let mut count = 0;
    for round in 0..5 {
        socket.bytes(format!("{round}\n")).await?;
        let seen = socket.until(&format!("got {round}\n")).await?;
        ensure!(seen == format!("got {round}\n"), "round {round}: {seen:?} is repeated or lost");
        count += seen.len();
        socket.vanish();
        socket = Socket::open(&url, &format!("/v1/sessions/one/execs/{exec}/ws?cursor=0.{count}.0"), &[]).await?;
        ensure!(socket.told("started").await?["cursor"] == format!("0.{count}.0"));
    }
    socket.text(json!({ "type": "stdin_end" }).to_string()).await?;
    let (out, err, end) = socket.drain().await?;
    ensure!(out.is_empty() && err == b"bye\n" && end["exec"]["exit_code"] == 0, "{end}");
    // Also what has ended can be attached to, from the start.
    let mut late = Socket::open(&url, &format!("/v1/sessions/one/execs/{exec}/ws"), &[]).await?;
    late.told("started").await?;
    ensure!(late.drain().await?.0.len() == count);
    Ok(())
}

async fn many_may_listen_to_one_command(door: &mut Door) -> Result<()> {
    let exec = door.client.start("one", "until [ -e /workspace/go ]; do sleep 0.01; done; seq 1000").await?;
    let path = format!("/v1/sessions/one/execs/{exec}/ws");
    let mut listeners = Vec::new();
    for _ in 0..5 {
        let mut socket = Socket::open(door.server.url()?, &path, &[]).await?;
        socket.told("started").await?;
        listeners.push(socket);
    }
    door.client.exec("one", "touch /workspace/go").await?;
    let expected: String = (1..=1000).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat();
    for mut socket in listeners {
        ensure!(socket.drain().await?.0 == expected.as_bytes());
    }
    Ok(())
}

async fn a_flood_arrives_whole(door: &mut Door) -> Result<()> {
    let mut socket = open(door, "one").await?;
    socket.text(json!({ "cmd": "seq 1000000 1999999" }).to_string()).await?;
    socket.told("started").await?;
    let (out, _, end) = socket.drain().await?;
    ensure!(out.len() == 8_000_000 && end["exec"]["stdout_bytes"] == 8_000_000, "{} {end}", out.len());
    ensure!(out.chunks(8).enumerate().all(|(index, line)| line == format!("{}\n", 1_000_000 + index).as_bytes()));
    Ok(())
}
