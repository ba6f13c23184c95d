//! The computer that our own tools work on: what they must know of the rest of the house.

use std::collections::BTreeMap;

use async_trait::async_trait;
use box_core::{Caller, Result, SessionId};
use serde_json::Value;

/// A computer in a box, for whoever calls. What is returned is shown to a model as it is.
#[async_trait]
pub trait Computer: Send + Sync + 'static {
    /// Runs one of the tools of [`box_core::tools::catalogue`] in a session, which is made if it does not exist.
    async fn tool(&self, caller: &Caller, session: &SessionId, name: &str, parameters: Value) -> Result<Value>;

    /// The caller's sessions.
    async fn sessions(&self, caller: &Caller) -> Result<Value>;

    /// One session: how it stands and what it guarantees.
    async fn session(&self, caller: &Caller, session: &SessionId) -> Result<Value>;

    /// Ends a session, with everything in it.
    async fn end_session(&self, caller: &Caller, session: &SessionId) -> Result<Value>;

    /// Saves the files of a session.
    async fn save_snapshot(&self, caller: &Caller, session: &SessionId, name: Option<String>) -> Result<Value>;

    /// Makes a session that begins with the files of this one, or of a snapshot.
    async fn fork(&self, caller: &Caller, session: &SessionId, fork: ForkCall) -> Result<Value>;

    /// Starts a process that goes on after the call, in a session, which is made if it does not exist.
    async fn start_process(&self, caller: &Caller, session: &SessionId, start: ProcessStart) -> Result<Value>;

    /// The processes of a session.
    async fn processes(&self, caller: &Caller, session: &SessionId) -> Result<Value>;

    /// Part of what a process has said.
    async fn process_output(&self, caller: &Caller, session: &SessionId, part: OutputPart) -> Result<Value>;

    /// Writes to the standard input of a process.
    async fn write_process(&self, caller: &Caller, session: &SessionId, input: ProcessInput) -> Result<Value>;

    /// Ends a process.
    async fn stop_process(&self, caller: &Caller, session: &SessionId, process_id: &str) -> Result<Value>;
}

/// How a session is to be saved.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotCall {
    /// What to call the snapshot.
    pub(super) name: Option<String>,
}

/// A session to make from another one.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForkCall {
    /// What to call it.
    pub new_session_id: String,
    /// The snapshot to begin with, instead of the files of the other session.
    pub snapshot: Option<String>,
}

/// A process to start.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessStart {
    /// What to call it.
    #[serde(default = "default_process")]
    pub process_id: String,
    /// A command line for `/bin/sh`.
    pub command: String,
    /// Where to run it; the workspace when not given.
    pub workdir: Option<String>,
    /// Added to its environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Which part of the output of a process.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputPart {
    /// Of which process.
    #[serde(default = "default_process")]
    pub process_id: String,
    /// Of which of its streams.
    #[serde(default)]
    pub stream: OutputStream,
    /// From which byte on; negative counts from the end.
    #[serde(default)]
    pub from: i64,
}

/// A stream of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// Something for the standard input of a process.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessInput {
    /// Of which process.
    #[serde(default = "default_process")]
    pub process_id: String,
    /// What to write.
    pub text: String,
    /// Whether that was all there will ever be.
    #[serde(default)]
    pub end: bool,
}

fn default_process() -> String {
    "default".to_owned()
}
