//! Messages as lines: the transport of every server that talks over its standard streams, and of our own when it does.
//!
//! Servers print what does not belong there: banners, log lines, logs in JSON. Such lines are skipped and counted, up to a bound at which
//! it is clear that nobody speaks MCP on the other side. A line that is too long is never kept; whoever waits for it is told.

mod lines;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use box_core::service::Buffered;
use rmcp::ErrorData;
use rmcp::model::{JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

use lines::{Line, Lines};

/// Longest message, in bytes. Results carry files as base64, so this is generous; it is also the most that one server can make us keep.
pub const LINE_BYTES_MAX: usize = 32 << 20;

/// Most lines in a row that are no message. A server that logs to its standard output stays far below; a program that is no server does not.
pub const GARBAGE_LINES_MAX: u64 = 100_000;

/// How many lines were no messages. Shared with whoever reports on the server.
#[derive(Debug, Clone, Default)]
pub struct Garbage(Arc<AtomicU64>);

impl Garbage {
    /// Lines skipped so far.
    pub fn lines(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A transport over any two streams, one message in JSON per line.
pub(crate) struct Stdio<R, W> {
    lines: Lines<R>,
    writer: Arc<Mutex<Option<W>>>,
    /// Messages of a batch that were not handed out yet.
    batch: VecDeque<serde_json::Value>,
    garbage: Garbage,
    garbage_in_a_row: u64,
}

impl<R, W> fmt::Debug for Stdio<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdio").field("garbage", &self.garbage).finish_non_exhaustive()
    }
}

impl<R: AsyncRead + Unpin, W> Stdio<R, W> {
    /// Reads messages from one stream and writes them to the other.
    pub(crate) fn new(reader: R, writer: W, garbage: Garbage) -> Self {
        Self {
            lines: Lines::new(reader, LINE_BYTES_MAX),
            writer: Arc::new(Mutex::new(Some(writer))),
            batch: VecDeque::new(),
            garbage,
            garbage_in_a_row: 0,
        }
    }

    /// Charges long messages to a tenant while they are read.
    pub(crate) fn charged(mut self, buffered: Option<Buffered>) -> Self {
        self.lines.charge(buffered);
        self
    }

    /// The next message; nothing when the stream ended, broke, or carries no messages.
    async fn next<M: DeserializeOwned + FromError>(&mut self) -> Option<M> {
        loop {
            if let Some(message) = self.batch.pop_front() {
                match serde_json::from_value(message) {
                    Ok(message) => return Some(message),
                    Err(_) => self.skip()?,
                }
                continue;
            }
            match self.lines.next().await.ok()? {
                Line::End => return None,
                Line::TooLong { id: Some(id) } => return Some(M::from_error(too_long(), id)),
                Line::Whole(line) if line.first() == Some(&b'{') => match serde_json::from_slice(line) {
                    Ok(message) => {
                        self.garbage_in_a_row = 0;
                        return Some(message);
                    }
                    Err(_) => self.skip()?,
                },
                Line::Whole(line) if line.first() == Some(&b'[') => match serde_json::from_slice(line) {
                    Ok(batch) => self.batch = batch,
                    Err(_) => self.skip()?,
                },
                Line::Whole([]) => {}
                Line::Whole(_) | Line::TooLong { id: None } => self.skip()?,
            }
        }
    }

    /// Counts a line that is no message. Nothing when there were too many.
    fn skip(&mut self) -> Option<()> {
        self.garbage.0.fetch_add(1, Ordering::Relaxed);
        self.garbage_in_a_row += 1;
        (self.garbage_in_a_row <= GARBAGE_LINES_MAX).then_some(())
    }
}

impl<Role, R, W> Transport<Role> for Stdio<R, W>
where
    Role: ServiceRole,
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<Role>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let writer = Arc::clone(&self.writer);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut writer = writer.lock().await;
            let writer = writer.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            writer.write_all(&line).await?;
            writer.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<Role>> {
        self.next().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        drop(self.writer.lock().await.take());
        Ok(())
    }
}

/// A message that tells a failure to whoever waits for the answer with this id.
trait FromError {
    fn from_error(error: ErrorData, id: i64) -> Self;
}

impl<Request, Response, Notification> FromError for JsonRpcMessage<Request, Response, Notification> {
    fn from_error(error: ErrorData, id: i64) -> Self {
        Self::error(error, Some(RequestId::Number(id)))
    }
}

fn too_long() -> ErrorData {
    let limit = LINE_BYTES_MAX >> 20;
    ErrorData::internal_error(
        format!("the answer was longer than {limit} MiB and was dropped; ask for less at once"),
        None,
    )
}

#[cfg(test)]
mod tests {
    use rmcp::RoleClient;
    use rmcp::model::ServerNotification;
    use tokio::io::{AsyncWriteExt, DuplexStream};

    use super::*;

    type Message = RxJsonRpcMessage<RoleClient>;

    fn pair() -> (DuplexStream, Stdio<DuplexStream, DuplexStream>, Garbage) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (unused, _) = tokio::io::duplex(1);
        let garbage = Garbage::default();
        (theirs, Stdio::new(ours, unused, garbage.clone()), garbage)
    }

    const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

    #[tokio::test]
    async fn noise_between_messages_is_skipped_and_counted() {
        let (mut theirs, mut stdio, garbage) = pair();
        let text = format!("Server is starting...\n\n{{\"level\":\"info\"}}\n\u{1b}[32mok\n{PING}\r\n");
        theirs.write_all(text.as_bytes()).await.unwrap();
        let message: Message = stdio.next().await.unwrap();
        assert!(matches!(message, JsonRpcMessage::Request(_)), "{message:?}");
        assert_eq!(garbage.lines(), 3);
    }

    #[tokio::test]
    async fn a_batch_is_taken_apart() {
        let (mut theirs, mut stdio, garbage) = pair();
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        theirs.write_all(format!("[{PING},7,{changed}]\n").as_bytes()).await.unwrap();
        assert!(matches!(stdio.next::<Message>().await, Some(JsonRpcMessage::Request(_))));
        let Some(JsonRpcMessage::Notification(second)) = stdio.next::<Message>().await else {
            panic!("no notification")
        };
        assert!(matches!(second.notification, ServerNotification::ToolListChangedNotification(_)));
        assert_eq!(garbage.lines(), 1);
    }

    #[tokio::test]
    async fn a_program_that_only_makes_noise_is_given_up() {
        let (mut theirs, mut stdio, garbage) = pair();
        let noise = tokio::spawn(async move { while theirs.write_all(b"y\n").await.is_ok() {} });
        assert!(stdio.next::<Message>().await.is_none());
        assert_eq!(garbage.lines(), GARBAGE_LINES_MAX + 1);
        drop(stdio);
        noise.await.unwrap();
    }

    #[tokio::test]
    async fn whoever_waits_for_an_answer_that_is_too_long_is_told() {
        let (mut theirs, ours) = tokio::io::duplex(1 << 16);
        let (_, mut stdio, _) = pair();
        stdio.lines = Lines::new(ours, 100);
        let long = "x".repeat(1000);
        let lines = format!("{{\"result\":{{\"text\":\"{long}\"}},\"jsonrpc\":\"2.0\",\"id\":7}}\n{PING}\n");
        theirs.write_all(lines.as_bytes()).await.unwrap();
        let Some(JsonRpcMessage::Error(error)) = stdio.next::<Message>().await else { panic!("no error") };
        assert_eq!(error.id, Some(RequestId::Number(7)));
        assert!(error.error.message.contains("32 MiB"), "{}", error.error.message);
        assert!(matches!(stdio.next::<Message>().await, Some(JsonRpcMessage::Request(_))));
    }

    #[tokio::test]
    async fn the_end_of_the_stream_is_the_end_even_in_the_middle_of_a_line() {
        let (mut theirs, mut stdio, _) = pair();
        theirs.write_all(&PING.as_bytes()[..10]).await.unwrap();
        drop(theirs);
        assert!(stdio.next::<Message>().await.is_none());
    }
}
