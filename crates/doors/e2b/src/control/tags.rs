//! Tags: which version of a template is meant by which word.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use box_core::store::{TemplateRow, TemplateState};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::Sent;
use super::owner::Owner;
use super::templates::unknown;
use crate::app::App;
use crate::failure::E2bFailure;
use crate::limits;
use crate::snapshot_store::{Reference, check_tag};

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
    asked.tags.iter().try_for_each(|tag| check_tag(tag))?;
    let snapshots = app.e2b().snapshots();
    let found = snapshots.find(&caller, &Reference::read(&asked.target)).await?;
    let mut row = found.map(Arc::unwrap_or_clone).ok_or_else(|| unknown(&asked.target))?;
    for tag in &asked.tags {
        if !row.tags.contains(tag) {
            row.tags.push(tag.clone());
        }
    }
    if row.tags.len() > limits::E2B_TAGS_MAX {
        return Err(E2bFailure::invalid(format!("tags: at most {} of them", limits::E2B_TAGS_MAX)));
    }
    let row = snapshots.publish(row).await?;
    Ok((StatusCode::CREATED, Json(json!({ "tags": asked.tags, "buildID": row.build }))))
}

/// `DELETE /templates/tags`
pub(super) async fn remove(
    State(app): State<App>,
    Owner(caller): Owner,
    Sent(asked): Sent<Removed>,
) -> Result<StatusCode, E2bFailure> {
    let found = ready(&app, &caller, &asked.name).await?;
    for row in found.iter().filter(|row| row.tags.iter().any(|tag| asked.tags.contains(tag))) {
        app.e2b().snapshots().take_tags(row, &asked.tags).await?;
    }
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
    let mut found = app.e2b().snapshots().versions(caller, &Reference::read(name)).await?;
    found.retain(|row| row.state == TemplateState::Ready);
    if found.is_empty() { Err(unknown(name)) } else { Ok(found) }
}
