//! The service as a whole: how it stands, what it can do, what went wrong.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use box_core::service::{BackendInfo, RecentError, StatusInfo};
use http::header;

use super::views::{BackendView, HealthView};
use crate::app::App;
use crate::extract::Who;
use door_http::failure::Failure;

/// Whether boxes can be made
#[utoipa::path(get, path = "/v1/health", tag = "service",
    responses((status = 200, description = "How the backend stands", body = HealthView)))]
pub(crate) async fn health(State(app): State<App>, Who(caller): Who) -> Result<Json<HealthView>, Failure> {
    let (name, found) = app.service().backend_info(&caller).await?;
    Ok(Json(HealthView { name, available: found.available }))
}

/// How the service stands
#[utoipa::path(get, path = "/v1/status", tag = "service",
    responses((status = 200, description = "How it stands", body = StatusInfo)))]
pub(crate) async fn status(State(app): State<App>, Who(caller): Who) -> Result<Json<StatusInfo>, Failure> {
    Ok(Json(app.service().status(&caller).await?))
}

/// What boxes hold on this machine, and what would make them hold more
#[utoipa::path(get, path = "/v1/backend", tag = "service",
    responses((status = 200, description = "What was found", body = BackendView)))]
pub(crate) async fn backend(State(app): State<App>, Who(caller): Who) -> Result<Json<BackendView>, Failure> {
    let (name, found) = app.service().backend_info(&caller).await?;
    Ok(Json(BackendView::new(name, found)))
}

/// All backends: whether boxes can be made on each, why not, and which one is chosen
#[utoipa::path(get, path = "/v1/backends", tag = "service",
    responses((status = 200, description = "The backends, in the order in which they are tried unless told otherwise",
        body = Vec<BackendInfo>)))]
pub(crate) async fn backends(State(app): State<App>, Who(caller): Who) -> Result<Json<Vec<BackendInfo>>, Failure> {
    Ok(Json(app.service().backends(&caller).await?))
}

/// What went wrong lately, newest first
#[utoipa::path(get, path = "/v1/errors", tag = "service",
    responses((status = 200, description = "What went wrong", body = Vec<RecentError>)))]
pub(crate) async fn errors(State(app): State<App>, Who(caller): Who) -> Result<Json<Vec<RecentError>>, Failure> {
    Ok(Json(app.service().recent_errors(&caller)?))
}

/// Numbers for Prometheus. Needs the scope admin
#[utoipa::path(get, path = "/metrics", tag = "service",
    responses((status = 200, description = "OpenMetrics", content_type = "application/openmetrics-text", body = String)))]
pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, Failure> {
    let text = app.metrics().text().map_err(|error| Failure::internal(error.to_string()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
