//! Snapshots of sessions, and sessions that begin with the files of another one.

use axum::Json;
use axum::extract::State;
use box_core::service::SaveRequest;
use box_core::snapshots::DEFAULT_TAG;
use box_core::store::{TemplateOrigin, TemplateRow};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::views::{DeletedView, SessionView};
use crate::app::App;
use crate::extract::{InSession, OfSnapshot, SessionPath, SnapshotPath, Who};
use door_http::body::{self, Body, Fields, FromFields};
use door_http::failure::Failure;

/// The body that saves a session.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(crate) struct SaveBody {
    /// What to call it, `NAME` or `NAME:TAG`. A snapshot of the same name and tag loses the tag, and is deleted when it has no other.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schema(example = "deps:v1")]
    name: Option<String>,
}

impl FromFields for SaveBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

/// The body that copies a session.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(crate) struct ForkBody {
    /// Your name for the copy. One is made up when it is missing.
    #[serde(default, deserialize_with = "body::optional_text")]
    session_id: Option<String>,
}

impl FromFields for ForkBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

/// A snapshot.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SnapshotView {
    /// Names it in `snapshot` of a new session, and in paths.
    #[schema(example = "1f0c6a52e9d3b784:default")]
    snapshot_id: String,
    /// What its maker called it.
    name: Option<String>,
    /// Its tags; `default` is meant where a call names none.
    tags: Vec<String>,
    /// The session that was saved.
    session_id: String,
    #[serde(flatten)]
    base: BaseView,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// What a session is made from, which has a snapshot or is built from a template.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct BaseView {
    /// The profile.
    profile: Option<String>,
    /// The root file system.
    image: Option<String>,
    /// Processors, unless the session asks for others.
    cpus: Option<f64>,
    /// Memory limit, unless the session asks for another.
    memory_mb: Option<u64>,
    /// Most that the box can store, unless the session asks for more.
    workspace_quota_mb: Option<u64>,
    /// Names in the environment of every command. Values may be secrets, so they are not shown.
    env_keys: Vec<String>,
    /// Bytes of its archive.
    bytes: u64,
}

impl BaseView {
    pub(super) fn new(row: &TemplateRow) -> Self {
        let base = row.base.clone();
        Self {
            profile: base.profile,
            image: base.image,
            cpus: base.cpus,
            memory_mb: base.memory_mb,
            workspace_quota_mb: base.disk_mb,
            env_keys: row.env.keys().cloned().collect(),
            bytes: row.archive_bytes,
        }
    }
}

impl SnapshotView {
    fn new(row: &TemplateRow) -> Self {
        let session = match &row.origin {
            TemplateOrigin::Snapshot(session) => session.clone(),
            TemplateOrigin::Build => String::new(),
        };
        let tag = row.tags.first().map_or(DEFAULT_TAG, String::as_str);
        Self {
            snapshot_id: format!("{}:{tag}", row.template),
            name: row.name.clone(),
            tags: row.tags.clone(),
            session_id: session,
            base: BaseView::new(row),
            created_at: row.created_at,
        }
    }
}

/// Saves a session
///
/// Its files are read while it runs on; memory and processes are not saved. `snapshot` in the body of a new session makes one that
/// begins with these files. A paused session must be resumed first. 501 where the backend cannot save a box.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/snapshots", tag = "snapshots", params(SessionPath),
    request_body = SaveBody, responses((status = 201, description = "The snapshot", body = SnapshotView)))]
pub(crate) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
    Body(body): Body<SaveBody>,
) -> Result<(StatusCode, Json<SnapshotView>), Failure> {
    let request = SaveRequest { name: body.name, ..SaveRequest::default() };
    let row = app.service().save_snapshot(&caller, &session, request).await?;
    Ok((StatusCode::CREATED, Json(SnapshotView::new(&row))))
}

/// Lists the snapshots of a session
///
/// Newest first. They outlive the session.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/snapshots", tag = "snapshots", params(SessionPath),
    responses((status = 200, description = "The snapshots", body = Vec<SnapshotView>)))]
pub(crate) async fn of_session(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
) -> Result<Json<Vec<SnapshotView>>, Failure> {
    let rows = app.service().snapshots(&caller).await?;
    let of_session = rows.iter().map(|row| SnapshotView::new(row)).filter(|view| view.session_id == session.as_str());
    Ok(Json(of_session.collect()))
}

/// Lists snapshots
///
/// Newest first. A token that is bound to sessions or to a profile sees those of these only.
#[utoipa::path(get, path = "/v1/snapshots", tag = "snapshots",
    responses((status = 200, description = "The snapshots", body = Vec<SnapshotView>)))]
pub(crate) async fn list(State(app): State<App>, Who(caller): Who) -> Result<Json<Vec<SnapshotView>>, Failure> {
    let rows = app.service().snapshots(&caller).await?;
    Ok(Json(rows.iter().map(|row| SnapshotView::new(row)).collect()))
}

/// Shows a snapshot
#[utoipa::path(get, path = "/v1/snapshots/{snapshot_id}", tag = "snapshots", params(SnapshotPath),
    responses((status = 200, description = "The snapshot", body = SnapshotView)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    OfSnapshot(name): OfSnapshot,
) -> Result<Json<SnapshotView>, Failure> {
    Ok(Json(SnapshotView::new(&*app.service().snapshot(&caller, &name).await?)))
}

/// Deletes a snapshot
///
/// One with several tags loses the named one only. Sessions that were made from it keep their files.
#[utoipa::path(delete, path = "/v1/snapshots/{snapshot_id}", tag = "snapshots", params(SnapshotPath),
    responses((status = 200, description = "It is gone", body = DeletedView)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    OfSnapshot(name): OfSnapshot,
) -> Result<Json<DeletedView>, Failure> {
    app.service().delete_snapshot(&caller, &name).await?;
    Ok(Json(DeletedView { deleted: name }))
}

/// Copies a session
///
/// The copy has its own box with the files of this one, and the same limits, mounts and environment. Nothing runs in it. A paused
/// session must be resumed first. 501 where the backend cannot save a box.
#[utoipa::path(post, path = "/v1/sessions/{session_id}/fork", tag = "sessions", params(SessionPath),
    request_body = ForkBody, responses((status = 201, description = "The copy", body = SessionView)))]
pub(crate) async fn fork(
    State(app): State<App>,
    Who(caller): Who,
    InSession(session): InSession,
    Body(body): Body<ForkBody>,
) -> Result<(StatusCode, Json<SessionView>), Failure> {
    let made_up = || format!("s-{}", Uuid::now_v7().simple());
    let copy = match (body.session_id, &caller.session) {
        (Some(id), _) => id.parse()?,
        (None, Some(bound)) => bound.id_with(&made_up())?,
        (None, None) => made_up().parse()?,
    };
    let info = app.service().fork(&caller, &session, &copy).await?;
    Ok((StatusCode::CREATED, Json(SessionView::new(info))))
}
