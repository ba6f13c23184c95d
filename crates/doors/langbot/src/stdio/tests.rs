//! Real lines through pipes of memory, to a door without boxes.

use std::sync::Arc;

use box_core::Store;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, DuplexStream, duplex};

use super::*;
use crate::LangBotConfig;
use door_http::testing::{MemoryStore, state};

async fn door(config: LangBotConfig) -> LangBot {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    LangBot::new(config, state(store).await)
}

/// Says everything, and gives the lines of the answer.
async fn said(input: &str) -> Vec<String> {
    let door = door(LangBotConfig::default()).await;
    let (ours, theirs) = duplex(1 << 20);
    let mut reader = BufReader::new(ours);
    let mut input = input.as_bytes();
    let asked = door.serve_stdio(&mut input, theirs, std::future::pending());
    let mut text = String::new();
    let read = async { reader.read_to_string(&mut text).await.unwrap() };
    tokio::join!(asked, read);
    text.lines().map(str::to_owned).collect()
}

fn seq_id(line: &str) -> i64 {
    serde_json::from_str::<Value>(line).unwrap()["seq_id"].as_i64().unwrap()
}

#[tokio::test]
async fn what_was_asked_before_the_end_is_answered_and_then_it_ends() {
    let lines = said(
        "{\"seq_id\": 7, \"action\": \"__ping\", \"data\": {}}\nnoise\n\n  {\"seq_id\": 8, \"action\": \"__ping\"}",
    )
    .await;
    let mut ids: Vec<i64> = lines.iter().map(|line| seq_id(line)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [7, 8]);
}

#[tokio::test]
async fn a_request_in_parts_is_one_request() {
    let message = json!({ "seq_id": 9, "action": "__ping", "data": { "text": "é\"\\".repeat(50_000) } }).to_string();
    let lines = said(&super::lines_of(&message).concat()).await;
    assert_eq!(lines.iter().map(|line| seq_id(line)).collect::<Vec<_>>(), [9]);
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_it() {
    let part = json!({ "type": "chunk_data", "data": "x".repeat(1 << 20) }).to_string() + "\n";
    let input = format!("{{\"type\": \"chunk_start\"}}\n{}{{\"action\": \"__ping\"}}\n", part.repeat(17));
    assert_eq!(said(&input).await, [""; 0]);
    let line = format!("{{\"action\": \"{}\"}}\n{{\"action\": \"__ping\"}}\n", "x".repeat(17 << 20));
    assert_eq!(said(&line).await, [""; 0]);
}

/// Reads lines until a message is complete.
async fn message(reader: &mut BufReader<DuplexStream>) -> (usize, String) {
    let (mut assembler, mut count) = (Assembler::default(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        assert!(line.len() < 65536, "{}", line.len());
        count += 1;
        if let Some(message) = assembler.push(line.as_bytes()).unwrap() {
            return (count, message);
        }
    }
}

#[tokio::test]
async fn a_long_reply_is_a_group_of_lines() {
    let (ours, theirs) = duplex(1 << 10);
    let text = json!({ "text": "é\"\\".repeat(50_000) }).to_string();
    let sent = text.clone();
    let writing = async move { Groups(theirs).write_message(sent).await };
    let mut reader = BufReader::new(ours);
    let (written, (count, read)) = tokio::join!(writing, message(&mut reader));
    assert_eq!((written, read == text), (Ok(()), true));
    assert!(count > 10, "{count}");
}

#[tokio::test]
async fn it_ends_when_the_server_does_and_when_nobody_takes_replies() {
    let door = door(LangBotConfig::default()).await;
    let (_ours, theirs) = duplex(64);
    let (read, write) = tokio::io::split(theirs);
    door.serve_stdio(read, write, std::future::ready(())).await;
    let (ours, theirs) = duplex(64);
    drop(ours);
    let endless = tokio::io::repeat(b'\n');
    let ping = AsyncReadExt::chain(&b"{\"action\": \"__ping\"}\n"[..], endless);
    door.serve_stdio(ping, theirs, std::future::pending()).await;
}

#[tokio::test]
async fn a_trusted_instance_makes_the_client_one_of_it() {
    let config = LangBotConfig { trusted_instance: Some("an-instance".into()), ..LangBotConfig::default() };
    assert!(door(config).await.trusted_instance().is_some());
    assert!(door(LangBotConfig::default()).await.trusted_instance().is_none());
}
