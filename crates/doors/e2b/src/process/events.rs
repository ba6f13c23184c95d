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

use super::ended::{deadline_passed, ended};
use crate::app::App;
use crate::connect::{SANDBOX_NOT_FOUND, told};
use crate::sandbox_request::SandboxRequest;

/// What a listener is told of a process, in order: that it was started, what it says, how it ended.
pub(super) struct Events {
    service: Service,
    caller: Caller,
    session: SessionId,
    exec: ExecId,
    follow: Follow,
    pid: u32,
    keepalive: Duration,
    told: EventsSent,
    /// Whether what it says comes from a terminal.
    pub(super) has_terminal: bool,
    /// When the listener does not want to listen any more.
    pub(super) until: Option<Instant>,
    /// What the listener is told when the process took too long.
    pub(super) when_timed_out: WhenTimedOut,
    /// Output that may be missing without an error.
    pub(super) may_miss: MayMiss,
}

/// How much was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventsSent {
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

/// Streams of which output may be missing without an error. A listener from the start relies on all of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MayMiss {
    stdout: bool,
    stderr: bool,
}

impl MayMiss {
    /// Of a late listener: what came before its first output of each stream.
    pub(super) const BEGINNING: Self = Self { stdout: true, stderr: true };

    /// Notes that output of a stream is sent: from here on, none of it may be missing.
    fn begin(&mut self, stream: StreamName) {
        *self.of(stream) = false;
    }

    /// The error when bytes of a stream are missing; none where they may be.
    fn missing(&mut self, stream: StreamName, bytes: u64) -> Option<RpcError> {
        if *self.of(stream) { None } else { Some(lost(stream, bytes)) }
    }

    fn of(&mut self, stream: StreamName) -> &mut bool {
        match stream {
            StreamName::Stdout => &mut self.stdout,
            StreamName::Stderr => &mut self.stderr,
        }
    }
}

impl Events {
    /// What a follower of an exec hears.
    pub(super) fn new(app: &App, to: &SandboxRequest, info: &ExecInfo, follow: Follow, keepalive: Duration) -> Self {
        Self {
            service: app.service().clone(),
            caller: to.caller.clone(),
            session: to.session.clone(),
            exec: info.exec_id.clone(),
            follow,
            pid: info.pid.unwrap_or_default(),
            keepalive,
            told: EventsSent::Nothing,
            has_terminal: false,
            until: None,
            when_timed_out: WhenTimedOut::End,
            may_miss: MayMiss::default(),
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
            EventsSent::End => return None,
            EventsSent::Nothing => {
                self.told = EventsSent::Start;
                return Some(Ok(Event::Start(Started { pid: self.pid })));
            }
            EventsSent::Start => {}
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
                    self.may_miss.begin(stream);
                    return Some(Ok(Event::Data(self.data(stream, bytes))));
                }
                Ok(Some(FollowEvent::Gap { stream, bytes, .. })) => {
                    if let Some(lost) = self.may_miss.missing(stream, bytes) {
                        return Some(self.end(Err(lost)));
                    }
                }
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
        self.told = EventsSent::End;
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
            ExecStatus::TimedOut if self.when_timed_out == WhenTimedOut::Refuse => Err(killed(info)),
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

/// The time of the process was over: the caller's own, unless a limit made it shorter.
fn killed(info: &ExecInfo) -> RpcError {
    match deadline_passed(info) {
        Some(reason) => RpcError::new(Code::DeadlineExceeded, reason),
        None => too_late(),
    }
}

fn gone() -> RpcError {
    RpcError::new(Code::Unavailable, SANDBOX_NOT_FOUND)
}

fn lost(stream: StreamName, bytes: u64) -> RpcError {
    let name = match stream {
        StreamName::Stdout => "standard output",
        StreamName::Stderr => "standard error",
    };
    let message = format!(
        "{bytes} bytes of {name} are lost: they came faster than they were read; connect again for what is left, or write \
         the output to a file"
    );
    RpcError::new(Code::DataLoss, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_missing_in_silence_only_before_the_first_that_a_late_listener_hears() {
        let (out, err) = (StreamName::Stdout, StreamName::Stderr);
        let mut late = MayMiss::BEGINNING;
        assert_eq!(late.missing(out, 1), None);
        late.begin(out);
        assert_eq!(late.missing(err, 1), None, "nothing of it was sent yet");
        let lost = late.missing(out, 7).unwrap();
        assert!(lost.code == Code::DataLoss && lost.message.contains("7 bytes of standard output"), "{lost}");
        let mut starter = MayMiss::default();
        assert_eq!(starter.missing(err, 1).unwrap().code, Code::DataLoss);
    }
}
