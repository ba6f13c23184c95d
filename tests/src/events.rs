//! Server-sent events, read one after the other from an open connection.

use std::collections::VecDeque;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use crate::http::Request;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// Its id: a cursor.
    pub id: String,
    /// What it says.
    pub data: Value,
}

impl Event {
    /// The bytes of an event that carries output.
    pub fn output(&self) -> Result<Vec<u8>> {
        match (self.data["text"].as_str(), self.data["base64"].as_str()) {
            (Some(text), None) => Ok(text.as_bytes().to_vec()),
            (None, Some(coded)) => Ok(STANDARD.decode(coded)?),
            _ => anyhow::bail!("an output event must have a text or base64: {}", self.data),
        }
    }
}

/// An open stream of events.
pub struct Events {
    body: Incoming,
    buffer: Vec<u8>,
    ready: VecDeque<Event>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Sends a request whose answer must be a stream of events.
    pub async fn open(request: Request) -> Result<Self> {
        let response = request.header("accept", "text/event-stream").open().await?;
        let kind = response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        ensure!(response.status() == 200 && kind.starts_with("text/event-stream"), "{}: {kind}", response.status());
        Ok(Self { body: response.into_body(), buffer: Vec::new(), ready: VecDeque::new() })
    }

    /// The next event; nothing when the stream has ended.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            self.buffer.extend_from_slice(frame?.data_ref().map_or(&[], |bytes| bytes));
            while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                self.ready.extend(parse(&String::from_utf8(block)?)?);
            }
        }
    }

    /// Everything until the end.
    pub async fn rest(mut self) -> Result<Vec<Event>> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await? {
            all.push(event);
        }
        Ok(all)
    }
}

/// Reads one block; comments are nothing.
fn parse(block: &str) -> Result<Option<Event>> {
    let field =
        |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.trim_start().to_owned());
    let Some(data) = field("data:") else { return Ok(None) };
    let data = serde_json::from_str(&data).with_context(|| format!("an event that is not JSON: {data}"))?;
    Ok(Some(Event { name: field("event:").unwrap_or_default(), id: field("id:").unwrap_or_default(), data }))
}
