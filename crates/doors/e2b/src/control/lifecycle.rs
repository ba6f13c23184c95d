//! What becomes of one sandbox: shown, kept longer, stopped where it is, let go on, removed.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use box_core::session::SessionInfo;
use box_core::store::SandboxRow;
use box_core::{Caller, Error};
use box_e2b_wire::SandboxId;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::body::{OfSandbox, Sent, absent};
use super::owner::Owner;
use super::views::{DetailView, SandboxView, State as Stands};
use crate::app::App;
use crate::failure::E2bFailure;
use crate::lifetimes;

/// How long a sandbox goes on by the first version of the call, where nobody said.
const FIRST_VERSION_TIMEOUT_SEC: u64 = 15;

/// Shortest time by which a sandbox is kept longer.
const REFRESH_SEC_MIN: u64 = 15;

/// For how long.
#[derive(Debug, Deserialize)]
pub(super) struct TimeoutAsked {
    timeout: Option<i64>,
}

/// For how much longer.
#[derive(Debug, Deserialize)]
pub(super) struct RefreshAsked {
    duration: Option<i64>,
}

/// How to go on.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResumeAsked {
    timeout: Option<i64>,
    auto_pause: Option<bool>,
}

/// A moment so many seconds later.
pub(super) fn after(moment: Timestamp, seconds: u64) -> Timestamp {
    let seconds = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    moment.checked_add(seconds).unwrap_or(Timestamp::MAX)
}

/// A sandbox of the caller's, with how it stands.
pub(super) struct OwnedSandbox {
    pub(super) id: SandboxId,
    pub(super) row: Arc<SandboxRow>,
    pub(super) state: Stands,
}

/// Finds one. That of another tenant is not there.
pub(super) async fn find(app: &App, caller: &Caller, id: SandboxId) -> Result<OwnedSandbox, E2bFailure> {
    let row = app.e2b().directory().find(&id).await?.filter(|row| row.key.tenant == caller.tenant);
    let row = row.ok_or_else(|| absent(id.as_str()))?;
    let state = match app.service().session_state(caller, &row.key.id) {
        Ok(state) => Stands::of(state),
        Err(Error::SessionNotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let state = state.ok_or_else(|| absent(id.as_str()))?;
    Ok(OwnedSandbox { id, row, state })
}

/// `GET /sandboxes/{id}`
pub(super) async fn show(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
) -> Result<Json<DetailView>, E2bFailure> {
    let found = find(&app, &caller, id).await?;
    let session: SessionInfo = app.service().get_session(&caller, &found.row.key.id).await?;
    // Looking whether its box is still there may have shown that it is not.
    let state = Stands::of(session.state).ok_or_else(|| absent(found.id.as_str()))?;
    Ok(Json(DetailView::new(&found.row, &session, state, app.e2b().config().domain.as_deref())))
}

/// `DELETE /sandboxes/{id}`
pub(super) async fn kill(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
) -> Result<StatusCode, E2bFailure> {
    let found = find(&app, &caller, id).await?;
    app.service().delete_session(&caller, &found.row.key.id).await?;
    app.e2b().directory().forget(&found.row.key).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /sandboxes/{id}/timeout`
pub(super) async fn set_timeout(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
    Sent(asked): Sent<TimeoutAsked>,
) -> Result<StatusCode, E2bFailure> {
    let asked = asked.timeout.ok_or_else(|| E2bFailure::invalid("timeout is missing: seconds from now"))?;
    let seconds = bounded(&app, asked);
    change_end(&app, &caller, id, |_, now| after(now, seconds)).await
}

/// `POST /sandboxes/{id}/refreshes`
pub(super) async fn refresh(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
    Sent(asked): Sent<RefreshAsked>,
) -> Result<StatusCode, E2bFailure> {
    let seconds = bounded(&app, asked.duration.unwrap_or(0)).max(REFRESH_SEC_MIN);
    change_end(&app, &caller, id, |end, now| end.max(after(now, seconds))).await
}

async fn change_end(
    app: &App,
    caller: &Caller,
    id: SandboxId,
    end: impl FnOnce(Timestamp, Timestamp) -> Timestamp + Send,
) -> Result<StatusCode, E2bFailure> {
    let _turn = turn(app, caller, &id).await?;
    let found = find(app, caller, id).await?;
    if found.state == Stands::Paused {
        return Err(absent(found.id.as_str()));
    }
    let changed = lifetimes::change_end(app, &found.id, |row| row.ends_at = end(row.ends_at, Timestamp::now())).await?;
    changed.map(|_| StatusCode::NO_CONTENT).ok_or_else(|| absent(found.id.as_str()))
}

/// `POST /sandboxes/{id}/pause`
pub(super) async fn pause(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
) -> Result<StatusCode, E2bFailure> {
    let _turn = turn(&app, &caller, &id).await?;
    let found = find(&app, &caller, id).await?;
    if found.state == Stands::Paused {
        let message = format!("sandbox \"{}\" is already paused", found.id);
        return Err(E2bFailure::new(StatusCode::CONFLICT, message));
    }
    app.service().pause_session(&caller, &found.row.key.id).await?;
    app.e2b().directory().change(&found.id, |row| row.ends_at = Timestamp::now()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /sandboxes/{id}/connect`
pub(super) async fn connect_first_version(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
    Sent(asked): Sent<TimeoutAsked>,
) -> Result<(StatusCode, Json<SandboxView>), E2bFailure> {
    let asked = asked.timeout.ok_or_else(|| E2bFailure::invalid("timeout is missing: seconds from now"))?;
    connect(&app, &caller, id, bounded(&app, asked)).await
}

/// `POST /v2/sandboxes/{id}/connect`
pub(super) async fn connect_second_version(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
    Sent(asked): Sent<TimeoutAsked>,
) -> Result<(StatusCode, Json<SandboxView>), E2bFailure> {
    let usual_sec = app.e2b().config().default_timeout_sec;
    let seconds = asked.timeout.map_or(usual_sec, |asked| bounded(&app, asked));
    connect(&app, &caller, id, seconds).await
}

/// Whoever connects keeps the sandbox for at least this long. One that is stopped goes on.
async fn connect(
    app: &App,
    caller: &Caller,
    id: SandboxId,
    seconds: u64,
) -> Result<(StatusCode, Json<SandboxView>), E2bFailure> {
    let _turn = turn(app, caller, &id).await?;
    let found = find(app, caller, id).await?;
    if found.state == Stands::Paused {
        return go_on(app, caller, &found, seconds, None).await;
    }
    let end = |row: &mut SandboxRow| row.ends_at = row.ends_at.max(after(Timestamp::now(), seconds));
    let row = lifetimes::change_end(app, &found.id, end).await?.ok_or_else(|| absent(found.id.as_str()))?;
    Ok((StatusCode::OK, Json(SandboxView::new(&row, app.e2b().config().domain.as_deref()))))
}

/// `POST /sandboxes/{id}/resume`
pub(super) async fn resume(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
    Sent(asked): Sent<ResumeAsked>,
) -> Result<(StatusCode, Json<SandboxView>), E2bFailure> {
    let _turn = turn(&app, &caller, &id).await?;
    let found = find(&app, &caller, id).await?;
    if found.state == Stands::Running {
        let message = format!("sandbox \"{}\" is already running", found.id);
        return Err(E2bFailure::new(StatusCode::CONFLICT, message));
    }
    let seconds = asked.timeout.map_or(FIRST_VERSION_TIMEOUT_SEC, |asked| bounded(&app, asked));
    go_on(&app, &caller, &found, seconds, asked.auto_pause).await
}

async fn go_on(
    app: &App,
    caller: &Caller,
    found: &OwnedSandbox,
    seconds: u64,
    auto_pause: Option<bool>,
) -> Result<(StatusCode, Json<SandboxView>), E2bFailure> {
    // Its time first: were it to run before, its old end would stop it again.
    let change = |row: &mut SandboxRow| {
        row.ends_at = after(Timestamp::now(), seconds);
        row.auto_pause = auto_pause.unwrap_or(row.auto_pause);
    };
    let row = lifetimes::change_end(app, &found.id, change).await?.ok_or_else(|| absent(found.id.as_str()))?;
    app.service().resume_session(caller, &row.key.id).await?;
    Ok((StatusCode::CREATED, Json(SandboxView::new(&row, app.e2b().config().domain.as_deref()))))
}

/// What changes how long a sandbox lives happens one after another, and never while its end does something.
async fn turn(app: &App, caller: &Caller, id: &SandboxId) -> Result<tokio::sync::OwnedMutexGuard<()>, E2bFailure> {
    let session = id.as_str().parse().map_err(Error::from)?;
    Ok(app.e2b().turns().take(&caller.tenant, &session).await)
}

/// Seconds that somebody asked for, none where they are negative, and never more than allowed.
fn bounded(app: &App, asked: i64) -> u64 {
    u64::try_from(asked).unwrap_or(0).min(app.e2b().config().max_timeout_sec)
}
