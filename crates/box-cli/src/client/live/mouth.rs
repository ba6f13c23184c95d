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
use crate::client::websocket::Socket;
use crate::stdio::Input;

/// Most input in one message.
const CHUNK_BYTES: usize = 64 << 10;

/// What we say.
#[derive(Debug)]
pub(super) struct Mouth {
    stdin: Input,
    /// Whether more input can come.
    is_open: bool,
    /// Whether bytes were taken from our input that nobody may have got.
    is_unsure: bool,
    detach_key: Option<u8>,
    buffer: Box<[u8]>,
}

impl Mouth {
    /// Says what comes from `stdin`.
    pub(super) fn new(stdin: Input, detach_key: Option<u8>) -> Self {
        Self { stdin, is_open: true, is_unsure: false, detach_key, buffer: vec![0; CHUNK_BYTES].into() }
    }

    /// Whether a lost connection may have cost input. What is typed on a terminal is seen to be missing, and typed again.
    pub(super) fn may_have_lost_input(&self) -> bool {
        self.is_unsure && !rustix::termios::isatty(rustix::stdio::stdin())
    }

    /// Says everything there is to say; returns when the key for that was typed. When nothing can be said any more, it is the
    /// listener who finds out why.
    pub(super) async fn speak(
        &mut self,
        mut sink: SplitSink<Socket, Message>,
        mut notes: mpsc::Receiver<Value>,
        mut resizes: mpsc::Receiver<WindowSize>,
    ) -> Finish {
        loop {
            let message = tokio::select! {
                Some(note) = notes.recv() => Message::text(note.to_string()),
                Some(size) = resizes.recv() => {
                    Message::text(json!({ "type": "resize", "rows": size.rows, "columns": size.columns }).to_string())
                }
                count = self.stdin.read(&mut self.buffer), if self.is_open => match count {
                    // Input that cannot be read has ended, too.
                    Ok(0) | Err(_) => {
                        self.is_open = false;
                        Message::text(json!({ "type": "stdin_end" }).to_string())
                    }
                    Ok(count) => match self.until_detach_key(count) {
                        Some(before) => {
                            send(&mut sink, Message::binary(self.buffer[..before].to_vec())).await;
                            return Finish::Detached;
                        }
                        None => Message::binary(self.buffer[..count].to_vec()),
                    },
                },
                else => pending().await,
            };
            self.is_unsure |= message.is_binary();
            send(&mut sink, message).await;
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
