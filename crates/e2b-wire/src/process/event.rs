//! What a process says.

use serde::{Deserialize, Serialize};

use super::lax;
use crate::json;

/// One message of a stream of events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventMessage {
    /// What happened.
    #[serde(default, deserialize_with = "lax::usual")]
    pub event: Event,
}

/// What happened to a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "EventFields", from = "EventFields")]
pub enum Event {
    /// It was started. Always the first.
    Start(Started),
    /// It said something.
    Data(Data),
    /// It has ended. Always the last.
    End(Ended),
    /// Nothing, but the stream lives.
    Keepalive,
    /// Something that nobody here knows.
    #[default]
    Unknown,
}

/// A process was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Its number.
    #[serde(default, deserialize_with = "lax::number", skip_serializing_if = "lax::is_zero")]
    pub pid: u32,
}

/// What a process said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "DataFields", from = "DataFields")]
pub enum Data {
    /// On standard output.
    Stdout(Vec<u8>),
    /// On standard error.
    Stderr(Vec<u8>),
    /// On its terminal.
    Pty(Vec<u8>),
    /// Somewhere that nobody here knows.
    #[default]
    Unknown,
}

/// How a process ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// What it returned; -1 when it did not.
    #[serde(default, alias = "exit_code", deserialize_with = "lax::number", skip_serializing_if = "lax::is_zero")]
    pub exit_code: i32,
    /// Whether it returned by itself.
    #[serde(default, deserialize_with = "lax::usual", skip_serializing_if = "lax::is_zero")]
    pub exited: bool,
    /// The same in words.
    #[serde(default, deserialize_with = "lax::usual", skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Again, when it was not well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How an event is written: one of these is there.
#[derive(Default, Clone, Serialize, Deserialize)]
struct EventFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<Started>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Data>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<Ended>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keepalive: Option<Keepalive>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Keepalive {}

impl From<EventFields> for Event {
    fn from(fields: EventFields) -> Self {
        let EventFields { start, data, end, keepalive } = fields;
        let start = start.map(Self::Start).or(data.map(Self::Data)).or(end.map(Self::End));
        start.or(keepalive.map(|_| Self::Keepalive)).unwrap_or_default()
    }
}

impl From<Event> for EventFields {
    fn from(event: Event) -> Self {
        let none = Self::default();
        match event {
            Event::Start(start) => Self { start: Some(start), ..none },
            Event::Data(data) => Self { data: Some(data), ..none },
            Event::End(end) => Self { end: Some(end), ..none },
            Event::Keepalive => Self { keepalive: Some(Keepalive {}), ..none },
            Event::Unknown => none,
        }
    }
}

/// How output is written: one of these is there.
#[derive(Default, Clone, Serialize, Deserialize)]
struct DataFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdout: Option<Base64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stderr: Option<Base64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pty: Option<Base64>,
}

/// Bytes, written as base64.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Base64(#[serde(with = "json::bytes")] pub(super) Vec<u8>);

impl From<DataFields> for Data {
    fn from(fields: DataFields) -> Self {
        let DataFields { stdout, stderr, pty } = fields;
        let stdout = stdout.map(|bytes| Self::Stdout(bytes.0)).or(stderr.map(|bytes| Self::Stderr(bytes.0)));
        stdout.or(pty.map(|bytes| Self::Pty(bytes.0))).unwrap_or_default()
    }
}

impl From<Data> for DataFields {
    fn from(data: Data) -> Self {
        let none = Self::default();
        match data {
            Data::Stdout(bytes) => Self { stdout: Some(Base64(bytes)), ..none },
            Data::Stderr(bytes) => Self { stderr: Some(Base64(bytes)), ..none },
            Data::Pty(bytes) => Self { pty: Some(Base64(bytes)), ..none },
            Data::Unknown => none,
        }
    }
}
