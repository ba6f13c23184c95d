//! Processes of a sandbox, as E2B's clients start, watch and end them.
//!
//! A process of theirs is an exec of ours that is over when its output is. What they said when they started it is the exec's note,
//! so whoever asks for a list finds only what came through this door.

pub(super) mod ended;
mod events;
mod input;
pub(super) mod launch;
mod lookup;
mod note;

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use box_core::call::{ExecStatus, Target};
use box_core::session::SessionRequest;
use box_e2b_wire::process::{
    Done, ListRequest, ListResponse, ProcessInfo, ProcessRequest, SendSignalRequest, Signal, StartRequest,
};
use box_e2b_wire::{Code, RpcError};
use http::HeaderMap;
use tokio::time::Instant;

use self::events::{Events, MayMiss, WhenTimedOut};
use self::lookup::{ProcessesOf, SandboxProcess};
use super::connect::{self, StreamError, Streamed, Unary, told};
use super::sandbox_request::SandboxRequest;
use crate::app::App;

/// How long the end of a process is told to whoever asks for it by its number.
const END_TOLD_FOR: Duration = Duration::from_secs(30);

/// What can be asked of processes.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/process.Process/Start", post(start))
        .route("/process.Process/Connect", post(listen))
        .route("/process.Process/List", post(list))
        .route("/process.Process/SendSignal", post(send_signal))
        .route("/process.Process/SendInput", post(input::send))
        .route("/process.Process/StreamInput", post(input::stream))
        .route("/process.Process/CloseStdin", post(input::close))
        .route("/process.Process/Update", post(input::update))
}

/// Starts a process and tells what it says until it ends. Whoever hangs up does not end it; the time that the caller gives it does.
async fn start(
    State(app): State<App>,
    to: SandboxRequest,
    headers: HeaderMap,
    Streamed(mut request): Streamed<StartRequest>,
) -> Result<Response, StreamError> {
    let begun = Instant::now();
    let user = connect::user(&headers, to.usual_user()).map_err(StreamError)?;
    let timeout = limited(&headers)?;
    if request.process.cwd.as_ref().is_none_or(String::is_empty) {
        request.process.cwd.clone_from(&to.defaults.workdir);
    }
    let call = launch::call(&request, user, &to.env, timeout).map_err(StreamError)?;
    let workdir = call.workdir.clone();
    let existing = SessionRequest::of_existing();
    let started = app.service().exec(&to.caller, &to.session, &existing, call).await;
    let info = started.map_err(|error| StreamError(launch::refused(error, &request, workdir.as_ref())))?;
    let follow = app.service().follow_paced(&to.caller, &to.session, &info.exec_id).await;
    let mut events = Events::new(&app, &to, &info, follow.map_err(failed)?, connect::keepalive(&headers));
    events.has_terminal = request.pty.is_some();
    events.until = until(begun, timeout);
    events.when_timed_out = WhenTimedOut::Refuse;
    Ok(connect::stream(events.into_stream(), app.closing().clone()))
}

/// Streams the output of a process and its end, also shortly after it ended: from its start, or from behind the last gap in what
/// is kept. A client whose stream broke, for example by a server restart, misses nothing that is kept.
async fn listen(
    State(app): State<App>,
    to: SandboxRequest,
    headers: HeaderMap,
    Streamed(request): Streamed<ProcessRequest>,
) -> Result<Response, StreamError> {
    let timeout = limited(&headers)?;
    let processes = ProcessesOf::sandbox(&app, &to).await.map_err(StreamError)?;
    let found = processes.running_or_ended_within(&request.process, END_TOLD_FOR).map_err(StreamError)?;
    let info = &found.info;
    let follow = app.service().follow_late(&to.caller, &to.session, &info.exec_id).await;
    let mut events = Events::new(&app, &to, info, follow.map_err(failed)?, connect::keepalive(&headers));
    events.has_terminal = found.note.pty;
    events.may_miss = MayMiss::BEGINNING;
    events.until = until(Instant::now(), timeout);
    Ok(connect::stream(events.into_stream(), app.closing().clone()))
}

/// Which processes run.
async fn list(State(app): State<App>, to: SandboxRequest, Unary(_): Unary<ListRequest>) -> Response {
    let info = |found: SandboxProcess| ProcessInfo {
        config: found.note.config,
        pid: found.info.pid.unwrap_or_default(),
        tag: found.note.tag,
    };
    let is_running = |found: &SandboxProcess| found.info.status == ExecStatus::Running;
    let processes = ProcessesOf::sandbox(&app, &to).await;
    connect::unary(
        processes.map(|all| ListResponse { processes: all.into_iter().filter(is_running).map(info).collect() }),
    )
}

/// Sends a signal to a process, and to none of its children.
async fn send_signal(State(app): State<App>, to: SandboxRequest, Unary(request): Unary<SendSignalRequest>) -> Response {
    let signalled = async {
        let signal = match request.signal {
            Signal::Kill => 9,
            Signal::Term => 15,
            Signal::Unspecified | Signal::Other(_) => {
                let message = "signal must be SIGNAL_SIGKILL or SIGNAL_SIGTERM";
                return Err(RpcError::new(Code::InvalidArgument, message));
            }
        };
        let found = ProcessesOf::sandbox(&app, &to).await?.running(&request.process)?;
        let target = Target::Exec(found.info.exec_id);
        let sent = app.service().signal(&to.caller, &to.session, &target, signal).await;
        // What ends between two looks is not there either.
        sent.map(|()| Done {}).map_err(|error| match error {
            box_core::Error::Refused(_) => lookup::not_found(&request.process),
            other => told(other),
        })
    };
    connect::unary(signalled.await)
}

/// The time that a caller gives a stream.
fn limited(headers: &HeaderMap) -> Result<Option<Duration>, StreamError> {
    connect::timeout(headers).map_err(StreamError)
}

/// When that time is over; never, when it is longer than a clock can tell.
fn until(begun: Instant, timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| begun.checked_add(timeout))
}

fn failed(error: box_core::Error) -> StreamError {
    StreamError(told(error))
}
