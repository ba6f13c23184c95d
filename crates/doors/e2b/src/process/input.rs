//! What is sent to processes: input, its end, and how large their terminal is.

use std::future::Future;

use axum::extract::{Request, State};
use axum::response::Response;
use box_core::call::{StdinChunk, Target};
use box_core::{Error, limits};
use box_e2b_wire::process::{Done, Input, ProcessRequest, Selector, SendInputRequest, StreamInput, UpdateRequest};
use box_e2b_wire::{Code, RpcError};
use http::HeaderMap;

use super::launch;
use super::lookup::{ProcessesOf, SandboxProcess, not_found};
use crate::app::App;
use crate::connect::{self, Incoming, Unary, UnaryInput, told};
use crate::sandbox_request::SandboxRequest;

/// Sends something to a process. Waits while it does not read.
pub(super) async fn send(
    State(app): State<App>,
    to: SandboxRequest,
    headers: HeaderMap,
    UnaryInput(request, _held): UnaryInput<SendInputRequest>,
) -> Response {
    let sent = async {
        let line = Line::to(&app, &to, &request.process).await?;
        line.send(request.input).await
    };
    connect::unary(in_time(&headers, sent).await)
}

/// Sends to a process what a client streams.
pub(super) async fn stream(
    State(app): State<App>,
    to: SandboxRequest,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let mut incoming = Incoming::with_input(request);
    let sent = async {
        let Some(StreamInput::Start(selector)) = incoming.next().await? else {
            return Err(RpcError::new(Code::InvalidArgument, "the first message must be start, with the process"));
        };
        let line = Line::to(&app, &to, &selector).await?;
        while let Some(message) = incoming.next().await? {
            match message {
                StreamInput::Data(input) => drop(line.send(input).await?),
                StreamInput::Keepalive | StreamInput::Unknown => {}
                StreamInput::Start(_) => {
                    return Err(RpcError::new(Code::InvalidArgument, "start may be the first message only"));
                }
            }
        }
        Ok(Done {})
    };
    connect::answer(in_time(&headers, sent), app.closing().clone()).await
}

/// Ends the standard input of a process. Twice is as good as once.
pub(super) async fn close(
    State(app): State<App>,
    to: SandboxRequest,
    Unary(request): Unary<ProcessRequest>,
) -> Response {
    let closed = async {
        let line = Line::to(&app, &to, &request.process).await?;
        if line.found.note.pty {
            let message = "a terminal has no end; send it the character 4 instead";
            return Err(RpcError::new(Code::FailedPrecondition, message));
        }
        if line.found.note.stdin { line.write(StdinChunk::End).await } else { Ok(Done {}) }
    };
    connect::unary(closed.await)
}

/// Tells the terminal of a process how large it is.
pub(super) async fn update(
    State(app): State<App>,
    to: SandboxRequest,
    Unary(request): Unary<UpdateRequest>,
) -> Response {
    let updated = async {
        let line = Line::to(&app, &to, &request.process).await?;
        let Some(size) = request.pty.and_then(|pty| pty.size) else { return Ok(Done {}) };
        if !line.found.note.pty {
            return Err(RpcError::new(Code::Internal, "the process has no terminal"));
        }
        let resized = app.service().resize(&to.caller, &to.session, &line.target(), launch::window(size)).await;
        line.done(resized)
    };
    connect::unary(updated.await)
}

/// A process to which something is sent.
struct Line<'a> {
    app: &'a App,
    to: &'a SandboxRequest,
    selector: &'a Selector,
    found: SandboxProcess,
}

impl<'a> Line<'a> {
    async fn to(app: &'a App, to: &'a SandboxRequest, selector: &'a Selector) -> Result<Self, RpcError> {
        let found = ProcessesOf::sandbox(app, to).await?.running(selector)?;
        Ok(Self { app, to, selector, found })
    }

    fn target(&self) -> Target {
        Target::Exec(self.found.info.exec_id.clone())
    }

    async fn send(&self, input: Input) -> Result<Done, RpcError> {
        let note = &self.found.note;
        let wrong = |what: &str| Err(RpcError::new(Code::Internal, what));
        match input {
            Input::Stdin(_) if note.pty => wrong("the process has a terminal; send it pty instead of stdin"),
            Input::Stdin(_) if !note.stdin => wrong("the process was started without stdin"),
            Input::Pty(_) if !note.pty => wrong("the process has no terminal; send it stdin instead of pty"),
            Input::Stdin(bytes) | Input::Pty(bytes) => self.write_all(&bytes).await,
            Input::None => Err(RpcError::new(Code::InvalidArgument, "input must be stdin or pty")),
        }
    }

    async fn write_all(&self, bytes: &[u8]) -> Result<Done, RpcError> {
        for piece in bytes.chunks(limits::STDIN_BYTES_MAX) {
            self.write(StdinChunk::Bytes(piece.to_vec())).await?;
        }
        Ok(Done {})
    }

    async fn write(&self, chunk: StdinChunk) -> Result<Done, RpcError> {
        let written = self.app.service().write_stdin(&self.to.caller, &self.to.session, &self.target(), chunk).await;
        self.done(written)
    }

    /// What ends while something is sent to it is not there either.
    fn done(&self, result: Result<(), Error>) -> Result<Done, RpcError> {
        result.map(|()| Done {}).map_err(|error| match error {
            Error::Conflict { .. } | Error::ExecNotFound { .. } => not_found(self.selector),
            other => told(other),
        })
    }
}

/// Gives up when the time is over that the caller gives it.
async fn in_time(headers: &HeaderMap, work: impl Future<Output = Result<Done, RpcError>>) -> Result<Done, RpcError> {
    match connect::timeout(headers)? {
        None => work.await,
        Some(time) => tokio::time::timeout(time, work).await.unwrap_or_else(|_| {
            Err(RpcError::new(Code::DeadlineExceeded, "the process did not take what was sent to it in time"))
        }),
    }
}
