//! The conversation with a command or managed process.
//!
//! Server to client: a binary message is output, its first byte the stream (1 standard output, 2 standard error). A
//! text message is JSON with a `type`: `started`, `gap`, `restarted`, `ended` or `error`; all except `error` have the
//! `cursor` behind them. A client that counts the bytes of output from there knows the cursor at any time, and can
//! attach again from it.
//!
//! Client to server: a binary message is standard input. A text message is JSON: `{"type": "stdin_end"}`,
//! `{"type": "resize", "rows": 24, "columns": 80}` or `{"type": "signal", "signal": "INT"}`.
//!
//! Output is read only as fast as the client takes it, and the client only as fast as the command takes its input.

use axum::extract::ws::{Message, WebSocket};
use box_core::call::{FollowEvent, StdinChunk, StreamName};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::heartbeat::{Beat, Heartbeat, Pulse};
use super::{End, Sink, Stream, close};
use crate::body::{self, Fields};
use crate::failure::Failure;
use crate::feed::{Feed, Inlet};
use crate::terminal::SizeBody;
use crate::{limits, signal};

/// Talks until the command ends, the client leaves, or the server stops. `first` is sent before everything else.
pub async fn converse<F: Feed, I: Inlet>(
    socket: WebSocket,
    mut feed: F,
    inlet: I,
    first: Value,
    closing: CancellationToken,
) {
    let (mut sink, mut stream) = socket.split();
    let pulse = Pulse::default();
    let (complain, mut complaints) = mpsc::channel(limits::SOCKET_NOTES_MAX);
    let end = tokio::select! {
        () = closing.cancelled() => End::STOPPING,
        end = speak(&mut sink, &mut feed, &mut complaints, &pulse, first) => end,
        end = listen(&mut stream, &inlet, &pulse, complain) => end,
    };
    drop((feed, inlet));
    close(sink, stream, end).await;
}

/// Tells a client why there is nothing to talk about.
pub async fn refuse(socket: WebSocket, failure: &Failure) {
    let (mut sink, stream) = socket.split();
    let end = if failure.status().is_server_error() { End::FAILED } else { End::REFUSED };
    if sink.send(complaint(failure)).await.is_ok() {
        close(sink, stream, end).await;
    }
}

/// Tells a client that the server stops before there was anything to talk about.
pub async fn dismiss(socket: WebSocket) {
    let (sink, stream) = socket.split();
    close(sink, stream, End::STOPPING).await;
}

async fn speak<F: Feed>(
    sink: &mut Sink,
    feed: &mut F,
    complaints: &mut mpsc::Receiver<Message>,
    pulse: &Pulse,
    first: Value,
) -> End {
    let mut heart = Heartbeat::new(pulse);
    if sink.send(Message::text(first.to_string())).await.is_err() {
        return End::Gone;
    }
    loop {
        let (messages, end) = tokio::select! {
            Some(complaint) = complaints.recv() => (vec![complaint], None),
            event = feed.next() => told(event),
            beat = heart.beat() => match beat {
                Beat::Ping => (vec![Message::Ping(Bytes::new())], None),
                Beat::Dead => return End::Gone,
            },
        };
        for message in messages {
            if sink.send(message).await.is_err() {
                return End::Gone;
            }
        }
        if let Some(end) = end {
            return end;
        }
    }
}

/// The messages for an event, and whether it was the last.
fn told(event: box_core::Result<Option<FollowEvent>>) -> (Vec<Message>, Option<End>) {
    let text = |value: Value| vec![Message::text(value.to_string())];
    match event {
        Ok(Some(FollowEvent::Output { stream, bytes, .. })) => (output(stream, &bytes), None),
        Ok(Some(FollowEvent::Gap { stream, bytes, cursor })) => {
            (text(json!({ "type": "gap", "stream": stream, "bytes": bytes, "cursor": cursor })), None)
        }
        Ok(Some(FollowEvent::Restarted { cursor })) => (text(json!({ "type": "restarted", "cursor": cursor })), None),
        Ok(Some(FollowEvent::Ended { info, cursor })) => {
            (text(json!({ "type": "ended", "exec": info, "cursor": cursor })), Some(End::DONE))
        }
        Ok(None) => (Vec::new(), Some(End::DONE)),
        Err(error) => (vec![complaint(&error.into())], Some(End::FAILED)),
    }
}

fn output(stream: StreamName, bytes: &[u8]) -> Vec<Message> {
    let number = match stream {
        StreamName::Stdout => 1,
        StreamName::Stderr => 2,
    };
    let message = |piece: &[u8]| Message::binary([&[number], piece].concat());
    bytes.chunks(limits::SOCKET_OUTPUT_BYTES_MAX).map(message).collect()
}

fn complaint(failure: &Failure) -> Message {
    if let Some(cause) = failure.cause() {
        tracing::error!(error = cause, "a conversation failed");
    }
    let mut value = serde_json::to_value(failure.body(None)).unwrap_or_default();
    value["type"] = "error".into();
    Message::text(value.to_string())
}

async fn listen<I: Inlet>(stream: &mut Stream, inlet: &I, pulse: &Pulse, complain: mpsc::Sender<Message>) -> End {
    while let Some(message) = stream.next().await {
        pulse.hear();
        let done = match message {
            Ok(Message::Binary(bytes)) => pulse.busy(write(inlet, bytes)).await,
            Ok(Message::Text(text)) => pulse.busy(obey(inlet, text.as_bytes())).await,
            Ok(Message::Ping(_) | Message::Pong(_)) => Ok(()),
            Ok(Message::Close(_)) => return End::Gone,
            Err(error) => return End::from_error(&error),
        };
        if let Err(failure) = done
            && complain.send(complaint(&failure)).await.is_err()
        {
            return End::Gone;
        }
    }
    End::Gone
}

async fn write<I: Inlet>(inlet: &I, bytes: Bytes) -> Result<(), Failure> {
    Ok(inlet.stdin(StdinChunk::Bytes(bytes.into())).await?)
}

/// A text message of a client.
#[derive(Debug, Deserialize)]
struct Command {
    #[serde(rename = "type", default, deserialize_with = "body::optional_text")]
    kind: Option<String>,
    #[serde(default)]
    signal: Value,
}

async fn obey<I: Inlet>(inlet: &I, text: &[u8]) -> Result<(), Failure> {
    let mut fields = Fields::from_json(text)?;
    let command: Command = fields.take()?;
    let size: SizeBody = fields.take()?;
    fields.finish()?;
    match command.kind.as_deref() {
        Some("stdin_end") => inlet.stdin(StdinChunk::End).await?,
        Some("resize") => inlet.resize(size.into_size()?).await?,
        Some("signal") => inlet.signal(signal::number(&command.signal)?).await?,
        _ => return Err(Failure::invalid("type", "the type of a message must be stdin_end, resize or signal")),
    }
    Ok(())
}
