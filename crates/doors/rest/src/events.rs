//! Output as server-sent events. Text is told as text, and each event carries the cursor from which one can go on.

use std::collections::VecDeque;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use box_core::call::{Cursor, FollowEvent, StreamName};
use futures_util::stream;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::limits;
use door_http::failure::Failure;
use door_http::feed::{Feed, Line};

/// One event, before it is written down.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EventFrame {
    name: &'static str,
    /// Whoever goes on from here misses nothing and sees nothing twice.
    id: Option<Cursor>,
    data: Value,
}

/// Turns what is followed into events. A character whose bytes came in two pieces is told whole: its first bytes are held back
/// until the rest is there, and the cursor stays before them.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    at: Cursor,
}

impl Teller {
    /// Begins where the follower began.
    pub(crate) fn new(from: Cursor) -> Self {
        Self { at: from, ..Self::default() }
    }

    /// The events that say what happened. The end is not told here, because a result is more than an event knows.
    pub(crate) fn tell(&mut self, event: &FollowEvent) -> Vec<EventFrame> {
        match event {
            FollowEvent::Output { stream, bytes, cursor } => self.output(*stream, bytes, *cursor).into_iter().collect(),
            FollowEvent::Gap { stream, bytes, cursor } => {
                let mut told: Vec<_> = self.flush(*stream).into_iter().collect();
                self.at = *cursor;
                told.push(self.told("gap", json!({ "stream": stream, "bytes": bytes })));
                told
            }
            FollowEvent::Restarted { cursor } => {
                let mut told = self.flush_all();
                self.at = *cursor;
                told.push(self.told("restarted", json!({ "run": cursor.run })));
                told
            }
            FollowEvent::Ended { .. } => self.flush_all(),
        }
    }

    fn output(&mut self, stream: StreamName, bytes: &[u8], cursor: Cursor) -> Option<EventFrame> {
        let held = self.held(stream);
        held.extend_from_slice(bytes);
        let whole = std::mem::take(held);
        let keep = unfinished(&whole);
        *held = whole[whole.len() - keep..].to_vec();
        self.at = cursor;
        let ready = &whole[..whole.len() - keep];
        let end = position(cursor, stream).saturating_sub(keep as u64);
        (!ready.is_empty()).then(|| self.told("output", data(stream, ready, end)))
    }

    /// Tells what was held back, because the rest of it will not come.
    fn flush(&mut self, stream: StreamName) -> Option<EventFrame> {
        let bytes = std::mem::take(self.held(stream));
        let end = position(self.at, stream);
        (!bytes.is_empty()).then(|| self.told("output", data(stream, &bytes, end)))
    }

    fn flush_all(&mut self) -> Vec<EventFrame> {
        [StreamName::Stdout, StreamName::Stderr].into_iter().filter_map(|stream| self.flush(stream)).collect()
    }

    fn held(&mut self, stream: StreamName) -> &mut Vec<u8> {
        match stream {
            StreamName::Stdout => &mut self.stdout,
            StreamName::Stderr => &mut self.stderr,
        }
    }

    fn told(&self, name: &'static str, data: Value) -> EventFrame {
        let at = Cursor {
            stdout: self.at.stdout.saturating_sub(self.stdout.len() as u64),
            stderr: self.at.stderr.saturating_sub(self.stderr.len() as u64),
            ..self.at
        };
        EventFrame { name, id: Some(at), data }
    }
}

/// Bytes at the end that begin a character and do not finish it. What is no text anyway is not held back.
fn unfinished(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.len() - error.valid_up_to(),
        _ => 0,
    }
}

fn position(cursor: Cursor, stream: StreamName) -> u64 {
    match stream {
        StreamName::Stdout => cursor.stdout,
        StreamName::Stderr => cursor.stderr,
    }
}

fn data(stream: StreamName, bytes: &[u8], end: u64) -> Value {
    let offset = end.saturating_sub(bytes.len() as u64);
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "stream": stream, "offset": offset, "text": text }),
        Err(_) => json!({ "stream": stream, "offset": offset, "base64": STANDARD.encode(bytes) }),
    }
}

/// Streams everything from a cursor on, as fast as the reader takes it, until the end or until the server stops.
pub(crate) fn respond<F: Feed + 'static>(
    feed: F,
    line: Line,
    from: Cursor,
    first: Option<Value>,
    closing: CancellationToken,
) -> Response {
    let first = first.map(|data| EventFrame { name: "started", id: Some(from), data });
    let state =
        Stream { feed: Some(feed), line, teller: Teller::new(from), ready: first.into_iter().collect(), closing };
    let events = stream::unfold(state, |mut state| async move {
        let told = state.next().await?;
        Some((written(&told), state))
    });
    let alive = KeepAlive::new().interval(limits::EVENTS_ALIVE_EVERY);
    // Proxies that collect what they pass on would turn a stream into one late answer.
    ([("x-accel-buffering", "no")], Sse::new(events).keep_alive(alive)).into_response()
}

struct Stream<F> {
    feed: Option<F>,
    line: Line,
    teller: Teller,
    ready: VecDeque<EventFrame>,
    closing: CancellationToken,
}

impl<F: Feed> Stream<F> {
    async fn next(&mut self) -> Option<EventFrame> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                return Some(told);
            }
            let feed = self.feed.as_mut()?;
            let event = tokio::select! {
                () = self.closing.cancelled() => return None,
                event = feed.next() => event,
            };
            match event {
                Ok(Some(event)) => self.take(event).await,
                Ok(None) => self.feed = None,
                Err(error) => self.fail(&error.into()),
            }
        }
    }

    async fn take(&mut self, event: FollowEvent) {
        self.ready.extend(self.teller.tell(&event));
        if let FollowEvent::Ended { info, cursor } = event {
            let result = self.line.ending(&info).await;
            self.ready.push_back(EventFrame { name: "ended", id: Some(cursor), data: result });
            self.feed = None;
        }
    }

    fn fail(&mut self, failure: &Failure) {
        if let Some(cause) = failure.cause() {
            tracing::error!(error = cause, "a stream of events failed");
        }
        let data = serde_json::to_value(failure.body(None)).unwrap_or_default();
        self.ready.push_back(EventFrame { name: "error", id: None, data });
        self.feed = None;
    }
}

fn written(told: &EventFrame) -> Result<Event, axum::Error> {
    let event = Event::default().event(told.name);
    let event = told.id.map_or(event.clone(), |cursor| event.id(cursor.to_string()));
    event.json_data(&told.data)
}

#[cfg(test)]
mod tests;
