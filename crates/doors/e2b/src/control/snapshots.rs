//! Sandboxes saved, for others to begin with.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use box_core::Caller;
use box_core::store::{SandboxRow, TemplateKey, TemplateOrigin, TemplateRow, TemplateState};
use http::{HeaderName, HeaderValue, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::body::{OfSandbox, Pairs, Sent};
use super::create::{OWN_VARIABLES, new_id};
use super::lifecycle::{OwnedSandbox, find};
use super::origin;
use super::owner::Owner;
use super::views::State as Stands;
use crate::app::App;
use crate::failure::E2bFailure;
use crate::limits;
use crate::sandbox_request::caller_of;
use crate::snapshot_store::{DEFAULT_TAG, Reference, check_name, check_tag, save};
use crate::to_the_end::to_the_end;

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
    let found = running(&app, &caller, id).await?;
    let (name, tag) = called(&app, asked.name.as_deref().filter(|name| !name.is_empty()))?;
    let making = app.clone();
    // Half of it is of no use.
    let row = to_the_end(&app, SAVING, async move { make(&making, &caller, &found.row, name, tag).await }).await?;
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

/// What a snapshot is to be called. Names of the operator's templates are taken.
fn called(app: &App, name: Option<&str>) -> Result<(Option<String>, String), E2bFailure> {
    let Some(name) = name else { return Ok((None, DEFAULT_TAG.to_owned())) };
    let Reference { template, tag } = Reference::read(name);
    free_name(app, &template)?;
    let tag = tag.unwrap_or_else(|| DEFAULT_TAG.to_owned());
    check_tag(&tag)?;
    Ok((Some(template), tag))
}

/// Refuses a name that no template of a caller can have.
pub(super) fn free_name(app: &App, name: &str) -> Result<(), E2bFailure> {
    check_name(name)?;
    let config = app.e2b().config();
    if config.templates.contains_key(name) && !config.is_starter(name) {
        return Err(E2bFailure::invalid(format!("name '{name}' is that of a template of this server; choose another")));
    }
    Ok(())
}

async fn make(
    app: &App,
    caller: &Caller,
    sandbox: &SandboxRow,
    name: Option<String>,
    tag: String,
) -> Result<Arc<TemplateRow>, E2bFailure> {
    let mut row = draft(app, caller, sandbox, name, tag).await?;
    let snapshots = app.e2b().snapshots();
    let mut room = snapshots.room(&row.key.tenant, bytes_max(row.base.disk_mb)).await?;
    save(app, &caller_of(sandbox), &sandbox.key.id, &snapshots.archive(&row.key.id)?, &mut room).await?;
    row.archive_bytes = room.bytes();
    row.updated_at = Timestamp::now();
    Ok(snapshots.publish(row).await?)
}

/// Most bytes of the archive of a box: what it can store, and some for the names of its files.
pub(super) fn bytes_max(disk_mb: Option<u64>) -> u64 {
    let disk_mb = disk_mb.unwrap_or(box_core::limits::DISK_MB_DEFAULT);
    (disk_mb + disk_mb / 4) << 20
}

/// What is known of a snapshot before it is there.
async fn draft(
    app: &App,
    caller: &Caller,
    sandbox: &SandboxRow,
    name: Option<String>,
    tag: String,
) -> Result<TemplateRow, E2bFailure> {
    let tenant = sandbox.key.tenant.clone();
    let id = new_id()?.as_str().to_owned();
    let session = app.service().peek_session(&caller_of(sandbox), &sandbox.key.id)?;
    let mut env = sandbox.env.clone();
    env.retain(|name, _| !OWN_VARIABLES.contains(&name.as_str()));
    let now = Timestamp::now();
    Ok(TemplateRow {
        template: template_id(app, caller, name.as_deref(), &id).await?,
        key: TemplateKey { tenant, id },
        build: Uuid::now_v7().to_string(),
        name,
        tags: vec![tag],
        origin: TemplateOrigin::Snapshot(sandbox.key.id.as_str().to_owned()),
        state: TemplateState::Ready,
        base: origin::base_of(&session.config),
        archive_bytes: 0,
        env,
        defaults: sandbox.defaults.clone(),
        created_at: now,
        updated_at: now,
    })
}

/// The id of a template: that of the one that has its name already, or a new one.
pub(super) async fn template_id(
    app: &App,
    caller: &Caller,
    name: Option<&str>,
    new: &str,
) -> Result<String, E2bFailure> {
    let all = app.e2b().snapshots().visible(caller).await?;
    let same = name.and_then(|name| all.iter().find(|row| row.name.as_deref() == Some(name)));
    Ok(same.map_or_else(|| new.to_owned(), |row| row.template.clone()))
}

/// `GET /snapshots`
pub(super) async fn list(State(app): State<App>, Owner(caller): Owner, pairs: Pairs) -> Result<Response, E2bFailure> {
    let limit = super::listing::limit(pairs.one("limit"))?;
    let (sandbox, name) = (pairs.one("sandboxID"), pairs.one("name").map(Reference::read));
    let mut found = app.e2b().snapshots().visible(&caller).await?;
    found.retain(|row| match &row.origin {
        TemplateOrigin::Snapshot(of) => {
            let is_named = |name: &Reference| if name.tag.is_some() { name.means(row) } else { name.names(row) };
            sandbox.is_none_or(|sandbox| of == sandbox) && name.as_ref().is_none_or(is_named)
        }
        TemplateOrigin::Build => false,
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
