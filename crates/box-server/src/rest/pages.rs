//! What needs no token: the front page, the document, and whether we are there.

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use box_core::Caller;
use http::{StatusCode, header};

use crate::app::App;
use crate::failure::Failure;
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
    responses((status = 200, description = "It is", content_type = "text/plain", body = String)))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether boxes can be made now
#[utoipa::path(get, path = "/readyz", tag = "service",
    responses((status = 200, description = "They can", content_type = "text/plain", body = String)))]
pub(crate) async fn readyz(State(app): State<App>) -> Result<&'static str, Failure> {
    let not_ready = |message| Failure::new(StatusCode::SERVICE_UNAVAILABLE, "backend_unavailable", message);
    if app.closing().is_cancelled() {
        return Err(not_ready("the server is stopping"));
    }
    let (_, found) = app.backend(&Caller::local()).await?;
    if found.available { Ok("ready\n") } else { Err(not_ready("no box can be made here; /v1/backend says why")) }
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "service",
    responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(crate) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], routes::document_text()).into_response()
}
