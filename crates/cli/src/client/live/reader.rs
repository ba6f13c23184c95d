//! What we hear on a WebSocket: output, and how things stand.

use std::io;
use std::time::Duration;

use box_core::call::{Cursor, ExecInfo, Target};
use futures_util::StreamExt;
use futures_util::stream::SplitStream;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;

use super::delivery::{Delivery, INPUT_END};
use super::{Break, Finish};
use crate::client::failure::Failure;
use crate::client::waiting::Waiting;
use crate::client::websocket::Socket;
use crate::fault::{self, Fault};
use crate::stdio::Output;
use crate::table::visible;

/// A server pings every 30 seconds; one that is silent for three times that is gone.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// What we hear.
#[derive(Debug)]
pub(super) struct MessageReader {
    stdout: Option<Output>,
    stderr: Output,
    /// What is being heard, once it is known.
    pub(super) target: Option<Target>,
    /// Up to where it was shown.
    pub(super) cursor: Cursor,
    /// Shown until something is heard.
    pub(super) waiting: Option<Waiting>,
    /// Whether our input has arrived.
    input: Delivery,
    /// The last complaint of the server, in case that nothing comes after it.
    complaint: Option<Fault>,
}

/// What to do after something was heard.
enum Heard {
    /// Listen on.
    More,
    /// It was the end.
    Last(Finish),
}

impl MessageReader {
    /// Shows standard output, if at all, and standard error.
    pub(super) fn new(
        (stdout, stderr): (Option<Output>, Output),
        input: Delivery,
        target: Option<Target>,
        cursor: Cursor,
    ) -> Self {
        Self { stdout, stderr, target, cursor, waiting: None, input, complaint: None }
    }

    /// Listens until the end.
    pub(super) async fn read_messages(&mut self, mut stream: SplitStream<Socket>) -> Result<Finish, Break> {
        loop {
            let next = tokio::time::timeout(SILENCE_MAX, stream.next()).await;
            let message = match next {
                Err(_) => return Err(self.lost("it is silent")),
                Ok(None) => return Err(self.lost("it was closed")),
                Ok(Some(Err(error))) => return Err(self.lost(&error.to_string())),
                Ok(Some(Ok(message))) => message,
            };
            let heard = match message {
                Message::Binary(bytes) => self.output(&bytes).await,
                Message::Text(text) => self.event(&text)?,
                Message::Close(frame) => {
                    let reason = frame.map_or_else(|| "it was closed".to_owned(), |frame| visible(&frame.to_string()));
                    return Err(self.lost(&reason));
                }
                Message::Pong(payload) if payload == INPUT_END => {
                    self.input.arrive();
                    Heard::More
                }
                _ => Heard::More,
            };
            if let Heard::Last(finish) = heard {
                return Ok(finish);
            }
        }
    }

    fn lost(&mut self, reason: &str) -> Break {
        self.complaint.take().map_or_else(|| Break::Lost(reason.to_owned()), Break::Fault)
    }

    /// Writes what the other end wrote.
    async fn output(&mut self, message: &[u8]) -> Heard {
        self.waiting = None;
        let (sink, position, bytes) = match message {
            [1, bytes @ ..] => (self.stdout.as_mut(), &mut self.cursor.stdout, bytes),
            [2, bytes @ ..] => (Some(&mut self.stderr), &mut self.cursor.stderr, bytes),
            // A stream that we do not know is of a later version.
            _ => return Heard::More,
        };
        if let Some(sink) = sink
            && write(sink, bytes).await.is_err()
        {
            return Heard::Last(Finish::OutputClosed);
        }
        *position += bytes.len() as u64;
        Heard::More
    }

    fn event(&mut self, text: &str) -> Result<Heard, Fault> {
        let unreadable =
            |error: &dyn std::fmt::Display| Fault::new(format!("the server said what cannot be read: {error}"));
        let mut event: Value = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
        self.waiting = None;
        if let Some(cursor) = event["cursor"].as_str() {
            self.cursor = cursor.parse()?;
        }
        match event["type"].as_str() {
            Some("started") => self.started(&event),
            Some("gap") => {
                let (bytes, stream) =
                    (event["bytes"].as_u64().unwrap_or(0), visible(event["stream"].as_str().unwrap_or("output")));
                fault::say(&format!("{bytes} bytes of {stream} are not kept any more and were left out"));
            }
            Some("restarted") => fault::say("the process was started again"),
            Some("ended") => {
                let info: ExecInfo =
                    serde_json::from_value(event["exec"].take()).map_err(|error| unreadable(&error))?;
                return Ok(Heard::Last(Finish::Ended(Box::new(info))));
            }
            Some("error") => self.complain(event)?,
            // What we do not know is of a later version.
            _ => {}
        }
        Ok(Heard::More)
    }

    fn started(&mut self, event: &Value) {
        if self.target.is_none() {
            self.target = event["exec"]["exec_id"].as_str().and_then(|id| id.parse().ok()).map(Target::Exec);
        }
    }

    /// A complaint before anything was started is the end. A later one may be about one thing that was asked.
    fn complain(&mut self, event: Value) -> Result<(), Fault> {
        let failure: Result<Failure, _> = serde_json::from_value(event);
        let fault = failure
            .map_or_else(|_| Fault::new("the server complained in a way that cannot be read"), Failure::into_fault);
        if self.target.is_none() {
            return Err(fault);
        }
        fault::say(&fault.message);
        self.complaint = Some(fault);
        Ok(())
    }
}

async fn write(sink: &mut Output, bytes: &[u8]) -> io::Result<()> {
    sink.write_all(bytes).await?;
    sink.flush().await
}
