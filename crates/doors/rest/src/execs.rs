//! Commands: started, waited for, listed, shown and cancelled.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use box_core::call::{Cursor, ExecInfo, ExecResult, Target};
use box_core::{Caller, SessionId, limits as core_limits};
use box_wire::ExecId;
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use tokio::time::timeout;

use super::exec_body::ExecBody;
use crate::app::App;
use crate::events;
use crate::extract::{ExecPath, InSession, OfExec, SessionPath, Who};
use door_http::body::{self, Body, Fields, FromFields, Params};
use door_http::failure::Failure;
use door_http::feed::Line;

/// How to answer.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExecQuery {
    /// Whether to answer when the command has ended, which is so unless this says `false`.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    wait: Option<bool>,
}

/// How long to wait.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ResultQuery {
    /// How long to wait; until the end when not given.
    #[serde(default, deserialize_with = "body::number")]
    timeout_sec: Option<f64>,
}

impl FromFields for ExecQuery {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl FromFields for ResultQuery {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl ResultQuery {
    fn time(&self) -> Result<Option<Duration>, Failure> {
        let bad = |_| Failure::invalid("timeout_sec", "invalid timeout_sec: a number of seconds, not negative");
        self.timeout_sec.map(Duration::try_from_secs_f64).transpose().map_err(bad)
    }
}

/// Runs a command
///
/// Makes the session if there is none of that id. Answers with the result when the command has ended. With `?wait=false` the
/// answer comes at once; with `Accept: text/event-stream` it is a stream of events (`started`, `output`, `gap`, `ended`), each
/// with a cursor as its id. Whoever hangs up does not end the command. Two calls with one `Idempotency-Key` are one command.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/exec", tag = "execs", request_body = ExecBody,
    params(SessionPath, ExecQuery, ("Idempotency-Key" = Option<String>, Header, description = "Two calls with one key are one command")),
    responses(
        (status = 200, description = "It has ended", content((ExecResult = "application/json"), (String = "text/event-stream"))),
        (status = 202, description = "It runs", body = ExecInfo)))]
pub(crate) async fn exec(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
    Params(query): Params<ExecQuery>,
    headers: HeaderMap,
    Body(body): Body<ExecBody>,
) -> Result<Response, Failure> {
    let form = body.form();
    let (request, mut call) = body.into_call()?;
    call.idempotency_key = idempotency_key(&headers)?;
    let wanted = Answer::wanted(&headers, &query);
    if let Answer::Result = wanted {
        let ran = app.service().run(&caller, &session, &request, call).await;
        let result = form.result(ran.map_err(|error| form.failure(error))?);
        return Ok((place(&result.info), Json(result)).into_response());
    }
    let info = app.service().exec(&caller, &session, &request, call).await?;
    let place = place(&info);
    let response = match wanted {
        Answer::Events => stream(&app, caller, session, info).await?,
        Answer::Result | Answer::Started => (StatusCode::ACCEPTED, Json(info)).into_response(),
    };
    Ok((place, response).into_response())
}

fn place(info: &ExecInfo) -> [(&'static str, String); 1] {
    [("strongbox-exec-id", info.exec_id.to_string())]
}

/// The forms of the answer to an exec.
enum Answer {
    Result,
    Started,
    Events,
}

impl Answer {
    fn wanted(headers: &HeaderMap, query: &ExecQuery) -> Self {
        match query.wait {
            Some(false) => Self::Started,
            _ if accepts_events(headers) => Self::Events,
            _ => Self::Result,
        }
    }
}

/// Whether the client asks for server-sent events.
pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|value| value.split(',')).map(|kind| kind.split(';').next().unwrap_or_default());
    kinds.any(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}

async fn stream(app: &App, caller: Caller, session: SessionId, info: ExecInfo) -> Result<Response, Failure> {
    let target = Target::Exec(info.exec_id.clone());
    let feed = app.service().follow(&caller, &session, &target, Cursor::default()).await?;
    let line = Line { service: app.service().clone(), caller, session, target };
    let first = serde_json::to_value(&info).ok();
    Ok(events::respond(feed, line, Cursor::default(), first, app.closing().clone()))
}

pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let text = key.to_str().ok().filter(|text| (1..=core_limits::IDEMPOTENCY_KEY_BYTES_MAX).contains(&text.len()));
    let refuse = || {
        let max = core_limits::IDEMPOTENCY_KEY_BYTES_MAX;
        Failure::invalid(
            "Idempotency-Key",
            format!("invalid Idempotency-Key: 1 to {max} readable characters are needed"),
        )
    };
    text.map(|text| Some(text.to_owned())).ok_or_else(refuse)
}

/// Lists the commands of a session that are remembered, oldest first
#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs", tag = "execs", params(SessionPath),
    responses((status = 200, description = "The commands", body = Vec<ExecInfo>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
) -> Result<Json<Vec<ExecInfo>>, Failure> {
    Ok(Json(app.service().list_execs(&caller, &session).await?))
}

/// Shows a command
#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}", tag = "execs", params(ExecPath),
    responses((status = 200, description = "The command", body = ExecInfo)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    OfExec(session, exec): OfExec,
) -> Result<Json<ExecInfo>, Failure> {
    Ok(Json(app.service().get_exec(&caller, &session, &exec).await?))
}

/// Waits for the end of a command
///
/// When the time that was given passes first, the answer says how it stands.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}/result", tag = "execs", params(ExecPath, ResultQuery),
    responses(
        (status = 200, description = "It has ended", body = ExecResult),
        (status = 202, description = "It still runs", body = ExecInfo)))]
pub(crate) async fn result(
    State(app): State<App>,
    Who(caller): Who,
    OfExec(session, exec): OfExec,
    Params(query): Params<ResultQuery>,
) -> Result<Response, Failure> {
    let end = app.service().wait_exec(&caller, &session, &exec);
    let end = match query.time()? {
        Some(time) => timeout(time, end).await.ok(),
        None => Some(end.await),
    };
    match end {
        Some(result) => Ok(Json(result?).into_response()),
        None => still_running(&app, &caller, &session, &exec).await,
    }
}

async fn still_running(app: &App, caller: &Caller, session: &SessionId, exec: &ExecId) -> Result<Response, Failure> {
    let info = app.service().get_exec(caller, session, exec).await?;
    Ok((StatusCode::ACCEPTED, Json(info)).into_response())
}

/// Kills the whole process tree of a command
#[utoipa::path(post, path = "/v1/sessions/{session_id}/execs/{exec_id}/cancel", tag = "execs", params(ExecPath),
    responses((status = 200, description = "How it stands now", body = ExecInfo)))]
pub(crate) async fn cancel(
    State(app): State<App>,
    Who(caller): Who,
    OfExec(session, exec): OfExec,
) -> Result<Json<ExecInfo>, Failure> {
    app.service().cancel_exec(&caller, &session, &exec).await?;
    Ok(Json(app.service().get_exec(&caller, &session, &exec).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &str) -> Result<Option<String>, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", value.parse().unwrap());
        idempotency_key(&headers)
    }

    #[test]
    fn keys_are_short_and_readable() {
        assert_eq!(key("a-1").unwrap().as_deref(), Some("a-1"));
        assert_eq!(idempotency_key(&HeaderMap::new()).unwrap(), None);
        for bad in ["", "é", &"x".repeat(129)] {
            assert!(key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_caller_chooses_the_form_of_the_answer() {
        let wanted = |accept: &str, wait| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            match Answer::wanted(&headers, &ExecQuery { wait }) {
                Answer::Result => "result",
                Answer::Started => "started",
                Answer::Events => "events",
            }
        };
        assert_eq!(wanted("*/*", None), "result");
        assert_eq!(wanted("application/json", Some(true)), "result");
        assert_eq!(wanted("application/json, text/event-stream;q=0.9", None), "events");
        assert_eq!(wanted("text/event-stream", Some(false)), "started");
    }

    #[test]
    fn waiting_takes_no_negative_or_endless_numbers() {
        let time = |timeout_sec| ResultQuery { timeout_sec }.time();
        assert_eq!(time(Some(0.0)).unwrap(), Some(Duration::ZERO));
        assert_eq!(time(None).unwrap(), None);
        assert!(time(Some(-1.0)).is_err() && time(Some(1e300)).is_err());
    }
}
