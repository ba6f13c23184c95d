//! A connection to a port of a box, as a WebSocket.
//!
//! A binary message is bytes as they are, in both directions. A text message is JSON: `{"type": "end"}` says that its sender will
//! send no more, while the other direction goes on. When both have said so, or one hangs up, it is over.

use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::heartbeat::{Beat, Heartbeat, Pulse};
use super::{End, Sink, Stream, close};
use crate::limits;

/// The message after the last input.
const END: &str = r#"{"type":"end"}"#;

/// Carries bytes until both have said everything, one is gone, or the server stops.
pub async fn carry(socket: WebSocket, port: impl AsyncRead + AsyncWrite, closing: CancellationToken) {
    let (mut sink, mut stream) = socket.split();
    let (reader, writer) = tokio::io::split(port);
    let (pulse, all_heard) = (Pulse::default(), CancellationToken::new());
    let end = tokio::select! {
        () = closing.cancelled() => End::STOPPING,
        end = speak(&mut sink, reader, &pulse, &all_heard) => end,
        end = listen(&mut stream, writer, &pulse, &all_heard) => end,
    };
    close(sink, stream, end).await;
}

/// Passes on what the service says, and then that it said everything.
async fn speak(
    sink: &mut Sink,
    mut reader: impl AsyncRead + Unpin,
    pulse: &Pulse,
    all_heard: &CancellationToken,
) -> End {
    let mut heart = Heartbeat::new(pulse);
    let mut chunk = vec![0; limits::SOCKET_OUTPUT_BYTES_MAX];
    let mut is_open = true;
    loop {
        let message = tokio::select! {
            read = reader.read(&mut chunk), if is_open => {
                // A box that breaks off has said all that it will.
                let count = read.unwrap_or(0);
                is_open = count > 0;
                if is_open { Message::Binary(Bytes::copy_from_slice(&chunk[..count])) } else { Message::text(END) }
            },
            () = all_heard.cancelled(), if !is_open => return End::DONE,
            beat = heart.beat() => match beat {
                Beat::Ping => Message::Ping(Bytes::new()),
                Beat::Dead => return End::Gone,
            },
        };
        if sink.send(message).await.is_err() {
            return End::Gone;
        }
    }
}

/// Passes on what the client says, and then that it said everything.
async fn listen(
    stream: &mut Stream,
    mut writer: impl AsyncWrite + Unpin,
    pulse: &Pulse,
    all_heard: &CancellationToken,
) -> End {
    while let Some(message) = stream.next().await {
        pulse.hear();
        match message {
            Ok(Message::Binary(_)) if all_heard.is_cancelled() => {}
            Ok(Message::Binary(bytes)) => {
                if pulse.busy(writer.write_all(&bytes)).await.is_err() {
                    // The service reads no more. Its remaining output is still sent.
                    all_heard.cancel();
                }
            }
            Ok(Message::Text(text)) if is_end(&text) => {
                // Whether the service hears of it shows in what it does.
                let _ = writer.shutdown().await;
                all_heard.cancel();
            }
            Ok(Message::Text(_)) => {
                return End::Close(1008, "a text message must be {\"type\":\"end\"}; send bytes as binary");
            }
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            Ok(Message::Close(_)) => return End::Gone,
            Err(error) => return End::from_error(&error),
        }
    }
    End::Gone
}

fn is_end(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| value["type"] == "end")
}
