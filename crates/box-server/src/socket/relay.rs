//! The line relay of the old API, made for MCP over stdio: each message of the client becomes a line of standard input, each
//! line of standard output becomes a message.

use axum::extract::ws::{Message, WebSocket};
use box_core::call::{Cursor, FollowEvent, StdinChunk, StreamName};
use futures_util::{SinkExt, StreamExt};
use tokio_util::sync::CancellationToken;

use super::heartbeat::{Beat, Heartbeat, Pulse};
use super::lines::Lines;
use super::positions::{Held, Key, Relays};
use super::{End, Sink, Stream, close};
use crate::failure::Failure;
use crate::feed::{Feed, Inlet};

/// The right to relay one managed process, and what to do with it at the end.
pub(crate) struct Relay<'a> {
    relays: &'a Relays,
    key: Key,
    held: Held,
}

impl<'a> Relay<'a> {
    /// Takes a relay over from whoever has it.
    pub(crate) async fn take(relays: &'a Relays, key: Key, info: &box_core::call::ProcessInfo) -> Self {
        let held = relays.take(&key, info).await;
        Self { relays, key, held }
    }

    /// Where to go on.
    pub(crate) fn from(&self) -> Cursor {
        self.held.from()
    }
}

/// Relays until the process ends, the client leaves, somebody else attaches, or the server stops.
pub(crate) async fn relay<F: Feed, I: Inlet>(
    socket: WebSocket,
    mut feed: F,
    inlet: I,
    relay: Relay<'_>,
    closing: CancellationToken,
) {
    let (mut sink, mut stream) = socket.split();
    let pulse = Pulse::default();
    let end = tokio::select! {
        () = closing.cancelled() => End::STOPPING,
        () = relay.held.taken().cancelled() => End::TAKEN,
        end = speak(&mut sink, &mut feed, &relay.held, &pulse) => end,
        end = listen(&mut stream, &inlet, &pulse) => end,
    };
    if end == End::DONE {
        relay.relays.forget(&relay.key);
    }
    // The next one may begin before this one has said good-bye.
    drop((relay, feed));
    close(sink, stream, end).await;
}

/// Ends a relay that cannot begin. Nothing is said on it, because its client takes every message for one of the process.
pub(crate) async fn abandon(socket: WebSocket, failure: &Failure) {
    tracing::warn!(http.status = failure.status().as_u16(), error = failure.cause(), "a relay could not begin");
    let (sink, stream) = socket.split();
    close(sink, stream, End::FAILED).await;
}

async fn speak<F: Feed>(sink: &mut Sink, feed: &mut F, held: &Held, pulse: &Pulse) -> End {
    let mut heart = Heartbeat::new(pulse);
    let mut lines = Lines::default();
    loop {
        let event = tokio::select! {
            event = feed.next() => event,
            beat = heart.beat() => match beat {
                Beat::Ping if sink.send(Message::Ping(bytes::Bytes::new())).await.is_ok() => continue,
                Beat::Ping | Beat::Dead => return End::Gone,
            },
        };
        let told = match event {
            Ok(Some(event)) => tell(sink, &mut lines, held, &event).await,
            Ok(None) => return End::DONE,
            Err(error) => {
                tracing::warn!(error = %error, "a relay failed");
                return End::FAILED;
            }
        };
        match told {
            Ok(Some(end)) => return end,
            Ok(None) => {}
            Err(_) => return End::Gone,
        }
    }
}

async fn tell(
    sink: &mut Sink,
    lines: &mut Lines,
    held: &Held,
    event: &FollowEvent,
) -> Result<Option<End>, axum::Error> {
    match event {
        FollowEvent::Output { stream: StreamName::Stdout, bytes, cursor } => {
            for line in lines.push(bytes, cursor.stdout) {
                sink.send(Message::text(line.text)).await?;
                held.delivered(Cursor { stdout: line.next, ..*cursor });
            }
        }
        FollowEvent::Gap { stream: StreamName::Stdout, cursor, .. } => {
            lines.skip();
            held.delivered(*cursor);
        }
        FollowEvent::Output { .. } | FollowEvent::Gap { .. } => {}
        FollowEvent::Restarted { cursor } => {
            tell_rest(sink, lines).await?;
            held.delivered(*cursor);
        }
        FollowEvent::Ended { .. } => {
            tell_rest(sink, lines).await?;
            return Ok(Some(End::DONE));
        }
    }
    Ok(None)
}

async fn tell_rest(sink: &mut Sink, lines: &mut Lines) -> Result<(), axum::Error> {
    match lines.finish() {
        Some(rest) => sink.send(Message::text(rest)).await,
        None => Ok(()),
    }
}

async fn listen<I: Inlet>(stream: &mut Stream, inlet: &I, pulse: &Pulse) -> End {
    while let Some(message) = stream.next().await {
        pulse.hear();
        let text = match message {
            Ok(Message::Text(text)) => text,
            Ok(Message::Close(_)) => return End::Gone,
            Ok(_) => continue,
            Err(error) => return End::from_error(&error),
        };
        let line = [text.as_bytes(), b"\n"].concat();
        // A process that has ended is told by the other half; what it does not take any more is nobody's loss.
        if let Err(error) = pulse.busy(inlet.stdin(StdinChunk::Bytes(line))).await {
            tracing::debug!(error = %error, "a relay could not write");
        }
    }
    End::Gone
}
