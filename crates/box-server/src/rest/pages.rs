//! What needs no token: the front page, the document, and whether we are there.

use axum::Json;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use box_core::Error;
use http::{StatusCode, header};
use serde_json::{Value, json};

use super::views::{LiveView, ReadyView, ResourcesView};
use crate::app::App;
use crate::observe::Verbatim;
use crate::routes;

const FRONT: &str = "<!doctype html>
<html lang=\"en\">
<head><meta charset=\"utf-8\"><title>Strongbox</title>
<style>body { font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }</style></head>
<body>
<h1>Strongbox</h1>
<p>Runs commands in boxes that cannot hurt the host. This is its REST interface.</p>
<ul>
<li><a href=\"/openapi.json\">/openapi.json</a>: everything that can be asked</li>
<li><a href=\"/v1/status\">/v1/status</a>: how the service stands</li>
<li><a href=\"/v1/sessions\">/v1/sessions</a>: your sessions</li>
<li><a href=\"/v1/backend\">/v1/backend</a>: what boxes hold on this machine</li>
<li><a href=\"/v1/backends\">/v1/backends</a>: where boxes can live here</li>
<li><a href=\"/healthz\">/healthz</a> and <a href=\"/readyz\">/readyz</a>: whether it is there, and whether boxes can be made</li>
</ul>
</body>
</html>
";

/// A small page with links
#[utoipa::path(get, path = "/", tag = "service",
    responses((status = 200, description = "A page", content_type = "text/html", body = String)))]
pub(crate) async fn front() -> Html<&'static str> {
    Html(FRONT)
}

/// Whether the server is there
#[utoipa::path(get, path = "/healthz", tag = "service",
    responses((status = 200, description = "It is, and this is what it holds", body = LiveView)))]
pub(crate) async fn healthz(State(app): State<App>) -> Json<LiveView> {
    Json(LiveView { live: true, resources: resources(&app) })
}

/// Whether boxes can be made now
#[utoipa::path(get, path = "/readyz", tag = "service",
    responses(
        (status = 200, description = "They can", body = ReadyView),
        (status = 503, description = "They cannot; `error` says why", body = ReadyView)))]
pub(crate) async fn readyz(State(app): State<App>) -> Response {
    let mut ready = app.langbot().ready().await;
    let writable = app.service().check_writable();
    let is_ready = !app.closing().is_cancelled() && writable.is_ok() && ready.get("ready") == Some(&Value::Bool(true));
    ready.insert("ready".to_owned(), json!(is_ready));
    ready.insert("resources".to_owned(), json!(resources(&app)));
    if is_ready {
        return Json(ready).into_response();
    }
    let message = match (ready.remove("error"), &writable) {
        _ if app.closing().is_cancelled() => json!("the server is stopping"),
        (Some(error), _) => error,
        (None, Err(error)) => json!(error.to_string()),
        (None, Ok(())) => json!("no box can be made here; /v1/backend says why"),
    };
    let code = match (app.service().presence(), writable) {
        (Err(error @ Error::Disabled), _) | (Ok(()), Err(error)) => error.code(),
        _ => "backend_unavailable",
    };
    ready.insert("error".to_owned(), json!({ "code": code, "message": message }));
    Verbatim::wrap((StatusCode::SERVICE_UNAVAILABLE, Json(ready)).into_response())
}

/// What the server holds, of all tenants.
fn resources(app: &App) -> ResourcesView {
    let counters = app.service().counters();
    ResourcesView {
        sessions: counters.sessions,
        managed_processes: counters.processes_running,
        completed_processes: 0,
        creating_session_tasks: 0,
        closing_session_tasks: 0,
        background_tasks: app.tasks().len() as u64,
        event_loop: json!({}),
        blocking_executor: json!({}),
    }
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "service",
    responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(crate) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], routes::document_text()).into_response()
}
