//! Input to commands and managed processes: standard input, signals, the size of a terminal.

use axum::extract::State;
use box_core::call::StdinChunk;
use http::StatusCode;
use serde::Deserialize;

use super::views::Binary;
use crate::app::App;
use crate::extract::{ExecPath, OfTarget, ProcessPath, Who};
use door_http::body::{self, Body, Fields, FromFields, Params, Raw};
use door_http::failure::Failure;
use door_http::feed::{Inlet, Line};
use door_http::signal::SignalBody;
use door_http::terminal::SizeBody;

/// What comes after the bytes.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct StdinQuery {
    /// Whether standard input ends behind these bytes.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    end: Option<bool>,
}

impl FromFields for StdinQuery {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

/// Writes to the standard input of a command
///
/// The body is what is written, byte for byte. Answers when all of it was taken; waits while the command does not read.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/execs/{exec_id}/stdin", tag = "execs", params(ExecPath, StdinQuery),
    request_body(content = inline(Binary), content_type = "application/octet-stream"),
    responses((status = 204, description = "It was written")))]
pub(crate) async fn stdin_of_exec(
    State(app): State<App>,
    Who(caller): Who,
    OfTarget(session, target): OfTarget,
    Params(query): Params<StdinQuery>,
    Raw(bytes): Raw,
) -> Result<StatusCode, Failure> {
    let line = Line { service: app.service().clone(), caller, session, target };
    // Also whoever writes nothing is told when there is nobody to write to.
    line.describe().await?;
    if !bytes.is_empty() {
        line.stdin(StdinChunk::Bytes(bytes.into())).await?;
    }
    if query.end == Some(true) {
        line.stdin(StdinChunk::End).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Writes to the standard input of a managed process
///
/// As to that of a command.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/processes/{process_id}/stdin", tag = "processes",
    params(ProcessPath, StdinQuery),
    request_body(content = inline(Binary), content_type = "application/octet-stream"),
    responses((status = 204, description = "It was written")))]
pub(crate) async fn stdin_of_process(
    state: State<App>,
    who: Who,
    of_target: OfTarget,
    query: Params<StdinQuery>,
    bytes: Raw,
) -> Result<StatusCode, Failure> {
    stdin_of_exec(state, who, of_target, query, bytes).await
}

/// Sends a signal to the main process of a command
#[utoipa::path(post, path = "/v1/sessions/{session_id}/execs/{exec_id}/signal", tag = "execs", params(ExecPath),
    request_body = SignalBody, responses((status = 204, description = "It was sent")))]
pub(crate) async fn signal_to_exec(
    State(app): State<App>,
    Who(caller): Who,
    OfTarget(session, target): OfTarget,
    Body(body): Body<SignalBody>,
) -> Result<StatusCode, Failure> {
    app.service().signal(&caller, &session, &target, body.number()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends a signal to a managed process
#[utoipa::path(post, path = "/v1/sessions/{session_id}/processes/{process_id}/signal", tag = "processes", params(ProcessPath),
    request_body = SignalBody, responses((status = 204, description = "It was sent")))]
pub(crate) async fn signal_to_process(
    state: State<App>,
    who: Who,
    of_target: OfTarget,
    body: Body<SignalBody>,
) -> Result<StatusCode, Failure> {
    signal_to_exec(state, who, of_target, body).await
}

/// Tells the terminal of a command how large it is
#[utoipa::path(post, path = "/v1/sessions/{session_id}/execs/{exec_id}/resize", tag = "execs", params(ExecPath),
    request_body = SizeBody, responses((status = 204, description = "It was told")))]
pub(crate) async fn resize(
    State(app): State<App>,
    Who(caller): Who,
    OfTarget(session, target): OfTarget,
    Body(body): Body<SizeBody>,
) -> Result<StatusCode, Failure> {
    app.service().resize(&caller, &session, &target, body.into_size()?).await?;
    Ok(StatusCode::NO_CONTENT)
}
