//! The old form of managed processes: one that needs no name, in a session that exists.

use axum::Json;
use axum::extract::State;
use box_core::call::{Launch, ProcessCall, ProcessInfo};
use box_core::{Caller, SessionId, SessionRequest};
use http::StatusCode;

use super::process_body::{ManagedBody, PathId};
use super::processes;
use crate::app::App;
use crate::extract::{InSession, OfProcess, ProcessPath, SessionPath, Who};
use door_http::body::Body;
use door_http::failure::Failure;

/// Starts a managed process, called `default` unless the body says otherwise
///
/// In a session that exists, by a login shell in a directory that is made if it is not there. A second start while it runs is a
/// conflict.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/managed-process", tag = "managed-process", params(SessionPath),
    request_body = ManagedBody, responses((status = 201, description = "The process", body = ProcessInfo)))]
pub(crate) async fn start(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
    Body(body): Body<ManagedBody>,
) -> Result<(StatusCode, Json<ProcessInfo>), Failure> {
    run(&app, &caller, &session, body.into_call(PathId::Absent)?).await
}

/// Starts a managed process of that id
#[utoipa::path(post, path = "/v1/sessions/{session_id}/managed-process/{process_id}", tag = "managed-process",
    params(ProcessPath), request_body = ManagedBody,
    responses((status = 201, description = "The process", body = ProcessInfo)))]
pub(crate) async fn start_named(
    State(app): State<App>,
    Who(caller): Who,
    OfProcess(session, process): OfProcess,
    Body(body): Body<ManagedBody>,
) -> Result<(StatusCode, Json<ProcessInfo>), Failure> {
    run(&app, &caller, &session, body.into_call(PathId::Given(process))?).await
}

async fn run(
    app: &App,
    caller: &Caller,
    session: &SessionId,
    call: ProcessCall,
) -> Result<(StatusCode, Json<ProcessInfo>), Failure> {
    // Old clients make the session first and expect to be told when it is not there.
    let request = SessionRequest::of_existing();
    let call = ProcessCall { launch: Launch::LoginShell, ..call };
    let info = app.service().start_process(caller, session, &request, call).await?;
    Ok((StatusCode::CREATED, shown(Json(info))))
}

/// Old clients show the end of standard error as it is, so it has no whitespace around it.
fn shown(Json(mut info): Json<ProcessInfo>) -> Json<ProcessInfo> {
    info.stderr_preview = info.stderr_preview.trim().to_owned();
    Json(info)
}

/// Shows the managed process that is called `default`
#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process", tag = "managed-process", params(SessionPath),
    responses((status = 200, description = "The process", body = ProcessInfo)))]
pub(crate) async fn get(state: State<App>, who: Who, process: OfProcess) -> Result<Json<ProcessInfo>, Failure> {
    processes::get(state, who, process).await.map(shown)
}

/// Shows a managed process
#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/{process_id}", tag = "managed-process",
    params(ProcessPath), responses((status = 200, description = "The process", body = ProcessInfo)))]
pub(crate) async fn get_named(state: State<App>, who: Who, process: OfProcess) -> Result<Json<ProcessInfo>, Failure> {
    processes::get(state, who, process).await.map(shown)
}

/// Stops the managed process that is called `default`
#[utoipa::path(delete, path = "/v1/sessions/{session_id}/managed-process", tag = "managed-process", params(SessionPath),
    responses((status = 200, description = "How it ended", body = ProcessInfo)))]
pub(crate) async fn stop(state: State<App>, who: Who, process: OfProcess) -> Result<Json<ProcessInfo>, Failure> {
    processes::stop(state, who, process).await.map(shown)
}

/// Stops a managed process
#[utoipa::path(delete, path = "/v1/sessions/{session_id}/managed-process/{process_id}", tag = "managed-process",
    params(ProcessPath), responses((status = 200, description = "How it ended", body = ProcessInfo)))]
pub(crate) async fn stop_named(state: State<App>, who: Who, process: OfProcess) -> Result<Json<ProcessInfo>, Failure> {
    processes::stop(state, who, process).await.map(shown)
}
