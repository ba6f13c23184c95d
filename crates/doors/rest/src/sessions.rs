//! Sessions: made, listed, shown, changed, paused and deleted.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use box_core::service::Created;
use box_core::session::{SessionFilter, SessionState};
use box_core::{Caller, SessionId, limits as core_limits};
use box_wire::Invalid;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Deserialize;
use uuid::Uuid;

use super::execs::idempotency_key;
use super::session_body::{CreateBody, PatchBody};
use super::views::{DeletedView, SessionView, StatsView};
use crate::app::App;
use crate::extract::{InSession, SessionPath, Who};
use door_http::body::{self, Body, Fields, FromFields, Params};
use door_http::failure::Failure;

/// Which sessions to list.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only those in this state: `creating`, `running`, `paused`, `destroying` or `lost`.
    #[param(value_type = Option<String>)]
    state: Option<SessionState>,
    /// Only those whose id starts like this.
    #[serde(default, deserialize_with = "body::text")]
    prefix: Option<String>,
    /// At most this many; never more than 1000.
    #[serde(default, deserialize_with = "body::whole")]
    limit: Option<u64>,
    /// Only those after this id: what `Strongbox-Next` of the page before says.
    #[serde(default, deserialize_with = "body::text")]
    after: Option<String>,
}

impl FromFields for ListQuery {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl ListQuery {
    fn filter(&self) -> Result<SessionFilter, Failure> {
        let bad_after = |invalid: Invalid| Failure::invalid("after", format!("invalid after: {}", invalid.value));
        let after = self.after.as_deref().map(str::parse).transpose().map_err(bad_after)?;
        let limit = match self.limit {
            Some(0) => {
                return Err(Failure::invalid(
                    "limit",
                    format!("invalid limit: 0 (from 1 to {})", core_limits::PAGE_MAX),
                ));
            }
            Some(limit) => Some(usize::try_from(limit).unwrap_or(usize::MAX).min(core_limits::PAGE_MAX)),
            None => None,
        };
        Ok(SessionFilter { state: self.state, prefix: self.prefix.clone(), after, limit })
    }

    /// The address of the page behind this one.
    fn next_page(&self, next: &str) -> String {
        let state = self.state.and_then(|state| serde_json::to_value(state).ok()?.as_str().map(str::to_owned));
        let asked = [("state", state), ("prefix", self.prefix.clone()), ("limit", self.limit.map(|it| it.to_string()))];
        let mut address = format!("/v1/sessions?after={next}");
        for (name, value) in asked {
            address.extend(value.map(|value| format!("&{name}={}", percent_encoded(&value))));
        }
        address
    }
}

/// Lists sessions
///
/// In order of their ids. When there is another page, `Strongbox-Next` and `Link` say where it starts.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(ListQuery),
    responses((status = 200, description = "The sessions", body = Vec<SessionView>)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Params(query): Params<ListQuery>,
) -> Result<Response, Failure> {
    let page = app.service().list_sessions(&caller, &query.filter()?).await?;
    let mut headers = HeaderMap::new();
    if let Some(next) = page.next.map(|id| percent_encoded(id.as_str())) {
        let link = format!("<{}>; rel=\"next\"", query.next_page(&next));
        headers.extend(HeaderValue::from_str(&link).map(|link| (header::LINK, link)));
        headers.extend(HeaderValue::from_str(&next).map(|next| (NEXT.clone(), next)));
    }
    let shown: Vec<_> = page.sessions.into_iter().map(SessionView::new).collect();
    Ok((headers, Json(shown)).into_response())
}

/// Makes a session
///
/// Or returns the one of that id, if nothing that is asked differs; `Strongbox-Created` says which. What differs is a conflict
/// that names the fields.
#[utoipa::path(post, path = "/v1/sessions/{session_id}", tag = "sessions", params(SessionPath), request_body = CreateBody,
    responses((status = 201, description = "The session", body = SessionView)))]
pub(crate) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
    Body(body): Body<CreateBody>,
) -> Result<Response, Failure> {
    make(&app, &caller, &session, body).await
}

/// Makes a session whose id is in the body, or made up
///
/// A token that is bound to one session gets that one; with `PREFIX*`, the id begins with the prefix.
/// Two calls without an id but with one `Idempotency-Key` mean one session.
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions", request_body = CreateBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Two calls with one key mean one session")),
    responses((status = 201, description = "The session", body = SessionView)))]
pub(crate) async fn create_unnamed(
    State(app): State<App>,
    Who(caller): Who,
    headers: HeaderMap,
    Body(body): Body<CreateBody>,
) -> Result<Response, Failure> {
    // The key becomes the id, so that a repeated call finds what was made.
    let made_up = match idempotency_key(&headers)? {
        Some(key) => format!("key-{key}"),
        None => format!("s-{}", Uuid::now_v7().simple()),
    };
    let session = match (body.session_id()?, &caller.session) {
        (Some(id), _) => id,
        (None, Some(bound)) => bound.id_with(&made_up)?,
        (None, None) => made_up.parse()?,
    };
    make(&app, &caller, &session, body).await
}

async fn make(app: &App, caller: &Caller, session: &SessionId, body: CreateBody) -> Result<Response, Failure> {
    let form = body.form();
    let request = body.into_request()?;
    let made = app.service().create_session(caller, session, &request).await;
    let (info, created) = made.map_err(|error| form.failure(error))?;
    let created = match created {
        Created::New => "new",
        Created::Existing => "existing",
    };
    Ok((StatusCode::CREATED, [("strongbox-created", created)], Json(SessionView::new(info))).into_response())
}

/// Shows a session, with its managed processes
#[utoipa::path(get, path = "/v1/sessions/{session_id}", tag = "sessions", params(SessionPath),
    responses((status = 200, description = "The session", body = SessionView)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
) -> Result<Json<SessionView>, Failure> {
    let info = app.service().get_session(&caller, &session).await?;
    let processes = app.service().list_processes(&caller, &session).await?;
    Ok(Json(SessionView::new(info).with_processes(processes)))
}

/// Changes how long a session may be idle
#[utoipa::path(patch, path = "/v1/sessions/{session_id}", tag = "sessions", params(SessionPath), request_body = PatchBody,
    responses((status = 200, description = "The session", body = SessionView)))]
pub(crate) async fn patch(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
    Body(body): Body<PatchBody>,
) -> Result<Json<SessionView>, Failure> {
    let info = app.service().set_session_ttl(&caller, &session, body.ttl_sec()?).await?;
    Ok(Json(SessionView::new(info)))
}

/// Destroys a session with everything in it
#[utoipa::path(delete, path = "/v1/sessions/{session_id}", tag = "sessions", params(SessionPath),
    responses((status = 200, description = "It is gone", body = DeletedView)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
) -> Result<Json<DeletedView>, Failure> {
    app.service().delete_session(&caller, &session).await?;
    Ok(Json(DeletedView { deleted: session.to_string() }))
}

/// Stops a session where it is
#[utoipa::path(post, path = "/v1/sessions/{session_id}/pause", tag = "sessions", params(SessionPath),
    responses((status = 200, description = "The session", body = SessionView)))]
pub(crate) async fn pause(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
) -> Result<Json<SessionView>, Failure> {
    let info = app.service().pause_session(&caller, &session).await?;
    Ok(Json(SessionView::new(info)))
}

/// Lets a session go on
#[utoipa::path(post, path = "/v1/sessions/{session_id}/resume", tag = "sessions", params(SessionPath),
    responses((status = 200, description = "The session", body = SessionView)))]
pub(crate) async fn resume(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
) -> Result<Json<SessionView>, Failure> {
    let info = app.service().resume_session(&caller, &session).await?;
    Ok(Json(SessionView::new(info)))
}

/// What the box of a session consumes now
#[utoipa::path(get, path = "/v1/sessions/{session_id}/stats", tag = "sessions", params(SessionPath),
    responses((status = 200, description = "What it consumes", body = StatsView)))]
pub(crate) async fn stats(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
) -> Result<Json<StatsView>, Failure> {
    Ok(Json(app.service().session_stats(&caller, &session).await?.into()))
}

/// The header with the start of the next page, percent-encoded as in a URL: ids can hold any readable character.
const NEXT: HeaderName = HeaderName::from_static("strongbox-next");

/// A text as it can stand in a URL.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_http::testing::field_of;

    #[test]
    fn any_id_can_stand_in_a_url() {
        assert_eq!(percent_encoded("a-1_b.~"), "a-1_b.~");
        assert_eq!(percent_encoded("a/b &é"), "a%2Fb%20%26%C3%A9");
    }

    #[test]
    fn the_next_page_asks_the_same_question() {
        let query =
            ListQuery { state: Some(SessionState::Running), prefix: Some("a b".into()), limit: Some(2), after: None };
        assert_eq!(query.next_page("x"), "/v1/sessions?after=x&state=running&prefix=a%20b&limit=2");
    }

    #[test]
    fn a_page_has_at_least_one_entry_and_a_bound() {
        assert_eq!(field_of(ListQuery { limit: Some(0), ..ListQuery::default() }.filter()), "limit");
        let filter = ListQuery { limit: Some(u64::MAX), ..ListQuery::default() }.filter().unwrap();
        assert_eq!(filter.limit, Some(core_limits::PAGE_MAX));
        assert_eq!(field_of(ListQuery { after: Some("a\nb".into()), ..ListQuery::default() }.filter()), "after");
    }
}
