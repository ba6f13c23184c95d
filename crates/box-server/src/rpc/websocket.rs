//! Action RPC over WebSocket: one JSON text in each message.

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, StatusCode};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::connection::{Ear, Ended, Gone, Mouth, converse};
use super::handshake::{Newcomer, identify};
use super::joiner::Joiner;
use super::{Client, Connection, LangBot};
use crate::app::App;
use crate::gate::Peer;
use crate::limits;
use crate::observe::Verbatim;
use crate::socket::{End, Sink, Stream, close};

/// Opens a connection. Whoever may not come in is told so before there is a WebSocket, and in the words that clients know.
pub(crate) async fn open(
    State(app): State<App>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let client = match identify(&app, peer, &headers, Newcomer::Pin).await {
        Ok(client) => client,
        Err(unauthorized) => return unauthorized.into_response(),
    };
    let Ok(upgrade) = upgrade else {
        let message = "this path speaks WebSocket only; connect with a WebSocket client";
        return Verbatim::wrap((StatusCode::BAD_REQUEST, message).into_response());
    };
    let upgrade = upgrade.max_message_size(limits::RPC_MESSAGE_BYTES_MAX).max_frame_size(limits::RPC_MESSAGE_BYTES_MAX);
    let (tasks, abort, span) = (app.tasks().clone(), app.abort().clone(), tracing::Span::current());
    let (door, closing) = (app.langbot().clone(), app.closing().clone());
    upgrade.on_upgrade(move |socket| {
        let talk = talk(door, client, socket, closing).instrument(span);
        tasks.track_future(async move {
            // Whoever does not end in time is dropped.
            let _ = abort.run_until_cancelled(talk).await;
        })
    })
}

/// Answers until the client leaves or the server stops.
async fn talk(door: LangBot, client: Client, socket: WebSocket, closing: CancellationToken) {
    let (sink, stream) = socket.split();
    let is_legacy = client == Client::Legacy;
    let mut ear = Messages { stream, joiner: is_legacy.then(Joiner::default) };
    let mut mouth = Texts(sink);
    let reply_bytes_max = if is_legacy { limits::RPC_LEGACY_REPLY_BYTES_MAX } else { limits::RPC_MESSAGE_BYTES_MAX };
    let connection = Connection::new(client, reply_bytes_max);
    let end = tokio::select! {
        () = closing.cancelled() => End::Close(1001, "Box runtime shutting down"),
        ended = converse(&door, connection, &mut ear, &mut mouth) => match ended {
            Ended::Heard(end, _) => end,
            Ended::Gone => End::Gone,
        },
    };
    close(mouth.0, ear.stream, end).await;
}

/// Text messages of a client. Old ones cut theirs into several.
struct Messages {
    stream: Stream,
    joiner: Option<Joiner>,
}

impl Ear for Messages {
    type End = End;

    async fn hear(&mut self) -> Result<String, End> {
        loop {
            let text = match self.stream.next().await {
                Some(Ok(Message::Text(text))) => text.to_string(),
                // Answered below us. We send none: clients look after the connection themselves.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                Some(Ok(Message::Binary(_))) => return Err(End::Close(1003, "messages must be text")),
                Some(Ok(Message::Close(_))) | None => return Err(End::Gone),
                Some(Err(error)) => return Err(End::from_error(&error)),
            };
            let whole = match &mut self.joiner {
                Some(joiner) => joiner.push(text),
                None => Some(text),
            };
            if let Some(whole) = whole {
                return Ok(whole);
            }
        }
    }
}

/// Text messages to a client.
struct Texts(Sink);

impl Mouth for Texts {
    async fn say(&mut self, text: String) -> Result<(), Gone> {
        self.0.send(Message::text(text)).await.map_err(|_| Gone)
    }
}

#[cfg(test)]
mod tests;
