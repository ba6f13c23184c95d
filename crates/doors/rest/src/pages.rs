//! What needs no token: the front page, the document, and whether we are there.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{Html, IntoResponse, Response};
use box_core::Error;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::views::{LiveView, ReadyView, ResourcesView};
use crate::app::App;
use door_http::gate::{self, Reached};
use door_http::observe::Verbatim;

/// The version of this server.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A door: a name, where it is, and what of the documentation describes it.
type Door = (&'static str, &'static str, &'static str);

/// The doors that can be switched off.
#[derive(Debug, Clone, Copy)]
pub struct Doors {
    /// Whether there is one for MCP.
    pub mcp: bool,
    /// Whether there is one for E2B's clients.
    pub e2b: bool,
}

impl Doors {
    /// All doors that are open.
    fn list(self) -> Vec<Door> {
        let all: [(Door, bool); 5] = [
            (("REST", "/v1", "docs/rest.md"), true),
            (("MCP, tools in a box", "/mcp/box", "docs/mcp.md"), self.mcp),
            (("MCP, all servers", "/mcp", "docs/mcp.md"), self.mcp),
            (("E2B", "/", "docs/e2b.md"), self.e2b),
            (("LangBot", "/rpc/ws", "docs/langbot.md"), true),
        ];
        all.into_iter().filter(|(_, is_open)| *is_open).map(|(door, _)| door).collect()
    }
}

/// Commands that work where the client is. A client on another machine has to say which server it means.
fn commands(reached: Option<Reached>) -> Vec<String> {
    let mut commands =
        vec!["strongbox exec demo -- python3 -c 'print(6 * 7)'".to_owned(), "strongbox status".to_owned()];
    let Some(Reached { url, by_loopback }) = reached else { return commands };
    if !by_loopback {
        commands.insert(0, format!("export STRONGBOX_URL={url} STRONGBOX_TOKEN=TOKEN"));
    }
    commands.push(format!("curl -s {url}/openapi.json"));
    commands
}

/// Pages that need no token or say which one is missing.
const LINKS: [(&str, &str); 6] = [
    ("/openapi.json", "the REST interface as an OpenAPI document"),
    ("/v1/status", "how the service stands"),
    ("/v1/sessions", "your sessions"),
    ("/v1/backends", "where boxes can live on this machine"),
    ("/healthz", "whether the server runs"),
    ("/readyz", "whether boxes can be made"),
];

/// What this server is and where to go on: HTML for browsers, JSON where asked for, else text
#[utoipa::path(get, path = "/", tag = "service",
    responses((status = 200, description = "Version, doors, documentation and commands to try",
        content((String = "text/html"), (String = "text/plain"), (Object = "application/json")))))]
pub(crate) async fn front(State(app): State<App>, request: Request) -> Response {
    let accepts = |kind: &str| {
        let values = request.headers().get_all(header::ACCEPT);
        values.iter().filter_map(|value| value.to_str().ok()).any(|value| value.contains(kind))
    };
    let (doors, commands) = (app.doors().list(), commands(gate::reached(&request)));
    let mut response = if accepts("text/html") {
        Html(front_html(&doors, &commands)).into_response()
    } else if accepts("application/json") {
        Json(front_json(&doors, &commands)).into_response()
    } else {
        front_text(&doors, &commands).into_response()
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

fn front_html(doors: &[Door], commands: &[String]) -> String {
    let links = LINKS
        .iter()
        .map(|(path, what)| format!("<li><a href=\"{path}\">{path}</a>: {what}</li>\n"))
        .collect::<Vec<_>>()
        .concat();
    let doors = doors
        .iter()
        .map(|(name, path, docs)| format!("<li>{name}: <code>{path}</code> ({docs})</li>\n"))
        .collect::<Vec<_>>()
        .concat();
    let commands = commands.iter().map(|command| format!("{command}\n")).collect::<Vec<_>>().concat();
    format!(
        "<!doctype html>
<html lang=\"en\">
<head><meta charset=\"utf-8\"><title>Strongbox</title>
<style>body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 44rem; margin: 3rem auto; padding: 0 1rem }}</style></head>
<body>
<h1>Strongbox {VERSION}</h1>
<p>Runs commands in boxes that cannot hurt the host.</p>
<h2>Try</h2>
<pre>{commands}</pre>
<h2>Doors</h2>
<ul>
{doors}</ul>
<h2>Pages</h2>
<ul>
{links}</ul>
</body>
</html>
"
    )
}

fn front_json(doors: &[Door], commands: &[String]) -> Value {
    let doors: Vec<_> =
        doors.iter().map(|(name, path, docs)| json!({ "name": name, "path": path, "docs": docs })).collect();
    json!({ "name": "strongbox", "version": VERSION, "doors": doors, "openapi": "/openapi.json", "try": commands })
}

fn front_text(doors: &[Door], commands: &[String]) -> String {
    let commands = commands.iter().map(|command| format!("  {command}\n")).collect::<Vec<_>>().concat();
    let doors =
        doors.iter().map(|(name, path, docs)| format!("  {name:<20} {path:<10} {docs}\n")).collect::<Vec<_>>().concat();
    let links = LINKS.iter().map(|(path, what)| format!("  {path:<15} {what}\n")).collect::<Vec<_>>().concat();
    format!(
        "Strongbox {VERSION}: runs commands in boxes that cannot hurt the host.\n\nTry:\n{commands}\nDoors:\n{doors}\nPages:\n{links}"
    )
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
    let mut ready = app.ready().await;
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
pub(crate) async fn document(State(app): State<App>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], app.document().to_owned()).into_response()
}
