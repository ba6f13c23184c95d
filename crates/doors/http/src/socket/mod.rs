//! WebSockets: the conversation with a command or managed process, the line relay, and connections to ports.

mod carry;
mod conversation;
mod heartbeat;
mod lines;
mod positions;
mod relay;
mod upgrade;

use std::error::Error as _;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Error as WireError;

pub use carry::carry;
pub use conversation::{converse, dismiss, refuse};
pub use positions::{Busy, Entry, Relays};
pub use relay::{Ends, Opening, RelaySlot, relay};
pub use upgrade::{Upgrade, open, open_tracked};

use crate::limits;

/// Our half of a connection.
pub type Sink = SplitSink<WebSocket, Message>;
/// Theirs.
pub type Stream = SplitStream<WebSocket>;

/// How a connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The client is gone, so it gets no message.
    Gone,
    /// With a code and a reason.
    Close(u16, &'static str),
}

impl End {
    /// It is over, as it should be.
    const DONE: Self = Self::Close(1000, "");
    /// The server stops; try again in a moment.
    const STOPPING: Self = Self::Close(1001, "the server stops");
    /// The client's message is invalid.
    const REFUSED: Self = Self::Close(1008, "refused; the message before says why");
    /// An internal error.
    const FAILED: Self = Self::Close(1011, "failed; the message before says why");
    /// Another client attached to the relay. A code of this server, which resembles 409.
    const TAKEN: Self = Self::Close(4409, "another client attached");

    /// The end that follows from what a client sent.
    pub fn from_error(error: &axum::Error) -> Self {
        match error.source().and_then(|source| source.downcast_ref::<WireError>()) {
            Some(WireError::Capacity(_)) => Self::Close(1009, "the message is too long"),
            Some(WireError::Utf8(_)) => Self::Close(1007, "a text message must be UTF-8"),
            Some(WireError::Protocol(_)) => Self::Close(1002, "this is not the WebSocket protocol"),
            _ => Self::Gone,
        }
    }
}

/// Says good-bye and waits a moment for the answer, so that nothing that was sent before gets lost.
pub async fn close(mut sink: Sink, mut stream: Stream, end: End) {
    let End::Close(code, reason) = end else { return };
    let farewell = async {
        let frame = CloseFrame { code, reason: reason.into() };
        if sink.send(Message::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = stream.next().await {}
        }
    };
    // A client that does not answer the close frame is disconnected.
    let _ = timeout(limits::CLOSE_TIME_MAX, farewell).await;
}

#[cfg(test)]
mod tests;
