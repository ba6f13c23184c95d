//! Code: run in contexts that keep their names, and the contexts.

use std::convert::Infallible;

use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use box_core::code::{CodeCollector, CodeContext, CodeEvent, CodeResult};
use box_core::service::CodeRun;
use futures_util::stream;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::code_body::{CodeBody, ContextBody};
use super::execs::accepts_events;
use crate::app::App;
use crate::extract::{ContextPath, InSession, OfContext, SessionPath, Who};
use crate::limits;
use door_http::body::Body;
use door_http::failure::Failure;

/// Runs code
///
/// Makes the session if there is none of that id, and starts the context of the language if it does not run. Names that the code
/// defines are there for the next code in the same context; code of one context runs one after another. Answers when the code
/// has ended; an error of the code is a result with `status` `failed`. With `Accept: text/event-stream` the answer is a stream of
/// events (`started`, `output`, `result`, `failed`, `ended`). A client that hangs up interrupts the code.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/code", tag = "code", request_body = CodeBody, params(SessionPath),
    responses((status = 200, description = "It has ended", content(
        (CodeResult = "application/json", example = json!({
            "session_id": "demo", "context_id": "default-python", "language": "python", "status": "completed",
            "execution_count": 1, "stdout": "", "stderr": "", "stdout_truncated": false, "stderr_truncated": false,
            "results": [{"is_main_result": true, "text": "2432902008176640000"}], "results_dropped": 0, "error": null,
            "duration_ms": 12, "timeout_ms": 10000, "timeout_limit": null
        })),
        (String = "text/event-stream")))))]
pub(crate) async fn run(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
    headers: HeaderMap,
    Body(body): Body<CodeBody>,
) -> Result<Response, Failure> {
    let (request, call, limit_chars) = body.into_call()?;
    let run = app.service().run_code(&caller, &session, &request, call).await?;
    let collector = run.collector(limit_chars);
    let mut events = Events { run, collector: Some(collector), closing: Some(app.closing().clone()) };
    if accepts_events(&headers) {
        return Ok(streamed(events));
    }
    while let Some(event) = events.next().await? {
        if let Some(collector) = &mut events.collector {
            collector.add(event);
        }
    }
    Ok(Json(events.result()).into_response())
}

/// Lists the contexts of a session that were started
#[utoipa::path(get, path = "/v1/sessions/{session_id}/code/contexts", tag = "code", params(SessionPath),
    responses((status = 200, description = "The contexts", body = Vec<CodeContext>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
) -> Result<Json<Vec<CodeContext>>, Failure> {
    Ok(Json(app.service().code_contexts(&caller, &session).await?))
}

/// Creates a context
///
/// It knows nothing of the names of other contexts, and its code runs beside theirs. Makes the session if there is none of that id.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/code/contexts", tag = "code", request_body = ContextBody,
    params(SessionPath), responses((status = 201, description = "The context", body = CodeContext)))]
pub(crate) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
    Body(body): Body<ContextBody>,
) -> Result<(StatusCode, Json<CodeContext>), Failure> {
    let (request, call) = body.into_call()?;
    let context = app.service().create_code_context(&caller, &session, &request, call).await?;
    Ok((StatusCode::CREATED, Json(context)))
}

/// Deletes a context, and interrupts its code
///
/// That of a language is started again by its next use.
#[utoipa::path(delete, path = "/v1/sessions/{session_id}/code/contexts/{context_id}", tag = "code", params(ContextPath),
    responses((status = 204, description = "It is deleted")))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    OfContext(session, context): OfContext,
) -> Result<StatusCode, Failure> {
    app.service().delete_code_context(&caller, &session, &context).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restarts a context, without its names
///
/// Code that runs in it ends with an error.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/code/contexts/{context_id}/restart", tag = "code",
    params(ContextPath), responses((status = 200, description = "The context", body = CodeContext)))]
pub(crate) async fn restart(
    State(app): State<App>,
    Who(caller): Who,
    OfContext(session, context): OfContext,
) -> Result<Json<CodeContext>, Failure> {
    Ok(Json(app.service().restart_code_context(&caller, &session, &context, None).await?))
}

/// The events of a call, until its end or until the server stops.
struct Events {
    run: CodeRun,
    collector: Option<CodeCollector>,
    closing: Option<CancellationToken>,
}

impl Events {
    async fn next(&mut self) -> Result<Option<CodeEvent>, Failure> {
        if let Some(closing) = &self.closing {
            tokio::select! {
                event = self.run.next() => return Ok(event?),
                () = closing.cancelled() => {}
            }
            // The events that follow tell the client that the server stops.
            self.run.detach();
            self.closing = None;
        }
        Ok(self.run.next().await?)
    }

    fn result(&mut self) -> CodeResult {
        let collector = self.collector.take().unwrap_or_else(|| self.run.collector(None));
        self.run.finish(collector)
    }
}

/// The answer as server-sent events. The last one carries the result.
fn streamed(events: Events) -> Response {
    let events = stream::unfold(Some(events), |events| async {
        let mut events = events?;
        let (name, data) = match events.next().await {
            Ok(Some(event)) => {
                let frame = frame(&events.run.context, &event);
                if let Some(collector) = &mut events.collector {
                    collector.add(event);
                }
                match frame {
                    Some(frame) => frame,
                    None => ("ended", value(&events.result())),
                }
            }
            Ok(None) => return None,
            Err(failure) => return Some((Ok(written("error", &value(&failure.body(None)))), None)),
        };
        Some((Ok::<_, Infallible>(written(name, &data)), Some(events)))
    });
    let alive = KeepAlive::new().interval(limits::EVENTS_ALIVE_EVERY);
    // Proxies that collect what they pass on would turn a stream into one late answer.
    ([("x-accel-buffering", "no")], Sse::new(events).keep_alive(alive)).into_response()
}

/// The name and data of an event; nothing for the end, which carries the result.
fn frame(context: &CodeContext, event: &CodeEvent) -> Option<(&'static str, Value)> {
    Some(match event {
        CodeEvent::Started { execution_count } => {
            let (id, language) = (&context.context_id, context.language);
            ("started", json!({ "context_id": id, "language": language, "execution_count": execution_count }))
        }
        CodeEvent::Output(output) => ("output", json!({ "stream": output.stream, "text": output.text })),
        CodeEvent::Display(shown) => ("result", value(shown)),
        CodeEvent::Failed(error) => ("failed", value(error)),
        CodeEvent::Ended(_) => return None,
    })
}

fn value(of: &impl serde::Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

fn written(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}
