//! Answers as one JSON document, where a client accepts it.
//!
//! Some clients take no events at all, and some take events only up to a size. Progress and questions need a stream: a client
//! that accepts only JSON gets neither, and one that accepts both gets events as soon as something comes before the answer.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, to_bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::{SESSION_HEADER, refuse};
use crate::stdio::LINE_BYTES_MAX;

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
/// How long an answer is waited for before a client that accepts both gets events. Proxies commonly give up on a silent
/// request after a minute; events keep it alive.
const EVENTS_AFTER: Duration = Duration::from_secs(45);

/// Where a client of 2026-07-28 repeats which method it calls.
const METHOD_HEADER: &str = "mcp-method";
/// Longest error of rmcp, and longest ping.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Whether a client accepts JSON and no events.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepts.is_some_and(|accepts| accepts.contains(JSON) && !accepts.contains(EVENTS))
}

/// rmcp refuses who does not accept both.
pub(super) fn accept_events(headers: &mut HeaderMap) {
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
}

/// The answer at the end of a stream of events, without what comes before it.
pub(super) async fn collect(response: Response) -> Response {
    if !is_events(&response) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let mut events = Events::new(body);
    while let Some(message) = events.next().await {
        if is_answer(&message) {
            return as_json(parts, message);
        }
        events.read.clear();
    }
    refuse(StatusCode::BAD_GATEWAY, "the stream ended without an answer; try again")
}

/// The answer as JSON if nothing comes before it, else the stream as it is.
pub(super) async fn prefer(response: Response) -> Response {
    if !is_events(&response) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let mut events = Events::new(body);
    match tokio::time::timeout(EVENTS_AFTER, events.next()).await {
        Ok(Some(message)) if is_answer(&message) => as_json(parts, message),
        _ => Response::from_parts(parts, events.replay()),
    }
}

/// Whether a client of 2026-07-28 asks whether the server is there. That version has no such method and rmcp refuses it, but clients
/// such as FastMCP go on asking.
pub(super) fn is_ping(headers: &HeaderMap) -> bool {
    headers.get(METHOD_HEADER).is_some_and(|method| method == "ping") && !headers.contains_key(SESSION_HEADER)
}

/// Answers that it is.
pub(super) async fn pong(request: Request) -> Response {
    #[derive(Deserialize)]
    struct Ping {
        id: Value,
        method: String,
    }
    let body = to_bytes(request.into_body(), ERROR_BYTES_MAX).await.unwrap_or_default();
    match serde_json::from_slice::<Ping>(&body) {
        Ok(Ping { id, method }) if method == "ping" && (id.is_string() || id.is_number()) => {
            axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete"}})).into_response()
        }
        _ => refuse(StatusCode::BAD_REQUEST, "the body is not the ping that mcp-method announces"),
    }
}

/// An error of rmcp, which words some of them as plain text, as the JSON-RPC that clients read.
pub(super) async fn error(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with(JSON)) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, ERROR_BYTES_MAX).await.unwrap_or_default();
    let mut refusal = refuse(parts.status, &String::from_utf8_lossy(&text));
    refusal.headers_mut().extend(parts.headers.into_iter().filter(|(name, _)| name.as_ref() == Some(&header::ALLOW)));
    refusal
}

fn is_events(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with(EVENTS))
}

fn as_json(mut parts: http::response::Parts, message: Vec<u8>) -> Response {
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    (parts.status, parts.headers, message).into_response()
}

fn is_answer(message: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Message {
        result: Option<IgnoredAny>,
        error: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Message>(message).is_ok_and(|message| message.result.is_some() || message.error.is_some())
}

/// A stream of events that is read message by message. rmcp writes each message as one line.
struct Events {
    chunks: BodyDataStream,
    /// What was read since the last message, as it came.
    read: Vec<Bytes>,
    /// The rest of the last chunk, and the line that it belongs to.
    rest: Bytes,
    line: Vec<u8>,
}

impl Events {
    fn new(body: Body) -> Self {
        Self { chunks: body.into_data_stream(), read: Vec::new(), rest: Bytes::new(), line: Vec::new() }
    }

    /// The next message; none when the stream ends, or a line of it has no end.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                self.line.extend_from_slice(&self.rest.split_to(end + 1)[..end]);
                let line = std::mem::take(&mut self.line);
                // Events without data are for clients that lose the stream.
                if let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii).filter(|data| !data.is_empty())
                {
                    return Some(data.to_vec());
                }
            }
            self.line.extend_from_slice(&self.rest);
            self.rest = Bytes::new();
            if self.line.len() > LINE_BYTES_MAX {
                return None;
            }
            self.rest = self.chunks.next().await?.ok()?;
            self.read.push(self.rest.clone());
        }
    }

    /// The stream as if nothing of it had been read.
    fn replay(self) -> Body {
        Body::from_stream(stream::iter(self.read).map(Ok).chain(self.chunks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of events whose answer comes after a time.
    fn answered_after(seconds: u64) -> Response {
        let answer = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n";
        let late = stream::once(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok::<_, std::io::Error>(Bytes::from(answer))
        });
        let first = stream::iter([Ok(Bytes::from(": alive\n\n"))]);
        ([(header::CONTENT_TYPE, EVENTS)], Body::from_stream(first.chain(late))).into_response()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_takes_long_comes_as_events() {
        for (seconds, kind, body) in [
            (44, JSON, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"),
            (46, EVENTS, ": alive\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"),
        ] {
            let begun = tokio::time::Instant::now();
            let answer = prefer(answered_after(seconds)).await;
            assert_eq!(begun.elapsed().as_secs(), seconds.min(EVENTS_AFTER.as_secs()), "{seconds}");
            assert_eq!(answer.headers()[header::CONTENT_TYPE], kind, "{seconds}");
            let whole = to_bytes(answer.into_body(), ERROR_BYTES_MAX).await.unwrap();
            assert_eq!(whole, body, "{seconds}");
        }
    }
}
