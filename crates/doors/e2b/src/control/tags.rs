//! Tags: which version of a template is meant by which word.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use box_core::snapshots::SavedKind;
use box_core::store::{TemplateRow, TemplateState};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::Sent;
use super::owner::Owner;
use super::templates::{missing, unknown};
use crate::app::App;
use crate::failure::E2bFailure;

/// Which version, and what it is to be called besides.
#[derive(Debug, Deserialize)]
pub(super) struct Assigned {
    target: String,
    tags: Vec<String>,
}

/// Of which template, and what nobody is to be called any more.
#[derive(Debug, Deserialize)]
pub(super) struct Removed {
    name: String,
    tags: Vec<String>,
}

/// `POST /templates/tags`
pub(super) async fn assign(
    State(app): State<App>,
    Owner(caller): Owner,
    Sent(asked): Sent<Assigned>,
) -> Result<(StatusCode, Json<Value>), E2bFailure> {
    let tagged = app.service().tag_template(&caller, &asked.target, &asked.tags).await;
    let row = tagged.map_err(|error| missing(error, &asked.target))?;
    Ok((StatusCode::CREATED, Json(json!({ "tags": asked.tags, "buildID": row.build }))))
}

/// `DELETE /templates/tags`
pub(super) async fn remove(
    State(app): State<App>,
    Owner(caller): Owner,
    Sent(asked): Sent<Removed>,
) -> Result<StatusCode, E2bFailure> {
    ready(&app, &caller, &asked.name).await?;
    app.service().untag_template(&caller, &asked.name, &asked.tags).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /templates/{id}/tags`
pub(super) async fn list(
    State(app): State<App>,
    Owner(caller): Owner,
    Path(name): Path<String>,
) -> Result<Json<Vec<Value>>, E2bFailure> {
    let found = ready(&app, &caller, &name).await?;
    let view = |row: &Arc<TemplateRow>| {
        let one = |tag: &String| json!({ "tag": tag, "buildID": row.build, "createdAt": row.created_at });
        row.tags.iter().map(one).collect::<Vec<_>>()
    };
    Ok(Json(found.iter().flat_map(view).collect()))
}

async fn ready(app: &App, caller: &box_core::Caller, name: &str) -> Result<Vec<Arc<TemplateRow>>, E2bFailure> {
    let found = app.service().template_versions(caller, SavedKind::Any, name).await;
    let mut found = found.map_err(|error| missing(error, name))?;
    found.retain(|row| row.state == TemplateState::Ready);
    if found.is_empty() { Err(unknown(name)) } else { Ok(found) }
}
