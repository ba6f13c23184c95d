//! The line relay, made for MCP over stdio: each message of the client becomes a line of standard input, each line of standard
//! output becomes a message.

use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use box_core::call::{Cursor, FollowEvent, ProcessInfo, StdinChunk, StreamName};
use futures_util::{SinkExt, StreamExt};
use tokio_util::sync::CancellationToken;

use super::heartbeat::{Beat, Heartbeat, Pulse};
use super::lines::Lines;
use super::positions::{Busy, Entry, Key, RelayLease, Relays, Ticket, is_same};
use super::{End, Sink, Stream, close};
use crate::feed::{Feed, Inlet};
use crate::limits;

/// The server stops, in the words that LangBot's clients know.
const STOPPING: End = End::Close(1001, "Box runtime shutting down");
/// An internal error. No message precedes it, because the client takes every message for one of the process.
const FAILED: End = End::Close(1011, "the relay failed");
/// A waiting client sent more bytes than the server buffers.
const TOO_MUCH: End = End::Close(1009, "too much was sent while another client was attached");
/// The same, counted in messages.
const TOO_MANY: End = End::Close(1013, "too many messages were sent while another client was attached");

/// When a relay ends that could go on.
#[derive(Debug, Clone)]
pub struct Ends {
    /// The server stops.
    pub closing: CancellationToken,
    /// The right to relay is withdrawn. The client sees the same as when the process ends.
    pub withdrawn: CancellationToken,
}

impl Ends {
    async fn come(&self) -> End {
        tokio::select! {
            () = self.closing.cancelled() => STOPPING,
            () = self.withdrawn.cancelled() => End::DONE,
        }
    }
}

/// A place in the line for the relay of one managed process.
#[derive(Debug)]
pub struct RelaySlot {
    key: Key,
    ticket: Ticket,
    info: ProcessInfo,
}

impl RelaySlot {
    /// Joins the line, or returns why it may not.
    pub fn join(relays: &Relays, key: Key, info: ProcessInfo, entry: Entry) -> Result<Self, Busy> {
        let ticket = relays.join(&key, &info, entry)?;
        Ok(Self { key, ticket, info })
    }
}

/// Opens the output and input of a process, when it is a client's turn.
pub trait Opening: Send {
    /// The source of output.
    type Output: Feed;
    /// The target for input.
    type Input: Inlet;
    /// The process as it is now; nothing when it is gone.
    fn find(&self) -> impl Future<Output = Option<ProcessInfo>> + Send;
    /// Output from a cursor on, and input; nothing when the process is gone.
    fn open(self, from: Cursor) -> impl Future<Output = Option<(Self::Output, Self::Input)>> + Send;
}

/// Relays when it is the client's turn, until the process ends, the client leaves, another one takes over, or one of
/// `ends`.
pub async fn relay(socket: WebSocket, relays: &Relays, place: RelaySlot, opening: impl Opening, ends: Ends) {
    let (mut sink, mut stream) = socket.split();
    let pulse = Pulse::default();
    let end = attend(&mut sink, &mut stream, &pulse, (relays, place), opening, &ends).await;
    close(sink, stream, end).await;
}

/// Everything but the good-bye. The next one may begin before this one has said it.
async fn attend(
    sink: &mut Sink,
    stream: &mut Stream,
    pulse: &Pulse,
    (relays, mut place): (&Relays, RelaySlot),
    opening: impl Opening,
    ends: &Ends,
) -> End {
    let mut queued = Queued::default();
    let waited = tokio::select! {
        biased;
        end = ends.come() => Some(end),
        () = place.ticket.turn() => None,
        end = beat(sink, pulse) => Some(end),
        end = queue(stream, &mut queued, pulse) => Some(end),
    };
    if let Some(end) = waited {
        return end;
    }
    // It may have ended, or become another one, while this client waited.
    let Some(info) = opening.find().await.filter(|now| is_same(&place.info, now)) else { return End::DONE };
    let held = place.ticket.begin(&info);
    let opened = tokio::select! {
        end = ends.come() => return end,
        opened = opening.open(held.from()) => opened,
    };
    let Some((mut feed, inlet)) = opened else { return End::DONE };
    let end = tokio::select! {
        end = ends.come() => end,
        () = held.taken().cancelled() => End::TAKEN,
        end = speak(sink, &mut feed, &held, pulse) => end,
        end = listen(stream, queued, &inlet, pulse) => end,
    };
    if end == End::DONE {
        relays.forget(&place.key, &held);
    }
    end
}

/// Input that a client sent before its turn.
#[derive(Debug, Default)]
struct Queued {
    messages: Vec<Utf8Bytes>,
    bytes: usize,
}

impl Queued {
    /// Keeps a message for later, or says how it ends when that is too much.
    fn push(&mut self, text: Utf8Bytes) -> Result<(), End> {
        self.bytes += text.len();
        if self.bytes > limits::RELAY_QUEUED_BYTES_MAX {
            return Err(TOO_MUCH);
        }
        if self.messages.len() >= limits::RELAY_QUEUED_MAX {
            return Err(TOO_MANY);
        }
        self.messages.push(text);
        Ok(())
    }
}

/// Listens while it is not yet the client's turn.
async fn queue(stream: &mut Stream, queued: &mut Queued, pulse: &Pulse) -> End {
    loop {
        match heard(stream, pulse).await {
            Ok(text) => {
                if let Err(end) = queued.push(text) {
                    return end;
                }
            }
            Err(end) => return end,
        }
    }
}

/// Pings while there is nothing else to say.
async fn beat(sink: &mut Sink, pulse: &Pulse) -> End {
    let mut heart = Heartbeat::new(pulse);
    loop {
        match heart.beat().await {
            Beat::Ping if sink.send(Message::Ping(bytes::Bytes::new())).await.is_ok() => {}
            Beat::Ping | Beat::Dead => return End::Gone,
        }
    }
}

async fn speak<F: Feed>(sink: &mut Sink, feed: &mut F, held: &RelayLease, pulse: &Pulse) -> End {
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
                return FAILED;
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
    held: &RelayLease,
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

async fn listen<I: Inlet>(stream: &mut Stream, queued: Queued, inlet: &I, pulse: &Pulse) -> End {
    for text in queued.messages {
        write(inlet, &text, pulse).await;
    }
    loop {
        match heard(stream, pulse).await {
            Ok(text) => write(inlet, &text, pulse).await,
            Err(end) => return end,
        }
    }
}

/// The next text of the client, or how it ends. Bytes mean nothing here and are passed over.
async fn heard(stream: &mut Stream, pulse: &Pulse) -> Result<Utf8Bytes, End> {
    while let Some(message) = stream.next().await {
        pulse.hear();
        match message {
            Ok(Message::Text(text)) => return Ok(text),
            Ok(Message::Close(_)) => return Err(End::Gone),
            Ok(_) => {}
            Err(error) => return Err(End::from_error(&error)),
        }
    }
    Err(End::Gone)
}

async fn write<I: Inlet>(inlet: &I, text: &str, pulse: &Pulse) {
    let line = [text.as_bytes(), b"\n"].concat();
    // The reading half reports the end of the process, so input that the process no longer takes can be dropped.
    if let Err(error) = pulse.busy(inlet.stdin(StdinChunk::Bytes(line))).await {
        tracing::debug!(error = %error, "a relay could not write");
    }
}
