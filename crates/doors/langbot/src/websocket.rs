//! Action RPC over WebSocket: one JSON text in each message.

mod long;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket};
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, StatusCode};
use tokio_util::sync::CancellationToken;

use super::connection::{Ended, Gone, MessageReader, MessageWriter, converse};
use super::handshake::{Newcomer, identify};
use super::reassembler::Reassembler;
use super::{Client, Connection, LangBot};
use crate::limits;
use door_http::gate::Peer;
use door_http::observe::Verbatim;
use door_http::socket::{End, Sink, Stream, Upgrade, close, open_tracked};
use long::Knowledge;

/// Opens a connection. A client without access is refused before the upgrade, in the words that clients know.
pub(super) async fn open(
    State(door): State<LangBot>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    let client = match identify(&door, peer, &headers, Newcomer::Pin).await {
        Ok(client) => client,
        Err(unauthorized) => return unauthorized.into_response(),
    };
    let Ok(upgrade) = upgrade else {
        let message = "this path speaks WebSocket only; connect with a WebSocket client";
        return Verbatim::wrap((StatusCode::BAD_REQUEST, message).into_response());
    };
    let upgrade = upgrade.max_message_size(limits::RPC_MESSAGE_BYTES_MAX).max_frame_size(limits::RPC_MESSAGE_BYTES_MAX);
    let closing = door.state().closing().clone();
    open_tracked(door.clone().state(), upgrade, |socket| talk(door, client, socket, closing))
}

/// Answers until the client leaves or the server stops.
async fn talk(door: LangBot, client: Client, socket: WebSocket, closing: CancellationToken) {
    let (sink, stream) = socket.split();
    let is_legacy = client == Client::Legacy;
    let knowledge = is_legacy.then(Knowledge::none);
    let mut incoming =
        Messages { stream, reassembler: is_legacy.then(Reassembler::default), knowledge: knowledge.clone() };
    let mut outgoing = Texts { sink, knowledge };
    let connection = Connection::new(client, limits::RPC_MESSAGE_BYTES_MAX);
    let end = tokio::select! {
        () = closing.cancelled() => End::Close(1001, "Box runtime shutting down"),
        ended = converse(&door, connection, &mut incoming, &mut outgoing) => match ended {
            Ended::Heard(end, _) => end,
            Ended::Gone => End::Gone,
        },
    };
    close(outgoing.sink, incoming.stream, end).await;
}

/// Text messages of a client. Old ones cut theirs into several.
struct Messages {
    stream: Stream,
    reassembler: Option<Reassembler>,
    knowledge: Option<Knowledge>,
}

impl MessageReader for Messages {
    type End = End;

    async fn read_message(&mut self) -> Result<String, End> {
        loop {
            let text = match self.stream.next().await {
                Some(Ok(Message::Text(text))) => text.to_string(),
                // The library answers it. We ping only before a long answer: clients check the connection themselves.
                Some(Ok(Message::Ping(_))) => continue,
                Some(Ok(Message::Pong(_))) => {
                    self.knowledge.iter().for_each(Knowledge::read);
                    continue;
                }
                Some(Ok(Message::Binary(_))) => return Err(End::Close(1003, "messages must be text")),
                Some(Ok(Message::Close(_))) | None => return Err(End::Gone),
                Some(Err(error)) => return Err(End::from_error(&error)),
            };
            let whole = match &mut self.reassembler {
                Some(reassembler) => reassembler.push(text),
                None => Some(text),
            };
            let is_answer = |text: &str| self.knowledge.as_ref().is_some_and(|knowledge| knowledge.takes(text));
            if let Some(whole) = whole.filter(|text| !is_answer(text)) {
                return Ok(whole);
            }
        }
    }
}

/// Text messages to a client.
struct Texts {
    sink: Sink,
    knowledge: Option<Knowledge>,
}

impl MessageWriter for Texts {
    async fn write_message(&mut self, text: String) -> Result<(), Gone> {
        let messages = match &self.knowledge {
            Some(knowledge) if text.len() > limits::RPC_LEGACY_MESSAGE_BYTES_MAX => {
                if let Some(question) = knowledge.question() {
                    for message in question {
                        self.sink.send(message).await.map_err(|_| Gone)?;
                    }
                    knowledge.learned().await;
                }
                knowledge.messages(text)
            }
            _ => vec![text],
        };
        for text in messages {
            self.sink.send(Message::text(text)).await.map_err(|_| Gone)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
