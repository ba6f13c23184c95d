//! Which requests are meant for a sandbox, and for which: by header, by name of the host, by token, or by signature.
//!
//! Such a request goes to the routes of sandboxes before anything else of the server is looked at. Both have a `/metrics`, and
//! a sandbox may have any path at all on its programs' ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use box_e2b_wire::{ENVD_PORT, INTERPRETER_PORT, SandboxHost, SandboxId};
use http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use tower::ServiceExt;

use super::control::measure_inside;
use super::failure::E2bFailure;
use super::ports;
use super::refusal::Refusal;
use super::sandbox_request::{self, SandboxRequest, SandboxTarget, Signature, access_token};
use super::unread::Unread;
use crate::app::App;
use door_http::observe::LedTo;

const SANDBOX_ID: HeaderName = HeaderName::from_static("e2b-sandbox-id");
const SANDBOX_PORT: HeaderName = HeaderName::from_static("e2b-sandbox-port");

/// What is counted for requests that were led to a sandbox.
const INSIDE: &str = "e2b sandbox";
const PORT: &str = "e2b sandbox port";

/// How a request says which sandbox it means.
#[derive(Debug)]
enum Meant {
    /// It is for the server itself.
    Server,
    /// It names one, and a port.
    Named(SandboxId, u16),
    /// It names one that cannot be.
    Nobody(String),
    /// It shows the token of one.
    ByToken(String, u16),
    /// It shows a signature of one.
    Signed(Signature),
    /// It is for a sandbox and does not say for which.
    Unsaid,
    /// It says half of what it should.
    Nonsense(&'static str),
}

/// What every sandbox has, besides what the doors to its inside have.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/health", get(health))
        .route("/envs", get(envs))
        .route("/metrics", get(measure_inside))
        .fallback(no_such_path)
}

/// Leads requests that are meant for a sandbox to its routes.
pub(crate) async fn lead(State((app, inside)): State<(App, Router)>, request: Request, next: Next) -> Response {
    let target = match address(&app, meant(&request)).await {
        Ok(None) => return next.run(request).await,
        Ok(Some(target)) => Ok(target),
        Err(refusal) => Err(refusal),
    };
    let answer = async |request| match target {
        Ok(target) => lead_to(&app, inside, target, request).await,
        Err(refusal) => refusal.into_response(),
    };
    Unread::heard_out(request, answer).await
}

async fn lead_to(app: &App, inside: Router, target: SandboxTarget, mut request: Request) -> Response {
    if !matches!(target.port, ENVD_PORT | INTERPRETER_PORT) {
        return counted(lead_to_port(app, target, request).await, PORT);
    }
    request.extensions_mut().insert(target);
    match inside.oneshot(request).await {
        Ok(response) => counted(response, INSIDE),
        Err(never) => match never {},
    }
}

/// The server may have a route of the same path, which has nothing to do with it.
fn counted(mut response: Response, route: &'static str) -> Response {
    response.extensions_mut().insert(LedTo(route));
    response
}

async fn address(app: &App, meant: Meant) -> Result<Option<SandboxTarget>, Refusal> {
    let directory = app.e2b().directory();
    let (found, port, name) = match meant {
        Meant::Server => return Ok(None),
        Meant::Nonsense(message) => return Err(Refusal::Failed(E2bFailure::invalid(message))),
        Meant::Nobody(name) => return Err(Refusal::NotFound(name)),
        Meant::Named(sandbox, port) => (directory.find(&sandbox).await?, port, sandbox.to_string()),
        // A token that opens nothing any more was that of a sandbox that is gone.
        Meant::ByToken(token, port) => (directory.opened_by(&token).await?, port, String::new()),
        Meant::Signed(signature) => {
            let signed = directory.whose_token(|token| signature.is_made_with(token)).await?;
            (Some(signed.ok_or(Refusal::Unauthorized)?), ENVD_PORT, String::new())
        }
        Meant::Unsaid => return Err(Refusal::Unauthorized),
    };
    let found = found.and_then(|row| Some((row.key.id.as_str().parse().ok()?, row)));
    let (sandbox, row) = found.ok_or(Refusal::NotFound(name))?;
    Ok(Some(SandboxTarget { sandbox, row, port }))
}

/// Whether a request goes to this port of this sandbox, by the same decision that leads it there.
pub(crate) fn is_meant_for(request: &Request, named: &SandboxHost) -> bool {
    matches!(meant(request), Meant::Named(sandbox, port) if sandbox == named.sandbox && port == named.port)
}

/// Whether a request stays with the server, by the same decision.
pub(crate) fn is_for_server(request: &Request) -> bool {
    matches!(meant(request), Meant::Server)
}

fn meant(request: &Request) -> Meant {
    let headers = request.headers();
    match (headers.get(SANDBOX_ID), headers.get(SANDBOX_PORT)) {
        (Some(id), Some(port)) => {
            let text = id.to_str().unwrap_or_default();
            let port = port.to_str().ok().and_then(|port| port.parse().ok()).filter(|port| *port > 0);
            return match (text.parse(), port) {
                (_, Some(ENVD_PORT)) if is_about_sandboxes(request.uri().path()) => Meant::Server,
                (Ok(sandbox), Some(port)) => Meant::Named(sandbox, port),
                (_, None) => Meant::Nonsense("E2b-Sandbox-Port must be the number of a port"),
                (Err(_), _) => Meant::Nobody(text.to_owned()),
            };
        }
        (Some(_), None) => return Meant::Nonsense("E2b-Sandbox-Id needs E2b-Sandbox-Port with it"),
        (None, Some(_)) => return Meant::Nonsense("E2b-Sandbox-Port needs E2b-Sandbox-Id with it"),
        (None, None) => {}
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(http::uri::Authority::as_str));
    if let Some(host) = host.and_then(SandboxHost::parse) {
        return Meant::Named(host.sandbox, host.port);
    }
    if is_only_inside(request.uri().path()) || shows_token(headers, request.uri().path()) {
        return meant_by_secret(request);
    }
    Meant::Server
}

fn meant_by_secret(request: &Request) -> Meant {
    if request.headers().contains_key(sandbox_request::ACCESS_TOKEN) {
        let token = access_token(request.headers()).filter(|token| is_token_of_ours(token));
        return token.map_or(Meant::Unsaid, |token| Meant::ByToken(token.to_owned(), usual_port(request.uri())));
    }
    Signature::of(request.method(), request.uri()).map_or(Meant::Unsaid, Meant::Signed)
}

/// Paths of the control plane. Old clients name the sandbox in headers too when they connect to it, and mean the server: no
/// sandbox has such a path on its own port.
fn is_about_sandboxes(path: &str) -> bool {
    let path = path.strip_prefix("/v2").unwrap_or(path);
    path == "/sandboxes" || path.starts_with("/sandboxes/")
}

/// Paths that only sandboxes have.
fn is_only_inside(path: &str) -> bool {
    let starts = ["/process.Process/", "/filesystem.Filesystem/", "/files/", "/contexts/"];
    matches!(path, "/files" | "/envs" | "/execute" | "/contexts") || starts.iter().any(|start| path.starts_with(start))
}

/// Paths that the server has too are meant for the sandbox whose token is shown.
fn shows_token(headers: &HeaderMap, path: &str) -> bool {
    matches!(path, "/metrics" | "/health") && headers.contains_key(sandbox_request::ACCESS_TOKEN)
}

/// The port by which a path is asked that comes without one.
fn usual_port(uri: &Uri) -> u16 {
    let path = uri.path();
    let is_code = matches!(path, "/execute" | "/contexts") || path.starts_with("/contexts/");
    if is_code { INTERPRETER_PORT } else { ENVD_PORT }
}

/// Whether a text can be an access token that we made.
fn is_token_of_ours(token: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    token.len() == 64 && token.bytes().all(is_digit)
}

async fn lead_to_port(app: &App, target: SandboxTarget, request: Request) -> Response {
    if let Err(refusal) = target.admits(request.headers()) {
        return refusal.into_response();
    }
    match target.reach(app).await {
        Ok(sandbox_request) => ports::pass(app, sandbox_request, request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Whether the sandbox runs. Whoever only asks does not make it go on.
async fn health(State(app): State<App>, Extension(target): Extension<SandboxTarget>) -> Result<StatusCode, Refusal> {
    if !target.is_running(&app) {
        return Err(target.absent());
    }
    Ok(if target.port == INTERPRETER_PORT { StatusCode::OK } else { StatusCode::NO_CONTENT })
}

/// The variables of everything that runs in the sandbox.
async fn envs(sandbox_request: SandboxRequest) -> Json<BTreeMap<String, String>> {
    Json(Arc::unwrap_or_clone(sandbox_request.env))
}

/// There is nothing else inside, and what is for E2B's own machinery is not there either.
async fn no_such_path(uri: Uri) -> Refusal {
    Refusal::NoSuchPath(uri.path().to_owned())
}

#[cfg(test)]
mod tests;
