//! A command or process at the other end of a WebSocket, with our own streams as its streams.
//!
//! What both sides say is described in docs/rest.md. When the connection breaks, the output goes on from where it was on a
//! new one, so that a restart of the server or a bad line costs nothing but a moment.

mod delivery;
mod reader;
mod writer;

use std::time::Duration;

use box_core::call::{Cursor, ExecInfo, Target};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use self::delivery::Delivery;
use self::reader::MessageReader;
use self::writer::MessageWriter;
use super::http::{Client, encoded, session_path};
use super::waiting::Waiting;
use super::websocket::{OpenedSocket, Socket};
use crate::fault::Fault;
use crate::signals::Signals;
use crate::stdio::{Input, Output};
use crate::terminal;

/// How long each try to find a lost server again is waited for.
const RETRY_PAUSES: [Duration; 6] = [
    Duration::from_millis(200),
    Duration::from_millis(800),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(15),
];

/// What the conversation is about.
#[derive(Debug)]
pub(crate) enum Start {
    /// A command that is started by it, with its body.
    Exec(Value),
    /// Something that runs or ran, from a cursor on.
    Attach(Target, Cursor),
}

/// How it is held.
#[derive(Debug)]
pub(crate) struct Manner {
    /// What goes to the other end.
    pub(crate) stdin: Input,
    /// Which streams are shown, and where.
    pub(crate) shown: ShownStreams,
    /// Whether the size of our terminal is told.
    pub(crate) tells_size: bool,
    /// A key that ends the conversation and nothing else.
    pub(crate) detach_key: Option<u8>,
    /// Whom a signal to us is meant for.
    pub(crate) signals: Meant,
}

/// Which streams are shown, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShownStreams {
    /// Both, each where it belongs.
    Both,
    /// Only standard error, on our standard output.
    OnlyError,
}

/// Whom a signal to us is meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meant {
    /// The command: it gets the first, and the second ends it by force.
    Command,
    /// Us: we go, and the other end goes on.
    Us,
}

/// How a conversation ended.
#[derive(Debug)]
pub(crate) enum Finish {
    /// The other end has ended.
    Ended(Box<ExecInfo>),
    /// We went.
    Detached,
    /// Two signals ended the command by force; the last of them.
    Interrupted(i32),
    /// Whoever read our output has gone away.
    OutputClosed,
}

/// Why talking stopped before the end.
enum Break {
    /// The connection is gone.
    Lost(String),
    /// Nothing can be done.
    Fault(Fault),
}

impl From<Fault> for Break {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Holds a conversation until its end.
pub(crate) async fn converse(client: &Client, session: &str, start: Start, manner: Manner) -> Result<Finish, Fault> {
    let signals = Signals::listen().map_err(|error| Fault::new(format!("signals cannot be received: {error}")))?;
    let is_ours = matches!(start, Start::Exec(_));
    let (target, cursor) = match &start {
        Start::Exec(_) => (None, Cursor::default()),
        Start::Attach(target, cursor) => (Some(target.clone()), *cursor),
    };
    let delivery = Delivery::default();
    let shown = match manner.shown {
        ShownStreams::Both => (Some(Output::stdout()), Output::stderr()),
        ShownStreams::OnlyError => (None, Output::stdout()),
    };
    let mut talk = Talk {
        client,
        session,
        signals,
        is_ours,
        meant: manner.signals,
        tells_size: manner.tells_size,
        reader: MessageReader::new(shown, delivery.clone(), target, cursor),
        writer: MessageWriter::new(manner.stdin, delivery.clone(), manner.detach_key),
        delivery,
    };
    let finish = talk.hold(&start).await?;
    if is_ours && matches!(finish, Finish::OutputClosed | Finish::Interrupted(_)) {
        talk.cancel().await;
    }
    Ok(finish)
}

struct Talk<'a> {
    client: &'a Client,
    session: &'a str,
    signals: Signals,
    /// Whether the other end exists because of us.
    is_ours: bool,
    meant: Meant,
    tells_size: bool,
    reader: MessageReader,
    writer: MessageWriter,
    delivery: Delivery,
}

impl Talk<'_> {
    async fn hold(&mut self, start: &Start) -> Result<Finish, Fault> {
        self.reader.waiting = Some(Waiting::start(if self.is_ours { "making the box" } else { "connecting" }));
        let mut opened = self.open(start).await?;
        loop {
            match self.talk(opened.socket).await {
                Ok(finish) => return Ok(finish),
                Err(Break::Fault(fault)) => return Err(Fault { request_id: opened.request_id, ..fault }),
                Err(Break::Lost(reason)) => opened = self.find_again(&reason).await?,
            }
        }
    }

    async fn open(&self, start: &Start) -> Result<OpenedSocket, Fault> {
        match start {
            Start::Attach(target, cursor) => self.client.upgrade(&socket_path(self.session, target, *cursor)).await,
            Start::Exec(body) => {
                let path = session_path(self.session, &["exec", "ws"]);
                let mut opened = self.client.upgrade(&path).await?;
                let said = opened.socket.send(Message::text(body.to_string())).await;
                said.map_err(|error| Fault::new(format!("the command cannot be sent: {error}")))?;
                Ok(opened)
            }
        }
    }

    /// Talks on one connection.
    async fn talk(&mut self, socket: Socket) -> Result<Finish, Break> {
        let (sink, stream) = socket.split();
        let (notes, to_say) = mpsc::channel(4);
        let (sizes, resizes) = mpsc::channel(4);
        let sizes = self.tells_size.then_some(sizes);
        tokio::select! {
            // In this order: a terminal that goes away sends a signal and ends our input at once, and whoever is told to go
            // must not first pass that end on.
            biased;
            signal = obey(&mut self.signals, self.meant, notes) => Ok(match self.meant {
                Meant::Us => Finish::Detached,
                Meant::Command => Finish::Interrupted(signal),
            }),
            heard = self.reader.read_messages(stream) => heard,
            finish = self.writer.write_messages(sink, to_say, resizes) => Ok(finish),
            never = watch_size(sizes) => match never {},
        }
    }

    /// Connects again and goes on where it was. Not while input is on its way: what of it arrived is not known.
    async fn find_again(&mut self, reason: &str) -> Result<OpenedSocket, Fault> {
        let lost = |reason: &str| Fault::new(format!("the connection to {} was lost: {reason}", self.client.address));
        let Some(target) = self.reader.target.clone() else { return Err(lost(reason).code("unreachable")) };
        let mut fault =
            lost(reason).code("unreachable").hint(resume_command(self.session, &target, self.reader.cursor));
        if self.delivery.may_be_lost() {
            return Err(fault);
        }
        let _waiting = Waiting::start("the connection was lost; connecting again");
        for pause in RETRY_PAUSES {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = self.signals.next() => return Err(fault),
            }
            match self.client.upgrade(&socket_path(self.session, &target, self.reader.cursor)).await {
                Ok(opened) => return Ok(opened),
                Err(error) if error.code == "unreachable" => fault.message = error.message,
                Err(error) => return Err(error),
            }
        }
        Err(fault)
    }

    /// Ends the command by force. It may have ended by itself, so what comes of it does not matter.
    async fn cancel(&self) {
        if let Some(Target::Exec(exec)) = &self.reader.target {
            drop(self.client.post(&session_path(self.session, &["execs", exec.as_str(), "cancel"]), &json!({})).await);
        }
    }
}

/// Passes the first signal on when it is meant for the command; returns with the next.
async fn obey(signals: &mut Signals, meant: Meant, notes: mpsc::Sender<Value>) -> i32 {
    let first = signals.next().await;
    if meant == Meant::Us {
        return first;
    }
    // Whether it can still be said is seen by whoever listens.
    drop(notes.send(json!({ "type": "signal", "signal": first })).await);
    signals.next().await
}

async fn watch_size(sizes: Option<mpsc::Sender<box_wire::WindowSize>>) -> std::convert::Infallible {
    match sizes {
        Some(sizes) => terminal::watch_size(sizes).await,
        None => std::future::pending().await,
    }
}

fn socket_path(session: &str, target: &Target, cursor: Cursor) -> String {
    let path = match target {
        Target::Exec(exec) => session_path(session, &["execs", exec.as_str(), "ws"]),
        Target::Process(process) => session_path(session, &["processes", process.as_str(), "ws"]),
    };
    format!("{path}?cursor={}", encoded(&cursor.to_string()))
}

/// The command by which one sees the rest.
fn resume_command(session: &str, target: &Target, cursor: Cursor) -> String {
    let name = match target {
        Target::Exec(exec) => exec.as_str(),
        Target::Process(process) => process.as_str(),
    };
    format!("it goes on; see the rest with `strongbox logs -f --since-cursor {cursor} {session} {name}`")
}
