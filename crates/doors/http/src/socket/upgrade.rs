//! Requests that become WebSockets.

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::response::Response;
use http::StatusCode;
use tracing::Instrument;

use crate::failure::Failure;
use crate::state::ServerState;

/// A handler gets an error instead of a WebSocket if the request is not an upgrade. It checks that last, so that a
/// plain request gets the same answer as one that could be upgraded.
pub type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

/// Turns a request into a WebSocket whose end the server waits for when it stops.
pub fn open<F: Future<Output = ()> + Send + 'static>(
    state: &ServerState,
    upgrade: Upgrade,
    message_bytes_max: usize,
    talk: impl FnOnce(WebSocket) -> F + Send + 'static,
) -> Result<Response, Failure> {
    let plain = |_| {
        let message = "this path speaks WebSocket only; connect with a WebSocket client";
        Failure::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message)
    };
    let upgrade = upgrade.map_err(plain)?.max_message_size(message_bytes_max).max_frame_size(message_bytes_max);
    Ok(open_tracked(state, upgrade, talk))
}

/// The same for a request that can become one.
pub fn open_tracked<F: Future<Output = ()> + Send + 'static>(
    state: &ServerState,
    upgrade: WebSocketUpgrade,
    talk: impl FnOnce(WebSocket) -> F + Send + 'static,
) -> Response {
    let (tasks, abort, span) = (state.tasks().clone(), state.abort().clone(), tracing::Span::current());
    upgrade.on_upgrade(move |socket| {
        let talk = talk(socket).instrument(span);
        tasks.track_future(async move {
            // What does not end in time is dropped.
            let _ = abort.run_until_cancelled(talk).await;
        })
    })
}
