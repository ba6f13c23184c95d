//! Answers as one JSON document, for clients that accept no events.
//!
//! Progress and questions need a stream, so such a client gets neither: one that offers to answer questions must accept events.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::Value;

use super::refuse;
use crate::stdio::LINE_BYTES_MAX;

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// Whether a client accepts JSON and no events.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepts.is_some_and(|accepts| accepts.contains(JSON) && !accepts.contains(EVENTS))
}

/// rmcp refuses who does not accept both.
pub(super) fn accept_events(headers: &mut HeaderMap) {
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
}

/// The answer at the end of a stream of events. Everything else is passed on.
pub(super) async fn collect(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with(EVENTS)) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    match find_answer(body).await {
        Some(answer) => {
            parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
            (parts.status, parts.headers, answer.to_string()).into_response()
        }
        None => refuse(StatusCode::BAD_GATEWAY, "the stream ended without an answer; try again"),
    }
}

async fn find_answer(body: Body) -> Option<Value> {
    let mut chunks = body.into_data_stream();
    let mut line = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.ok()?;
        let mut rest = &chunk[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            line.extend_from_slice(&rest[..end]);
            if let Some(answer) = answer(&line) {
                return Some(answer);
            }
            line.clear();
            rest = &rest[end + 1..];
        }
        line.extend_from_slice(rest);
        if line.len() > LINE_BYTES_MAX {
            return None;
        }
    }
    None
}

/// The answer in one line of a stream, if it is there.
fn answer(line: &[u8]) -> Option<Value> {
    let message: Value = serde_json::from_slice(line.strip_prefix(b"data:")?).ok()?;
    let is_answer = message.get("result").is_some() || message.get("error").is_some();
    is_answer.then_some(message)
}
