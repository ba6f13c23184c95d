//! Changes of files as server-sent events, as fast as the reader takes them. Who is too slow is told that something was missed.

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use box_core::service::FileBytes;
use box_wire::file_op::{Change, ChangeKind};
use futures_util::stream;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::limits;
use door_http::failure::Failure;

/// Streams changes until the box ends, the reader goes or the server stops.
pub(super) fn respond(changes: FileBytes, closing: CancellationToken) -> Response {
    let state = Some((changes, closing, Some(told("watching", json!({})))));
    let events = stream::unfold(state, |state| async move {
        let (mut changes, closing, first) = state?;
        if let Some(first) = first {
            return Some((first, Some((changes, closing, None))));
        }
        let change = tokio::select! {
            () = closing.cancelled() => return None,
            change = changes.change() => change,
        };
        match change {
            Ok(Some(change)) => Some((written(&change), Some((changes, closing, None)))),
            Ok(None) => None,
            Err(error) => Some((failed(&error.into()), None)),
        }
    });
    let alive = KeepAlive::new().interval(limits::EVENTS_ALIVE_EVERY);
    // Proxies that collect what they pass on would turn a stream into one late answer.
    ([("x-accel-buffering", "no")], Sse::new(events).keep_alive(alive)).into_response()
}

type Written = Result<Event, axum::Error>;

fn told(name: &str, data: Value) -> Written {
    Event::default().event(name).json_data(data)
}

fn written(change: &Change) -> Written {
    told(name(change.what), json!({ "path": change.path, "is_directory": change.is_directory }))
}

fn name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Created => "created",
        ChangeKind::Written => "written",
        ChangeKind::Renamed | ChangeKind::Left | ChangeKind::Arrived => "renamed",
        ChangeKind::Attributes => "attributes",
        ChangeKind::Removed => "removed",
        ChangeKind::Missed => "missed",
    }
}

fn failed(failure: &Failure) -> Written {
    if let Some(cause) = failure.cause() {
        tracing::error!(error = cause, "watching files failed");
    }
    told("error", serde_json::to_value(failure.body(None)).unwrap_or_default())
}
