//! Managed processes: started, listed, shown and stopped.

use axum::Json;
use axum::extract::State;
use box_core::call::ProcessInfo;
use http::StatusCode;

use super::process_body::ProcessBody;
use crate::app::App;
use crate::extract::{InSession, OfProcess, ProcessPath, SessionPath, Who};
use door_http::body::Body;
use door_http::failure::Failure;

/// Lists the managed processes of a session
#[utoipa::path(get, path = "/v1/sessions/{session_id}/processes", tag = "processes", params(SessionPath),
    responses((status = 200, description = "The processes", body = Vec<ProcessInfo>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
) -> Result<Json<Vec<ProcessInfo>>, Failure> {
    Ok(Json(app.service().list_processes(&caller, &session).await?))
}

/// Starts a managed process
///
/// Makes the session if there is none of that id. It lives until it is stopped or its session ends, whoever hangs up.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/processes", tag = "processes", params(SessionPath),
    request_body = ProcessBody, responses((status = 201, description = "The process", body = ProcessInfo)))]
pub(crate) async fn start(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
    Body(body): Body<ProcessBody>,
) -> Result<(StatusCode, Json<ProcessInfo>), Failure> {
    let (request, call) = body.into_call()?;
    let info = app.service().start_process(&caller, &session, &request, call).await?;
    Ok((StatusCode::CREATED, Json(info)))
}

/// Shows a managed process
#[utoipa::path(get, path = "/v1/sessions/{session_id}/processes/{process_id}", tag = "processes", params(ProcessPath),
    responses((status = 200, description = "The process", body = ProcessInfo)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    OfProcess(session, process): OfProcess,
) -> Result<Json<ProcessInfo>, Failure> {
    Ok(Json(app.service().get_process(&caller, &session, &process).await?))
}

/// Stops a managed process
///
/// First its input ends, then it is asked, then it is killed. Nothing of it is remembered afterwards.
#[utoipa::path(delete, path = "/v1/sessions/{session_id}/processes/{process_id}", tag = "processes", params(ProcessPath),
    responses((status = 200, description = "How it ended", body = ProcessInfo)))]
pub(crate) async fn stop(
    State(app): State<App>,
    Who(caller): Who,
    OfProcess(session, process): OfProcess,
) -> Result<Json<ProcessInfo>, Failure> {
    let info = app.service().stop_process(&caller, &session, &process).await?;
    Ok(Json(info))
}
