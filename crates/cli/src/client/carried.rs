//! A connection of this machine, carried to a port of a box over a WebSocket. What is said on it is described in docs/ports.md.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use super::websocket::Socket;
use crate::fault::Fault;

/// How much travels in one message.
const CHUNK_BYTES: usize = 64 << 10;

/// How long the server may be silent: it pings twice a minute.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// What says that nothing more will be sent.
const END: &str = r#"{"type":"end"}"#;

/// Carries bytes until both sides have said everything, or one is gone.
pub(crate) async fn carry(stream: impl AsyncRead + AsyncWrite, socket: Socket) -> Result<(), Fault> {
    let (reader, writer) = tokio::io::split(stream);
    let (sink, messages) = socket.split();
    let (said, heard) = (speak(reader, sink), hear(messages, writer));
    tokio::pin!(said, heard);
    tokio::select! {
        // The server hangs up when both sides have said everything.
        heard = &mut heard => heard,
        said = &mut said => {
            // Held until then: closing it would end what still comes.
            let _sink = said?;
            heard.await
        }
    }
}

/// Passes on what comes from here, and then that nothing more will.
async fn speak(
    mut reader: impl AsyncRead + Unpin,
    mut sink: SplitSink<Socket, Message>,
) -> Result<SplitSink<Socket, Message>, Fault> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        // Whoever breaks off here has said all that they will.
        let count = reader.read(&mut chunk).await.unwrap_or(0);
        let message = if count == 0 { Message::text(END) } else { Message::binary(chunk[..count].to_vec()) };
        sink.send(message).await.map_err(|error| lost(&error.to_string()))?;
        if count == 0 {
            return Ok(sink);
        }
    }
}

/// Passes on what comes from the box, until the server hangs up.
async fn hear(mut messages: SplitStream<Socket>, mut writer: impl AsyncWrite + Unpin) -> Result<(), Fault> {
    let mut has_ended = false;
    loop {
        let next = tokio::time::timeout(SILENCE_MAX, messages.next()).await;
        match next.map_err(|_| lost("it is silent"))? {
            Some(Ok(Message::Binary(bytes))) => {
                if writer.write_all(&bytes).await.is_err() {
                    // Nobody is here to be told.
                    return Ok(());
                }
            }
            Some(Ok(Message::Text(text))) if is_end(&text) => {
                has_ended = true;
                if writer.shutdown().await.is_err() {
                    return Ok(());
                }
            }
            Some(Ok(Message::Close(frame))) => {
                let reason = frame.map_or_else(String::new, |frame| frame.reason.to_string());
                return if has_ended { Ok(()) } else { Err(lost(&reason)) };
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None if has_ended => return Ok(()),
            Some(Err(error)) => return Err(lost(&error.to_string())),
            None => return Err(lost("it was closed")),
        }
    }
}

fn is_end(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| value["type"] == "end")
}

fn lost(reason: &str) -> Fault {
    let reason: String = reason.chars().filter(|c| !c.is_control()).take(200).collect();
    Fault::new(format!("the connection to the server was lost: {reason}")).code("unreachable")
}
