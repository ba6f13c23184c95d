//! Where output comes from and input goes to, for everything that streams: events, WebSockets, the line relay.

use std::future::Future;

use box_core::call::{Cursor, ExecInfo, FollowEvent, ProcessInfo, StdinChunk, Target};
use box_core::service::Follow;
use box_core::{Caller, Result, Service, SessionId};
use box_wire::WindowSize;
use serde_json::{Value, json};

use crate::socket::Opening;

/// A source of ordered events. Waiting for the next one may be canceled and repeated.
pub trait Feed: Send {
    /// The next event; nothing after the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<FollowEvent>>> + Send;
}

impl Feed for Follow {
    fn next(&mut self) -> impl Future<Output = Result<Option<FollowEvent>>> + Send {
        Follow::next(self)
    }
}

/// A target for input.
pub trait Inlet: Send + Sync {
    /// Standard input. Waits until the process reads it.
    fn stdin(&self, chunk: StdinChunk) -> impl Future<Output = Result<()>> + Send;
    /// The size of its terminal.
    fn resize(&self, size: WindowSize) -> impl Future<Output = Result<()>> + Send;
    /// A signal to its main process.
    fn signal(&self, number: i32) -> impl Future<Output = Result<()>> + Send;
}

/// A command or managed process, asked by one caller.
#[derive(Debug, Clone)]
pub struct Line {
    /// The service that runs it.
    pub service: Service,
    /// The caller.
    pub caller: Caller,
    /// Of which session.
    pub session: SessionId,
    /// Of what in it.
    pub target: Target,
}

impl Line {
    /// The description of the target, under the name of its kind; an error if it does not exist.
    pub async fn describe(&self) -> Result<Value> {
        let Self { service, caller, session, target } = self;
        Ok(match target {
            Target::Exec(exec) => json!({ "exec": service.get_exec(caller, session, exec).await? }),
            Target::Process(process) => json!({ "process": service.get_process(caller, session, process).await? }),
        })
    }

    /// The final message about a run that has ended: the result of a command, or the state of a managed process.
    pub async fn ending(&self, info: &ExecInfo) -> Value {
        let result = match &self.target {
            Target::Exec(exec) => self.service.wait_exec(&self.caller, &self.session, exec).await.ok(),
            Target::Process(_) => None,
        };
        // A session that was destroyed with its command has no result any more; then the known state is sent.
        let told = result.map_or_else(|| serde_json::to_value(info), serde_json::to_value);
        told.unwrap_or_default()
    }
}

impl Inlet for Line {
    async fn stdin(&self, chunk: StdinChunk) -> Result<()> {
        self.service.write_stdin(&self.caller, &self.session, &self.target, chunk).await
    }

    async fn resize(&self, size: WindowSize) -> Result<()> {
        self.service.resize(&self.caller, &self.session, &self.target, size).await
    }

    async fn signal(&self, number: i32) -> Result<()> {
        self.service.signal(&self.caller, &self.session, &self.target, number).await
    }
}

/// The relay of a managed process, before it is a client's turn.
#[derive(Debug)]
pub struct OpenLine(pub Line);

/// Output of a managed process that may go away while it is followed: that is an end like any other.
#[derive(Debug)]
pub struct Relayed {
    follow: Follow,
    line: Line,
}

impl Line {
    /// The managed process that this is about; nothing when it is gone, or its session.
    async fn process(&self) -> Option<ProcessInfo> {
        let Target::Process(process) = &self.target else { return None };
        self.service.get_process(&self.caller, &self.session, process).await.ok()
    }
}

impl Opening for OpenLine {
    type Output = Relayed;
    type Input = Line;

    async fn find(&self) -> Option<ProcessInfo> {
        self.0.process().await
    }

    async fn open(self, from: Cursor) -> Option<(Relayed, Line)> {
        let Self(line) = self;
        let follow = line.service.follow(&line.caller, &line.session, &line.target, from).await.ok()?;
        Some((Relayed { follow, line: line.clone() }, line))
    }
}

impl Feed for Relayed {
    async fn next(&mut self) -> Result<Option<FollowEvent>> {
        match self.follow.next().await {
            Err(_) if self.line.process().await.is_none() => Ok(None),
            told => told,
        }
    }
}
