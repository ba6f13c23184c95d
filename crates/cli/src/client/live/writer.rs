//! What we say on a WebSocket: input, sizes, signals.

use std::future::pending;

use box_wire::WindowSize;
use futures_util::stream::SplitSink;
use futures_util::{Sink, SinkExt};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{self, Message};

use super::Finish;
use super::delivery::{Delivery, INPUT_END};
use crate::client::websocket::Socket;
use crate::stdio::Input;

/// Most input in one message.
const CHUNK_BYTES: usize = 64 << 10;

/// What we say.
#[derive(Debug)]
pub(super) struct MessageWriter {
    stdin: Input,
    /// Whether more input can come.
    is_open: bool,
    delivery: Delivery,
    detach_key: Option<u8>,
    buffer: Box<[u8]>,
}

impl MessageWriter {
    /// Says what comes from `stdin`.
    pub(super) fn new(stdin: Input, delivery: Delivery, detach_key: Option<u8>) -> Self {
        Self { stdin, is_open: true, delivery, detach_key, buffer: vec![0; CHUNK_BYTES].into() }
    }

    /// Says everything there is to say; returns when the key for that was typed. When nothing can be said any more, it is the
    /// listener who finds out why.
    pub(super) async fn write_messages(
        &mut self,
        mut sink: SplitSink<Socket, Message>,
        mut notes: mpsc::Receiver<Value>,
        mut resizes: mpsc::Receiver<WindowSize>,
    ) -> Finish {
        loop {
            tokio::select! {
                Some(note) = notes.recv() => send(&mut sink, Message::text(note.to_string())).await,
                Some(size) = resizes.recv() => {
                    let note = json!({ "type": "resize", "rows": size.rows, "columns": size.columns });
                    send(&mut sink, Message::text(note.to_string())).await;
                }
                count = self.stdin.read(&mut self.buffer), if self.is_open => {
                    self.delivery.send();
                    // Input that cannot be read has ended, too.
                    let count = count.unwrap_or(0);
                    let before_key = self.until_detach_key(count);
                    let bytes = self.buffer[..before_key.unwrap_or(count)].to_vec();
                    if count == 0 {
                        self.is_open = false;
                        send(&mut sink, Message::text(json!({ "type": "stdin_end" }).to_string())).await;
                        send(&mut sink, Message::Ping(INPUT_END.into())).await;
                    } else {
                        send(&mut sink, Message::binary(bytes)).await;
                    }
                    if before_key.is_some() {
                        return Finish::Detached;
                    }
                },
                else => pending().await,
            }
        }
    }

    fn until_detach_key(&self, count: usize) -> Option<usize> {
        let key = self.detach_key?;
        self.buffer[..count].iter().position(|byte| *byte == key)
    }
}

async fn send(sink: &mut (impl Sink<Message, Error = tungstenite::Error> + Unpin), message: Message) {
    if sink.send(message).await.is_err() {
        pending::<()>().await;
    }
}
