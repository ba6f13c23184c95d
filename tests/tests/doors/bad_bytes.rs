//! What is too large, too slow or not the protocol: cut off in time, with little memory, and nothing is half made.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bad_input::{refused, unharmed};
use crate::socket::{Said, Socket};
use crate::{Door, DoorCase, cases};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![
        a_body_without_a_kind_or_too_large_is_refused,
        deep_and_wide_bodies_are_refused_without_much_memory,
        a_head_that_is_too_large_is_refused,
        a_head_that_dribbles_is_cut_off,
        what_is_no_http_is_refused,
        frames_that_are_too_large_end_the_conversation,
        frames_that_are_no_text_or_no_protocol_end_the_conversation,
        a_conversation_that_begins_wrongly_is_refused_in_words,
    ]
}

async fn a_body_without_a_kind_or_too_large_is_refused(door: &mut Door) -> Result<()> {
    let body = r#"{"cmd":"true"}"#;
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        let answer =
            door.client.request("POST", "/v1/sessions/one/exec").header("content-type", kind).body(body).send().await?;
        ensure!(answer.status == 415, "{kind:?}: {answer:?}");
    }
    // The length alone is enough to refuse: nothing of the body is waited for.
    let head = format!(
        "POST /v1/sessions/one/exec HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        door.server.address()?,
        (8 << 20) + 1
    );
    let said = say(door, head.as_bytes()).await?;
    ensure!(said.starts_with("HTTP/1.1 413") && said.contains("too_large"), "{said}");
    let chunked = format!(
        "POST /v1/sessions/one/exec HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        door.server.address()?
    );
    let mut bytes = chunked.into_bytes();
    for _ in 0..9 {
        bytes.extend_from_slice(b"100000\r\n");
        bytes.extend(std::iter::repeat_n(b' ', 1 << 20));
        bytes.extend_from_slice(b"\r\n");
    }
    let said = say(door, &bytes).await?;
    ensure!(said.starts_with("HTTP/1.1 413"), "{said}");
    unharmed(door, "a large body").await
}

async fn deep_and_wide_bodies_are_refused_without_much_memory(door: &mut Door) -> Result<()> {
    door.client.get("/healthz").await?;
    let before = door.server.resident_kb()?;
    let many: String = (0..100_000).map(|number| format!("\"k{number}\":1,")).collect::<Vec<_>>().concat();
    let digits = "9".repeat(4 << 20);
    let bodies = [
        "[".repeat(200_000),
        "{\"a\":".repeat(100_000),
        format!("{{\"env\":{}", "{\"a\":".repeat(100_000)),
        format!("{{{many}\"cmd\":\"x\"}}"),
        format!("{{\"cmd\":\"x\",\"memory_mb\":{digits}}}"),
        format!("{{\"cmd\":\"{}\"}}", "a".repeat(7 << 20)),
        format!("{{\"command\":[{}\"x\"]}}", "\"x\",".repeat(200_000)),
        format!(
            "{{\"cmd\":\"x\",\"env\":{{{}\"Z\":\"\"}}}}",
            (0..100_000).map(|n| format!("\"A{n}\":\"\",")).collect::<Vec<_>>().concat()
        ),
    ];
    for body in bodies {
        let what: String = body.chars().take(40).collect();
        refused(&what, &door.client.post_raw("/v1/sessions/one/exec", body).await?)?;
    }
    unharmed(door, "a deep body").await?;
    let grown = door.server.resident_kb()?.saturating_sub(before);
    ensure!(grown < 64 << 10, "the server grew by {grown} kB");
    Ok(())
}

/// Sends bytes and returns what comes back until the server hangs up, or has said all.
async fn say(door: &Door, bytes: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(door.server.address()?).await?;
    // The server may hang up before it has read all; what it said is still there.
    let _ = stream.write_all(bytes).await;
    let mut said = vec![0; 16 << 10];
    let count =
        tokio::time::timeout(Duration::from_secs(30), stream.read(&mut said)).await.context("no answer")?.unwrap_or(0);
    Ok(String::from_utf8_lossy(&said[..count]).into_owned())
}

async fn a_head_that_is_too_large_is_refused(door: &mut Door) -> Result<()> {
    let host = door.server.address()?;
    let heads = [
        format!("GET /v1/status HTTP/1.1\r\nHost: {host}\r\nX: {}\r\n\r\n", "a".repeat(100_000)),
        format!("GET /v1/status HTTP/1.1\r\nHost: {host}\r\n{}\r\n", "X: a\r\n".repeat(2000)),
        format!("GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n", "a".repeat(100_000)),
        format!("GET /v1/status HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\r\n", "A".repeat(100_000)),
    ];
    for head in heads {
        let said = say(door, head.as_bytes()).await?;
        let status = said.split(' ').nth(1).unwrap_or_default();
        ensure!(said.is_empty() || ["400", "414", "431"].contains(&status), "{said}");
        unharmed(door, "a large head").await?;
    }
    Ok(())
}

/// A byte now and then keeps a connection open for as long as a head may take, and no longer.
async fn a_head_that_dribbles_is_cut_off(door: &mut Door) -> Result<()> {
    let mut stream = TcpStream::connect(door.server.address()?).await?;
    stream.set_nodelay(true)?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nX: ").await?;
    let mut said = [0; 1024];
    let cut = async {
        loop {
            tokio::select! {
                read = stream.read(&mut said) => return read.unwrap_or(0),
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
            }
            if stream.write_all(b"a").await.is_err() {
                return 0;
            }
        }
    };
    let count = tokio::time::timeout(Duration::from_mins(1), cut).await.context("the connection stays open")?;
    let said = String::from_utf8_lossy(&said[..count]);
    ensure!(said.is_empty() || said.starts_with("HTTP/1.1 408"), "{said}");
    unharmed(door, "a dribble").await
}

async fn what_is_no_http_is_refused(door: &mut Door) -> Result<()> {
    let host = door.server.address()?;
    let table = [
        "\x16\x03\x01\x02\x00\x01".to_owned(),
        "hello\r\n\r\n".to_owned(),
        "GET /v1/status HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET /v1/status HTTP/1.1\r\nHost: {host}\r\nHost: evil\r\n\r\n"),
        format!("GET http://evil.example/v1/status HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("POST /v1/sessions/one HTTP/1.1\r\nHost: {host}\r\nContent-Length: -1\r\n\r\n"),
        format!("POST /v1/sessions/one HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}"),
        format!(
            "POST /v1/sessions/one HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
        ),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ];
    for bytes in table {
        let said = say(door, bytes.as_bytes()).await?;
        let status = said.split(' ').nth(1).unwrap_or_default();
        ensure!(said.is_empty() || status.starts_with('4'), "{bytes:?}: {said}");
        unharmed(door, &bytes).await?;
    }
    Ok(())
}

/// Opens a conversation with a command that repeats its input.
async fn conversation(door: &Door) -> Result<Socket> {
    let mut socket = Socket::open(door.server.url()?, "/v1/sessions/one/exec/ws", &[]).await?;
    socket.text(json!({ "cmd": "cat" }).to_string()).await?;
    socket.told("started").await?;
    Ok(socket)
}

/// Waits until the server closes.
async fn closed(socket: &mut Socket) -> Result<Option<u16>> {
    loop {
        match socket.next().await {
            Ok(Said::Closed(code)) => return Ok(code),
            Ok(_) => {}
            // The server hung up while we were still sending: that is an end, too.
            Err(_) => return Ok(None),
        }
    }
}

async fn frames_that_are_too_large_end_the_conversation(door: &mut Door) -> Result<()> {
    let mut socket = conversation(door).await?;
    let before = door.server.resident_kb()?;
    let _ = socket.bytes(vec![b'x'; (1 << 20) + 1]).await;
    let code = closed(&mut socket).await?;
    ensure!(matches!(code, Some(1009) | None), "{code:?}");
    // A length of 2^63-1, of which nothing follows.
    let mut socket = conversation(door).await?;
    let header = [&[0x82, 0xff], &(u64::MAX >> 1).to_be_bytes()[..], &[0; 4]].concat();
    socket.raw(&header).await?;
    ensure!(closed(&mut socket).await? == Some(1009));
    let mut socket = conversation(door).await?;
    // A message in pieces counts as a whole.
    for piece in 0..40 {
        let first: u8 = if piece == 0 { 0x02 } else { 0x00 };
        let frame = [&[first, 0xff][..], &(64_u64 << 10).to_be_bytes(), &[0; 4], &vec![0; 64 << 10]].concat();
        if socket.raw(&frame).await.is_err() {
            break;
        }
    }
    let code = closed(&mut socket).await?;
    ensure!(matches!(code, Some(1009) | None), "{code:?}");
    let grown = door.server.resident_kb()?.saturating_sub(before);
    ensure!(grown < 32 << 10, "the server grew by {grown} kB");
    ensure!(door.client.exec("one", "true").await?["exit_code"] == 0);
    Ok(())
}

async fn frames_that_are_no_text_or_no_protocol_end_the_conversation(door: &mut Door) -> Result<()> {
    let mask = [0; 4];
    let table: [(&str, Vec<u8>, u16); 6] = [
        ("a text that is not UTF-8", [&[0x81, 0x82][..], &mask, &[0xff, 0xfe]].concat(), 1007),
        ("a reserved opcode", [&[0x83, 0x80][..], &mask].concat(), 1002),
        ("a reserved bit", [&[0xc1, 0x80][..], &mask].concat(), 1002),
        ("a long ping", [&[0x89, 0xfe, 0x00, 0x7e][..], &mask, &[0; 126]].concat(), 1002),
        ("a ping in pieces", [&[0x09, 0x80][..], &mask].concat(), 1002),
        ("a continuation of nothing", [&[0x80, 0x80][..], &mask].concat(), 1002),
    ];
    for (what, frame, code) in table {
        let mut socket = conversation(door).await?;
        socket.raw(&frame).await?;
        let told = closed(&mut socket).await?;
        ensure!(told == Some(code), "{what}: {told:?}");
    }
    let mut socket = conversation(door).await?;
    // Unmasked, which no client may send.
    socket.raw(&[0x81, 0x01, b'x']).await?;
    ensure!(closed(&mut socket).await? == Some(1002));
    // A message that makes no sense is complained about, and the conversation goes on.
    let mut socket = conversation(door).await?;
    for text in [
        "no json",
        "{}",
        r#"{"type":"explode"}"#,
        r#"{"type":"resize","rows":0,"columns":1}"#,
        r#"{"type":"signal","signal":"NOPE"}"#,
        r#"{"type":"stdin_end","more":1}"#,
    ] {
        socket.text(text).await?;
        let complaint = socket.told("error").await.context(text)?;
        ensure!(complaint["error"]["code"] == "validation_error", "{text}: {complaint}");
    }
    socket.bytes("still here\n").await?;
    socket.until("still here\n").await?;
    Ok(())
}

async fn a_conversation_that_begins_wrongly_is_refused_in_words(door: &mut Door) -> Result<()> {
    for first in ["no json", "{}", r#"{"cmd":"x","memory_mb":1}"#, r#"{"cmd":"x","tty":{"rows":1}}"#] {
        let mut socket = Socket::open(door.server.url()?, "/v1/sessions/one/exec/ws", &[]).await?;
        socket.text(first).await?;
        let complaint = socket.told("error").await?;
        ensure!(complaint["error"]["code"] == "validation_error", "{first}: {complaint}");
        ensure!(closed(&mut socket).await? == Some(1008), "{first}");
        unharmed(door, first).await?;
    }
    let mut socket = Socket::open(door.server.url()?, "/v1/sessions/one/exec/ws", &[]).await?;
    socket.bytes("{}").await?;
    socket.told("error").await?;
    unharmed(door, "bytes instead of a text").await
}
