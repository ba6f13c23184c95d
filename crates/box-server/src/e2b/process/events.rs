//! What a process says, as a stream of messages.

use std::time::Duration;

use box_core::call::{ExecInfo, ExecStatus, FollowEvent, StreamName};
use box_core::service::Follow;
use box_core::{Caller, Error, Service, SessionId};
use box_e2b_wire::process::{Data, Event, EventMessage, Started};
use box_e2b_wire::{Code, RpcError};
use box_wire::ExecId;
use futures_util::{Stream, stream};
use tokio::time::Instant;

use super::ended::ended;
use crate::app::App;
use crate::e2b::connect::{SANDBOX_NOT_FOUND, told};
use crate::e2b::directed::Directed;

/// What a listener is told of a process, in order: that it was started, what it says, how it ended.
pub(super) struct Events {
    service: Service,
    caller: Caller,
    session: SessionId,
    exec: ExecId,
    follow: Follow,
    pid: u32,
    keepalive: Duration,
    told: Told,
    /// Whether what it says comes from a terminal.
    pub(super) has_terminal: bool,
    /// When the listener does not want to listen any more.
    pub(super) until: Option<Instant>,
    /// What the listener is told when the process took too long.
    pub(super) when_timed_out: WhenTimedOut,
}

/// How much was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Start,
    End,
}

/// What a listener is told when the process took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenTimedOut {
    /// That it was killed: the time was another's.
    End,
    /// That its own time is over.
    Refuse,
}

impl Events {
    /// What a follower of an exec hears.
    pub(super) fn new(app: &App, to: &Directed, info: &ExecInfo, follow: Follow, keepalive: Duration) -> Self {
        Self {
            service: app.service().clone(),
            caller: to.caller.clone(),
            session: to.session.clone(),
            exec: info.exec_id.clone(),
            follow,
            pid: info.pid.unwrap_or_default(),
            keepalive,
            told: Told::Nothing,
            has_terminal: false,
            until: None,
            when_timed_out: WhenTimedOut::End,
        }
    }

    /// All of it, up to the end.
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<EventMessage, RpcError>> + Send {
        stream::unfold(self, |mut events| async move {
            let next = events.next().await?;
            Some((next.map(|event| EventMessage { event }), events))
        })
    }

    async fn next(&mut self) -> Option<Result<Event, RpcError>> {
        match self.told {
            Told::End => return None,
            Told::Nothing => {
                self.told = Told::Start;
                return Some(Ok(Event::Start(Started { pid: self.pid })));
            }
            Told::Start => {}
        }
        loop {
            let heard = tokio::select! {
                biased;
                () = passed(self.until) => return Some(self.end(Err(too_late()))),
                heard = self.follow.next() => heard,
                () = tokio::time::sleep(self.keepalive) => return Some(Ok(Event::Keepalive)),
            };
            match heard {
                Ok(Some(FollowEvent::Output { stream, bytes, .. })) => {
                    return Some(Ok(Event::Data(self.data(stream, bytes))));
                }
                Ok(Some(FollowEvent::Gap { stream, bytes, .. })) => return Some(self.end(Err(lost(stream, bytes)))),
                Ok(Some(FollowEvent::Ended { info, .. })) => {
                    let how = self.how(&info);
                    return Some(self.end(how));
                }
                Ok(Some(FollowEvent::Restarted { .. })) => {}
                Ok(None) => return None,
                Err(error) => {
                    let exec = self.service.get_exec(&self.caller, &self.session, &self.exec).await;
                    return Some(self.end(Err(explain(error, exec))));
                }
            }
        }
    }

    fn end(&mut self, how: Result<Event, RpcError>) -> Result<Event, RpcError> {
        self.told = Told::End;
        how
    }

    fn data(&self, stream: StreamName, bytes: Vec<u8>) -> Data {
        match stream {
            _ if self.has_terminal => Data::Pty(bytes),
            StreamName::Stdout => Data::Stdout(bytes),
            StreamName::Stderr => Data::Stderr(bytes),
        }
    }

    fn how(&self, info: &ExecInfo) -> Result<Event, RpcError> {
        match info.status {
            ExecStatus::Lost => Err(gone()),
            ExecStatus::TimedOut if self.when_timed_out == WhenTimedOut::Refuse => Err(too_late()),
            ExecStatus::Running | ExecStatus::Completed | ExecStatus::TimedOut => Ok(Event::End(ended(info))),
        }
    }
}

/// What went wrong. A sandbox that was killed takes its output with it, and then it is the sandbox that is missing.
fn explain(error: Error, exec: box_core::Result<ExecInfo>) -> RpcError {
    if exec.is_ok_and(|info| info.status != ExecStatus::Lost) { told(error) } else { gone() }
}

async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn too_late() -> RpcError {
    RpcError::new(Code::DeadlineExceeded, "the time that the caller gave it is over")
}

fn gone() -> RpcError {
    RpcError::new(Code::Unavailable, SANDBOX_NOT_FOUND)
}

fn lost(stream: StreamName, bytes: u64) -> RpcError {
    let name = match stream {
        StreamName::Stdout => "standard output",
        StreamName::Stderr => "standard error",
    };
    let message = format!("{bytes} bytes of {name} are not kept any more; listen from the start, or write to a file");
    RpcError::new(Code::DataLoss, message)
}
