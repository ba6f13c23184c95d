//! Output as it comes: events, and WebSockets to talk with commands and managed processes.

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket};
use axum::response::Response;
use box_core::call::{Cursor, ExecInfo, Target};
use box_core::service::Follow;
use box_core::{Caller, SessionId};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::exec_body::ExecBody;
use crate::app::App;
use crate::extract::{ExecPath, InSession, OfTarget, ProcessPath, SessionPath, Who};
use crate::{events, limits};
use door_http::body::{self, Fields, FromFields, Params};
use door_http::failure::Failure;
use door_http::feed::Line;
use door_http::socket::{self, Upgrade};

/// The subprotocol that browsers offer besides their token, to have something to be answered with.
const PROTOCOL: &str = "strongbox.v1";

/// From where to go on.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct CursorQuery {
    /// From where: a cursor `run.stdout.stderr`, as events and messages tell it. From the start when not given.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[param(example = "0.0.0")]
    cursor: Option<String>,
}

impl FromFields for CursorQuery {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl CursorQuery {
    fn cursor(&self) -> Result<Cursor, Failure> {
        Ok(self.cursor.as_deref().map(str::parse).transpose()?.unwrap_or_default())
    }

    /// A browser that lost its connection asks the old question again, and adds what it saw last.
    fn cursor_or_last(&self, headers: &HeaderMap) -> Result<Cursor, Failure> {
        let Some(last) = headers.get("last-event-id").filter(|last| !last.is_empty()) else { return self.cursor() };
        let refuse = || Failure::invalid("Last-Event-ID", "invalid Last-Event-ID: it must be the id of an event");
        last.to_str().ok().and_then(|text| text.trim().parse().ok()).ok_or_else(refuse)
    }
}

/// Follows the output of a command as events
///
/// `output` has `stream`, `offset` and `text`, or `base64` where it is not UTF-8; `gap` says how much is not kept any more;
/// `ended` is the result. The id of each event is a cursor: `Last-Event-ID` or `?cursor=` goes on behind it.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}/events", tag = "execs",
    params(ExecPath, CursorQuery, ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that was seen")),
    responses((status = 200, description = "Events", content_type = "text/event-stream", body = String)))]
pub(crate) async fn events_of_exec(
    State(app): State<App>,
    Who(caller): Who,
    OfTarget(session, target): OfTarget,
    Params(query): Params<CursorQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let from = query.cursor_or_last(&headers)?;
    let feed = app.service().follow(&caller, &session, &target, from).await?;
    let line = Line { service: app.service().clone(), caller, session, target };
    Ok(events::respond(feed, line, from, None, app.closing().clone()))
}

/// Follows the output of a managed process as events
///
/// As that of a command; `restarted` says that it was started again.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/processes/{process_id}/events", tag = "processes",
    params(ProcessPath, CursorQuery, ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that was seen")),
    responses((status = 200, description = "Events", content_type = "text/event-stream", body = String)))]
pub(crate) async fn events_of_process(
    state: State<App>,
    who: Who,
    of_target: OfTarget,
    query: Params<CursorQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    events_of_exec(state, who, of_target, query, headers).await
}

/// Attaches to a command by WebSocket
///
/// See docs/rest.md for what is said on it.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}/ws", tag = "execs", params(ExecPath, CursorQuery),
    responses((status = 101, description = "A WebSocket")))]
pub(crate) async fn attach_to_exec(
    State(app): State<App>,
    Who(caller): Who,
    OfTarget(session, target): OfTarget,
    Params(query): Params<CursorQuery>,
    upgrade: Upgrade,
) -> Result<Response, Failure> {
    let from = query.cursor()?;
    let line = Line { service: app.service().clone(), caller, session, target };
    let about = line.describe().await?;
    let feed = line.service.follow(&line.caller, &line.session, &line.target, from).await?;
    let first = started(about, from);
    let closing = app.closing().clone();
    open(&app, upgrade, |socket| socket::converse(socket, feed, line, first, closing))
}

/// Attaches to a managed process by WebSocket
///
/// As to a command.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/processes/{process_id}/ws", tag = "processes",
    params(ProcessPath, CursorQuery), responses((status = 101, description = "A WebSocket")))]
pub(crate) async fn attach_to_process(
    state: State<App>,
    who: Who,
    of_target: OfTarget,
    query: Params<CursorQuery>,
    upgrade: Upgrade,
) -> Result<Response, Failure> {
    attach_to_exec(state, who, of_target, query, upgrade).await
}

fn started(mut about: Value, from: Cursor) -> Value {
    about["type"] = "started".into();
    about["cursor"] = from.to_string().into();
    about
}

/// Runs a command by WebSocket
///
/// The first message of the client is the body of an exec as JSON text. Its standard input stays open. See docs/rest.md.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/exec/ws", tag = "execs", params(SessionPath),
    responses((status = 101, description = "A WebSocket")))]
pub(crate) async fn exec_by_socket(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
    upgrade: Upgrade,
) -> Result<Response, Failure> {
    let ours = app.clone();
    open(&app, upgrade, |mut socket| async move {
        let begun = ours.closing().run_until_cancelled(start(&ours, &caller, &session, &mut socket)).await;
        match begun {
            None => socket::dismiss(socket).await,
            Some(Err(failure)) => socket::refuse(socket, &failure).await,
            Some(Ok((info, feed))) => {
                let target = Target::Exec(info.exec_id.clone());
                let line = Line { service: ours.service().clone(), caller, session, target };
                let first = started(json!({ "exec": info }), Cursor::default());
                socket::converse(socket, feed, line, first, ours.closing().clone()).await;
            }
        }
    })
}

async fn start(
    app: &App,
    caller: &Caller,
    session: &SessionId,
    socket: &mut WebSocket,
) -> Result<(ExecInfo, Follow), Failure> {
    let late = |_| Failure::invalid("body", "the first message did not come; it must be the body of an exec");
    let body = timeout(limits::SOCKET_FIRST_TIME_MAX, first_message(socket)).await.map_err(late)??;
    let (request, call) = body.open_stdin().into_call()?;
    let info = app.service().exec(caller, session, &request, call).await?;
    let target = Target::Exec(info.exec_id.clone());
    let feed = app.service().follow(caller, session, &target, Cursor::default()).await?;
    Ok((info, feed))
}

async fn first_message(socket: &mut WebSocket) -> Result<ExecBody, Failure> {
    let wrong = || Failure::invalid("body", "the first message must be a text: the body of an exec as JSON");
    loop {
        match socket.recv().await {
            Some(Ok(Message::Text(text))) => return ExecBody::from_fields(Fields::from_json(text.as_bytes())?),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            _ => return Err(wrong()),
        }
    }
}

pub(super) fn open<F: Future<Output = ()> + Send + 'static>(
    app: &App,
    upgrade: Upgrade,
    talk: impl FnOnce(WebSocket) -> F + Send + 'static,
) -> Result<Response, Failure> {
    let upgrade = upgrade.map(|upgrade| upgrade.protocols([PROTOCOL]));
    socket::open(app, upgrade, limits::SOCKET_MESSAGE_BYTES_MAX, talk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_http::testing::field_of;

    #[test]
    fn a_browser_that_comes_back_goes_on_behind_what_it_saw() {
        let query = CursorQuery { cursor: Some("0.1.2".into()) };
        let mut headers = HeaderMap::new();
        assert_eq!(query.cursor_or_last(&headers).unwrap().to_string(), "0.1.2");
        headers.insert("last-event-id", "1.20.30".parse().unwrap());
        assert_eq!(query.cursor_or_last(&headers).unwrap().to_string(), "1.20.30");
        headers.insert("last-event-id", "7".parse().unwrap());
        assert_eq!(field_of(query.cursor_or_last(&headers)), "Last-Event-ID");
        assert_eq!(field_of(CursorQuery { cursor: Some("x".into()) }.cursor()), "cursor");
        assert_eq!(CursorQuery::default().cursor().unwrap(), Cursor::default());
    }
}
