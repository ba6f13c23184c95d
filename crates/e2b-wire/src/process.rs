//! Messages about processes of a sandbox: what starts them, what they say, what is sent to them.
//!
//! Fields have the names of their JSON, which may also be written with underscores. Who sends leaves out what has its usual value;
//! who reads passes over what it does not know.

mod event;
mod lax;
mod select;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use event::{Data, Ended, Event, EventMessage, Started};
pub use select::{Input, Selector, Signal, StreamInput};

/// What a process is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessConfig {
    /// The program.
    #[serde(default, deserialize_with = "lax::usual", skip_serializing_if = "String::is_empty")]
    pub cmd: String,
    /// Its arguments.
    #[serde(default, deserialize_with = "lax::usual", skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Added to its environment.
    #[serde(default, deserialize_with = "lax::usual", skip_serializing_if = "BTreeMap::is_empty")]
    pub envs: BTreeMap<String, String>,
    /// Where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// A terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pty {
    /// How large it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<PtySize>,
}

/// How large a terminal is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtySize {
    /// Characters in a line.
    #[serde(default, deserialize_with = "lax::number", skip_serializing_if = "lax::is_zero")]
    pub cols: u32,
    /// Lines.
    #[serde(default, deserialize_with = "lax::number", skip_serializing_if = "lax::is_zero")]
    pub rows: u32,
}

/// Starts a process. It is answered with a stream of [`EventMessage`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRequest {
    /// What it is.
    #[serde(default, deserialize_with = "lax::usual")]
    pub process: ProcessConfig,
    /// A terminal instead of three pipes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<Pty>,
    /// The caller's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Whether something will be sent to it. Who does not say may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<bool>,
}

/// Names a process: to listen to it (answered with a stream of [`EventMessage`]), or to end its standard input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRequest {
    /// Which.
    #[serde(default, deserialize_with = "lax::usual")]
    pub process: Selector,
}

/// Asks for all processes. Has nothing in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRequest {}

/// All processes that run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListResponse {
    /// Each of them.
    #[serde(default, deserialize_with = "lax::usual", skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessInfo>,
}

/// A process that runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// What it is, as it was asked for.
    #[serde(default, deserialize_with = "lax::usual")]
    pub config: ProcessConfig,
    /// Its number.
    #[serde(default, deserialize_with = "lax::number", skip_serializing_if = "lax::is_zero")]
    pub pid: u32,
    /// The caller's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Sends something to a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendInputRequest {
    /// Which.
    #[serde(default, deserialize_with = "lax::usual")]
    pub process: Selector,
    /// What.
    #[serde(default, deserialize_with = "lax::usual")]
    pub input: Input,
}

/// Sends a signal to a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendSignalRequest {
    /// Which.
    #[serde(default, deserialize_with = "lax::usual")]
    pub process: Selector,
    /// The signal.
    #[serde(default, deserialize_with = "lax::usual")]
    pub signal: Signal,
}

/// Changes a process: how large its terminal is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateRequest {
    /// Which.
    #[serde(default, deserialize_with = "lax::usual")]
    pub process: Selector,
    /// Its terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<Pty>,
}

/// The answer that something was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

#[cfg(test)]
mod tests;
