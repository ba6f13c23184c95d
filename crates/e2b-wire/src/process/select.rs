//! Which process is meant, and what is sent to it.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::event::Base64;
use super::{ProcessRequest, lax};

/// Which process is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "SelectorFields", from = "SelectorFields")]
pub enum Selector {
    /// By its number.
    Pid(u32),
    /// By the caller's name for it.
    Tag(String),
    /// Nobody said.
    #[default]
    None,
}

#[derive(Default, Clone, Serialize, Deserialize)]
struct SelectorFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<Pid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct Pid(#[serde(deserialize_with = "lax::number")] u32);

impl From<SelectorFields> for Selector {
    fn from(fields: SelectorFields) -> Self {
        fields.pid.map(|pid| Self::Pid(pid.0)).or(fields.tag.map(Self::Tag)).unwrap_or_default()
    }
}

impl From<Selector> for SelectorFields {
    fn from(selector: Selector) -> Self {
        match selector {
            Selector::Pid(pid) => Self { pid: Some(Pid(pid)), tag: None },
            Selector::Tag(tag) => Self { pid: None, tag: Some(tag) },
            Selector::None => Self::default(),
        }
    }
}

/// What is sent to a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "InputFields", from = "InputFields")]
pub enum Input {
    /// On its standard input.
    Stdin(Vec<u8>),
    /// On its terminal.
    Pty(Vec<u8>),
    /// Nobody said.
    #[default]
    None,
}

#[derive(Default, Clone, Serialize, Deserialize)]
struct InputFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdin: Option<Base64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pty: Option<Base64>,
}

impl From<InputFields> for Input {
    fn from(fields: InputFields) -> Self {
        let stdin = fields.stdin.map(|bytes| Self::Stdin(bytes.0));
        stdin.or(fields.pty.map(|bytes| Self::Pty(bytes.0))).unwrap_or_default()
    }
}

impl From<Input> for InputFields {
    fn from(input: Input) -> Self {
        match input {
            Input::Stdin(bytes) => Self { stdin: Some(Base64(bytes)), pty: None },
            Input::Pty(bytes) => Self { stdin: None, pty: Some(Base64(bytes)) },
            Input::None => Self::default(),
        }
    }
}

/// One message of a stream of input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "StreamInputFields", from = "StreamInputFields")]
pub enum StreamInput {
    /// For which process all of it is. Always the first.
    Start(Selector),
    /// Some of it.
    Data(Input),
    /// Nothing, but the stream lives.
    Keepalive,
    /// Something that nobody here knows.
    #[default]
    Unknown,
}

#[derive(Default, Clone, Serialize, Deserialize)]
struct StreamInputFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<ProcessRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<InputPart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keepalive: Option<Keepalive>,
}

#[derive(Clone, Serialize, Deserialize)]
struct InputPart {
    #[serde(default, deserialize_with = "lax::usual")]
    input: Input,
}

#[derive(Clone, Serialize, Deserialize)]
struct Keepalive {}

impl From<StreamInputFields> for StreamInput {
    fn from(fields: StreamInputFields) -> Self {
        let start = fields.start.map(|start| Self::Start(start.process));
        let data = fields.data.map(|part| Self::Data(part.input));
        start.or(data).or(fields.keepalive.map(|_| Self::Keepalive)).unwrap_or_default()
    }
}

impl From<StreamInput> for StreamInputFields {
    fn from(message: StreamInput) -> Self {
        let none = Self::default();
        match message {
            StreamInput::Start(process) => Self { start: Some(ProcessRequest { process }), ..none },
            StreamInput::Data(input) => Self { data: Some(InputPart { input }), ..none },
            StreamInput::Keepalive => Self { keepalive: Some(Keepalive {}), ..none },
            StreamInput::Unknown => none,
        }
    }
}

/// A signal, by name or number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Signal {
    /// Nobody said which.
    #[default]
    Unspecified,
    /// Ends it at once.
    Kill,
    /// Asks it to end.
    Term,
    /// One that this protocol has no name for.
    Other(i32),
}

impl Serialize for Signal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unspecified => serializer.serialize_str("SIGNAL_UNSPECIFIED"),
            Self::Kill => serializer.serialize_str("SIGNAL_SIGKILL"),
            Self::Term => serializer.serialize_str("SIGNAL_SIGTERM"),
            Self::Other(number) => serializer.serialize_i32(*number),
        }
    }
}

impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(i32),
            Name(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(0) => Ok(Self::Unspecified),
            Written::Number(9) => Ok(Self::Kill),
            Written::Number(15) => Ok(Self::Term),
            Written::Number(other) => Ok(Self::Other(other)),
            Written::Name(name) => match name.as_str() {
                "SIGNAL_UNSPECIFIED" => Ok(Self::Unspecified),
                "SIGNAL_SIGKILL" => Ok(Self::Kill),
                "SIGNAL_SIGTERM" => Ok(Self::Term),
                _ => Err(D::Error::custom("signal must be SIGNAL_SIGKILL or SIGNAL_SIGTERM")),
            },
        }
    }
}
