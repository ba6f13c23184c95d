//! The routes of the code interpreter.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use box_core::tasks::Start as _;
use bytes::Bytes;
use http::{StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;

use super::answer::Refused;
use super::cell::{Client, Waiting};
use super::contexts::{self, Context, Contexts};
use super::language::{self, Cell, Language};
use crate::app::App;
use crate::limits;
use crate::sandbox_request::{OpenSandboxRequest, SandboxRequest};
use door_http::body::{Fields, Raw};
use door_http::observe::Verbatim;

/// Lines that wait for a client that does not read.
const LINES_WAITING_MAX: usize = 16;

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
    let contexts = contexts_of(&app, sandbox_request);
    let context = chosen(&app, &contexts, body.context_id, body.language).await?;
    let env = body.env_vars.unwrap_or_default();
    if let Some(objection) = context.language.objection(&body.code, &env) {
        return Err(Refused::invalid(objection));
    }
    let turn = contexts.turn(&context.id);
    let place = turn.queue().ok_or_else(|| {
        Refused::too_many(format!("{} cells wait for this context already; use another one", limits::CELLS_WAITING_MAX))
    })?;
    let (lines, told) = mpsc::channel(LINES_WAITING_MAX);
    let cell = Cell { number: number()?, code: body.code, env };
    let (client, closing) = (Client(lines), app.closing().clone());
    app.tasks().start(Waiting { contexts, context, turn, place, cell, client, closing }.run());
    Ok(streamed(told))
}

/// The contexts that there are.
async fn list(
    State(app): State<App>,
    OpenSandboxRequest(sandbox_request): OpenSandboxRequest,
) -> Result<Json<Vec<Value>>, Refused> {
    let all = contexts_of(&app, sandbox_request).list().await?;
    let unstarted = contexts::not_started_yet(&all)
        .map(|language| language::described(&contexts::default_id(language), language, contexts::HOME));
    Ok(Json(unstarted.chain(all.iter().map(described)).collect()))
}

/// Makes a context.
async fn make(
    State(app): State<App>,
    OpenSandboxRequest(sandbox_request): OpenSandboxRequest,
    Raw(body): Raw,
) -> Result<Json<Value>, Refused> {
    let body: ContextBody = if body.is_empty() { ContextBody::default() } else { read(&body)? };
    let (contexts, language) = (contexts_of(&app, sandbox_request), language(body.language.as_deref())?);
    let making = async move { contexts.make(language, body.cwd.as_deref()).await };
    Ok(Json(described(&to_the_end(&app, making).await?)))
}

/// Removes a context, whatever it does.
async fn remove(
    State(app): State<App>,
    OpenSandboxRequest(sandbox_request): OpenSandboxRequest,
    Path(id): Path<String>,
) -> Result<StatusCode, Refused> {
    let contexts = contexts_of(&app, sandbox_request);
    to_the_end(&app, async move { contexts.remove(&id).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restarts a context, whatever it does.
async fn restart(
    State(app): State<App>,
    OpenSandboxRequest(sandbox_request): OpenSandboxRequest,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refused> {
    let contexts = contexts_of(&app, sandbox_request);
    let context = match contexts::default_language(&id) {
        Some(language) => default_context(&app, &contexts, language).await?,
        None => contexts.find(&id).await?,
    };
    let turn = contexts.turn(&id);
    let restarting = async move {
        let _starting = turn.starting().await;
        contexts.restart(&context).await
    };
    Ok(Json(described(&to_the_end(&app, restarting).await?)))
}

/// The context that is meant; that of a language is made when it is first used.
async fn chosen(app: &App, contexts: &Contexts, id: Option<String>, name: Option<String>) -> Result<Context, Refused> {
    match (id, name) {
        (Some(_), Some(_)) => Err(Refused::invalid("Only one of context_id or language can be provided")),
        (Some(id), None) => match contexts::default_language(&id) {
            Some(language) => default_context(app, contexts, language).await,
            None => contexts.find(&id).await,
        },
        (None, name) => default_context(app, contexts, language(name.as_deref())?).await,
    }
}

/// The context of a language, started where it is not.
async fn default_context(app: &App, contexts: &Contexts, language: Language) -> Result<Context, Refused> {
    let id = contexts::default_id(language);
    let turn = contexts.turn(&id);
    let contexts = contexts.clone();
    let finding = async move {
        let _starting = turn.starting().await;
        match contexts.find(&id).await {
            Ok(context) => Ok(context),
            Err(_) => contexts.start(&id, language, contexts::HOME).await,
        }
    };
    to_the_end(app, finding).await
}

/// Does something to its end, also when the client leaves: a context that was told half of its program is of no use.
async fn to_the_end<T: Send + 'static>(
    app: &App,
    something: impl Future<Output = Result<T, Refused>> + Send + 'static,
) -> Result<T, Refused> {
    let done = app.tasks().start(something).await;
    done.unwrap_or_else(|_| Err(Refused::unavailable("this failed in a way that it should not have; try again")))
}

fn contexts_of(app: &App, sandbox_request: SandboxRequest) -> Contexts {
    let SandboxRequest { caller, session, env, .. } = sandbox_request;
    Contexts { service: app.service().clone(), caller, session, env, turns: Arc::clone(app.e2b().cell_turns()) }
}

fn language(name: Option<&str>) -> Result<Language, Refused> {
    let name = name.filter(|name| !name.is_empty()).unwrap_or("python");
    Language::parse(name).ok_or_else(|| {
        let (shown, known) = (name.chars().take(64).collect::<String>(), Language::ALL.map(Language::name).join(", "));
        Refused::invalid(format!("language {shown:?} is not served here; these are: {known}"))
    })
}

fn described(context: &Context) -> Value {
    language::described(&context.id, context.language, &context.cwd)
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refused> {
    Ok(Fields::from_json(body)?.take()?)
}

/// A number that no cell had before.
fn number() -> Result<u64, Refused> {
    let bytes = box_core::random::bytes::<8>().map_err(|error| box_core::Error::io("numbering a cell", error))?;
    // Programs of contexts count with doubles.
    Ok(u64::from_be_bytes(bytes) >> 12)
}

fn streamed(mut told: mpsc::Receiver<io::Result<Bytes>>) -> Response {
    let lines = futures_util::stream::poll_fn(move |context| told.poll_recv(context));
    Verbatim::wrap(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

#[cfg(test)]
mod tests;
