//! The routes of the code interpreter.

use std::collections::BTreeMap;
use std::io;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use box_core::SessionRequest;
use box_core::code::{CodeCall, CodeContext, CodeLanguage, CodeTimeout, ContextCall, ContextChoice};
use box_core::service::CodeRun;
use box_wire::GuestPath;
use bytes::Bytes;
use futures_util::stream;
use http::{StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::answer::Refused;
use super::line;
use crate::app::App;
use crate::limits;
use crate::sandbox_request::{OpenSandboxRequest, SandboxRequest};
use door_http::body::{Fields, Raw};
use door_http::observe::Verbatim;

/// Where contexts start, unless a client says otherwise.
const HOME: &str = "/home/user";

/// What `/execute` is asked.
#[derive(Debug, Deserialize)]
struct ExecuteBody {
    code: String,
    #[serde(default)]
    context_id: Option<String>,
    #[serde(default)]
    language: Option<String>,
    #[serde(default)]
    env_vars: Option<BTreeMap<String, String>>,
}

/// What a new context is to be.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContextBody {
    language: Option<String>,
    cwd: Option<String>,
}

/// What is asked by the interpreter's port.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/execute", post(execute))
        .route("/contexts", get(list).post(make))
        .route("/contexts/{id}", delete(remove))
        .route("/contexts/{id}/restart", post(restart))
}

/// Runs a cell, and streams what it does.
async fn execute(State(app): State<App>, sandbox_request: SandboxRequest, Raw(body): Raw) -> Result<Response, Refused> {
    let body: ExecuteBody = read(&body)?;
    let context = match (body.context_id, body.language) {
        (Some(_), Some(_)) => return Err(Refused::invalid("Only one of context_id or language can be provided")),
        (Some(id), None) => ContextChoice::Existing(id),
        (None, name) => ContextChoice::OfLanguage(language(name.as_deref())?),
    };
    let call = CodeCall {
        code: body.code,
        context,
        env: body.env_vars.unwrap_or_default(),
        cwd: Some(guest_path(HOME)?),
        // Clients keep the time themselves, and leave when it has passed.
        timeout: CodeTimeout::Unlimited,
    };
    let SandboxRequest { caller, session, .. } = sandbox_request;
    let run = app.service().run_code(&caller, &session, &SessionRequest::of_existing(), call).await?;
    Ok(streamed(run, app.closing().clone()))
}

/// Lists the contexts.
async fn list(
    State(app): State<App>,
    OpenSandboxRequest(sandbox_request): OpenSandboxRequest,
) -> Result<Json<Vec<Value>>, Refused> {
    let SandboxRequest { caller, session, .. } = sandbox_request;
    let started = app.service().code_contexts(&caller, &session).await?;
    // As in E2B's sandboxes, these two are listed before their first use starts them.
    let own =
        [CodeLanguage::Python, CodeLanguage::JavaScript].map(|language| (language, format!("default-{language}")));
    let unstarted = own.into_iter().filter(|(_, id)| started.iter().all(|context| context.context_id != *id));
    let unstarted = unstarted.map(|(language, id)| json!({ "id": id, "language": language, "cwd": HOME }));
    Ok(Json(unstarted.chain(started.iter().map(described)).collect()))
}

/// Creates a context.
async fn make(
    State(app): State<App>,
    OpenSandboxRequest(sandbox_request): OpenSandboxRequest,
    Raw(body): Raw,
) -> Result<Json<Value>, Refused> {
    let body: ContextBody = if body.is_empty() { ContextBody::default() } else { read(&body)? };
    let cwd = guest_path(body.cwd.as_deref().unwrap_or(HOME))?;
    let call = ContextCall { language: language(body.language.as_deref())?, cwd: Some(cwd) };
    let SandboxRequest { caller, session, .. } = sandbox_request;
    let request = SessionRequest::of_existing();
    Ok(Json(described(&app.service().create_code_context(&caller, &session, &request, call).await?)))
}

/// Deletes a context, whatever it does.
async fn remove(
    State(app): State<App>,
    OpenSandboxRequest(sandbox_request): OpenSandboxRequest,
    Path(id): Path<String>,
) -> Result<StatusCode, Refused> {
    let SandboxRequest { caller, session, .. } = sandbox_request;
    app.service().delete_code_context(&caller, &session, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restarts a context, whatever it does.
async fn restart(
    State(app): State<App>,
    OpenSandboxRequest(sandbox_request): OpenSandboxRequest,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refused> {
    let SandboxRequest { caller, session, .. } = sandbox_request;
    let home = Some(guest_path(HOME)?);
    Ok(Json(described(&app.service().restart_code_context(&caller, &session, &id, home).await?)))
}

fn language(name: Option<&str>) -> Result<CodeLanguage, Refused> {
    Ok(name.filter(|name| !name.is_empty()).map(str::parse).transpose()?.unwrap_or_default())
}

/// A directory, below the home of the user unless it starts with a slash.
fn guest_path(cwd: &str) -> Result<GuestPath, Refused> {
    let absolute = match cwd {
        "~" => HOME.to_owned(),
        _ => match cwd.strip_prefix("~/") {
            Some(below) => format!("{HOME}/{below}"),
            None if cwd.starts_with('/') => cwd.to_owned(),
            None => format!("{HOME}/{cwd}"),
        },
    };
    Ok(GuestPath::parse("cwd", &absolute)?)
}

fn described(context: &CodeContext) -> Value {
    json!({ "id": context.context_id, "language": context.language, "cwd": context.cwd })
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refused> {
    Ok(Fields::from_json(body)?.take()?)
}

/// The answer: a line for each event, and one now and then while there is none.
fn streamed(run: CodeRun, closing: CancellationToken) -> Response {
    let lines = stream::unfold((run, Some(closing)), |(mut run, mut closing)| async {
        let line = loop {
            let stops = async {
                match &closing {
                    Some(closing) => closing.cancelled().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = run.next() => match event {
                    Ok(Some(event)) => break Ok(line::of(&event)),
                    Ok(None) => return None,
                    // The client must not take partial output as complete.
                    Err(error) => break Err(io::Error::new(io::ErrorKind::ConnectionAborted, error.to_string())),
                },
                () = tokio::time::sleep(limits::CELL_KEEPALIVE_EVERY) => break Ok(line::keepalive()),
                () = stops => {}
            }
            // The events that follow tell the client that the server stops.
            run.detach();
            closing = None;
        };
        Some((line, (run, closing)))
    });
    Verbatim::wrap(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

#[cfg(test)]
mod tests;
