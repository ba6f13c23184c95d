//! Sandboxes saved, for others to begin with.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use box_core::Caller;
use box_core::service::SaveRequest;
use box_core::snapshots::{DEFAULT_TAG, Reference};
use box_core::store::{TemplateOrigin, TemplateRow};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use super::body::{OfSandbox, Pairs, Sent};
use super::create::OWN_VARIABLES;
use super::lifecycle::{OwnedSandbox, find};
use super::owner::Owner;
use super::views::State as Stands;
use crate::app::App;
use crate::failure::E2bFailure;
use crate::limits;

/// What is done here, where nobody knows how it ended.
pub(super) const SAVING: &str = "saving a sandbox";

const NEXT_TOKEN: HeaderName = HeaderName::from_static("x-next-token");

/// What is asked of a snapshot. Memory is never in one, whatever is asked.
#[derive(Debug, Deserialize)]
pub(super) struct SnapshotAsked {
    name: Option<String>,
}

/// A snapshot as clients read it.
#[derive(Debug, Serialize)]
pub(super) struct SnapshotView {
    #[serde(rename = "snapshotID")]
    snapshot_id: String,
    names: Vec<String>,
}

impl SnapshotView {
    fn new(row: &TemplateRow) -> Self {
        let tag = row.tags.first().map_or(DEFAULT_TAG, String::as_str);
        Self { snapshot_id: format!("{}:{tag}", row.template), names: names(row) }
    }
}

/// What a saved box is called, with its tags.
pub(super) fn names(row: &TemplateRow) -> Vec<String> {
    let Some(name) = &row.name else { return Vec::new() };
    row.tags.iter().map(|tag| format!("{name}:{tag}")).collect()
}

/// `POST /sandboxes/{id}/snapshots`
pub(super) async fn create(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
    Sent(asked): Sent<SnapshotAsked>,
) -> Result<(StatusCode, Json<SnapshotView>), E2bFailure> {
    let sandbox = running(&app, &caller, id).await?.row;
    let mut env = sandbox.env.clone();
    env.retain(|name, _| !OWN_VARIABLES.contains(&name.as_str()));
    let name = asked.name.filter(|name| !name.is_empty());
    let request = SaveRequest { name, env: Some(env), defaults: sandbox.defaults.clone() };
    let row = app.service().save_snapshot(&caller, &sandbox.key.id, request).await?;
    Ok((StatusCode::CREATED, Json(SnapshotView::new(&row))))
}

/// A sandbox of the caller's that can be saved. One that is stopped cannot: its files may be half written.
pub(super) async fn running(
    app: &App,
    caller: &Caller,
    id: box_e2b_wire::SandboxId,
) -> Result<OwnedSandbox, E2bFailure> {
    let found = find(app, caller, id).await?;
    if found.state == Stands::Paused {
        let message = format!("sandbox \"{}\" is paused; connect to it first, which resumes it", found.id);
        return Err(E2bFailure::new(StatusCode::CONFLICT, message));
    }
    Ok(found)
}

/// `GET /snapshots`
pub(super) async fn list(State(app): State<App>, Owner(caller): Owner, pairs: Pairs) -> Result<Response, E2bFailure> {
    let limit = super::listing::limit(pairs.one("limit"))?;
    let (sandbox, name) = (pairs.one("sandboxID"), pairs.one("name").map(Reference::read));
    let mut found = app.service().snapshots(&caller).await?;
    found.retain(|row| {
        let is_of = |sandbox| matches!(&row.origin, TemplateOrigin::Snapshot(of) if of == sandbox);
        let is_named = |name: &Reference| if name.tag.is_some() { name.means(row) } else { name.names(row) };
        sandbox.is_none_or(is_of) && name.as_ref().is_none_or(is_named)
    });
    if let Some(last) = pairs.one("nextToken").filter(|token| !token.is_empty()) {
        let behind = found.iter().position(|row| row.key.id == last);
        let behind = behind.ok_or_else(|| E2bFailure::invalid("nextToken is not one that this server gave"))?;
        found.drain(..=behind);
    }
    let has_more = found.len() > limit;
    found.truncate(limit.min(limits::E2B_PAGE_MAX));
    let next = found.last().filter(|_| has_more).and_then(|row| HeaderValue::from_str(&row.key.id).ok());
    let page: Vec<_> = found.iter().map(|row| SnapshotView::new(row)).collect();
    let mut response = Json(page).into_response();
    if let Some(next) = next {
        response.headers_mut().insert(NEXT_TOKEN, next);
    }
    Ok(response)
}
