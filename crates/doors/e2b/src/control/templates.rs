//! What sandboxes are made from: templates of the operator, each a profile or an image of ours, and what callers saved.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use box_core::limits::DISK_MB_DEFAULT;
use box_core::snapshots::{Reference, SavedKind};
use box_core::store::{TemplateBase, TemplateOrigin, TemplateRow, TemplateState};
use box_core::{Error, SnapshotError};
use box_e2b_wire::ENVD_VERSION;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::owner::Owner;
use super::snapshots::names;
use super::views::whole_processors;
use crate::E2bConfig;
use crate::app::App;
use crate::failure::E2bFailure;

/// Longest name of a template.
const NAME_BYTES_MAX: usize = 200;

/// The template of a name. Whoever writes a namespace before it or a tag behind it means the same; what is no template may be
/// an image.
pub(super) fn named(config: &E2bConfig, name: &str) -> Result<(String, TemplateBase), E2bFailure> {
    if name.is_empty() {
        return Err(E2bFailure::invalid("templateID is missing"));
    }
    if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(E2bFailure::invalid(format!("templateID has at most {NAME_BYTES_MAX} readable bytes")));
    }
    let bare = name.rsplit('/').next().unwrap_or(name);
    let untagged = Reference::read(name).template;
    let known = [name, bare, untagged.as_str()].into_iter().find_map(|name| config.templates.get_key_value(name));
    Ok(match known {
        Some((known, template)) => (known.clone(), template.clone()),
        None => (name.to_owned(), TemplateBase { image: Some(name.to_owned()), ..TemplateBase::default() }),
    })
}

/// What is told of a template that is not there.
pub(super) fn unknown(name: &str) -> E2bFailure {
    let shown: String = name.chars().take(64).collect();
    E2bFailure::not_found(format!("template '{shown}' not found; `e2b_door.templates` in the configuration lists them"))
}

/// The same where the name was tried as an image, with why it is none.
pub(super) fn no_image(name: &str, reason: &str) -> E2bFailure {
    unknown(name).reworded(|words| format!("{words}; as an image: {reason}"))
}

/// The error of a call for a template, in the words of this door where there is none of that name.
pub(super) fn missing(error: Error, name: &str) -> E2bFailure {
    match error {
        Error::Snapshot(SnapshotError::NotFound { .. } | SnapshotError::TemplateNotFound { .. }) => unknown(name),
        error => error.into(),
    }
}

/// `GET /templates`
pub(super) async fn list(State(app): State<App>, Owner(caller): Owner) -> Result<Json<Vec<Value>>, E2bFailure> {
    let snapshots = app.snapshots().visible(&caller).await?;
    let is_built = |name: &String| snapshots.iter().any(|row| row.name.as_ref() == Some(name));
    let usual = app.e2b().config().templates.iter().filter(|(name, _)| !is_built(name));
    let usual = usual.map(|(name, template)| usual_view(name, template));
    let mut newest: BTreeMap<&str, &TemplateRow> = BTreeMap::new();
    for row in snapshots.iter().rev().filter(|row| row.origin == TemplateOrigin::Build) {
        newest.insert(&row.template, row);
    }
    let count = |template: &str| snapshots.iter().filter(|row| row.template == template).count();
    Ok(Json(usual.chain(newest.values().map(|row| saved_view(row, count(&row.template)))).collect()))
}

/// A template of the operator's.
fn usual_view(name: &str, template: &TemplateBase) -> Value {
    view(
        template,
        json!({
            "templateID": name,
            "buildID": name,
            "aliases": [name],
            "names": [name],
            "public": true,
            "createdAt": Timestamp::UNIX_EPOCH,
            "updatedAt": Timestamp::UNIX_EPOCH,
            "buildCount": 1,
            "buildStatus": "ready",
        }),
    )
}

/// A template that somebody built, told by its newest version.
fn saved_view(row: &TemplateRow, builds: usize) -> Value {
    view(
        &row.base,
        json!({
            "templateID": row.template,
            "buildID": row.build,
            "aliases": row.name.as_slice(),
            "names": names(row),
            "public": false,
            "createdAt": row.created_at,
            "updatedAt": row.updated_at,
            "buildCount": builds,
            "buildStatus": status(&row.state),
        }),
    )
}

/// What is told of every template, with what is its own.
fn view(base: &TemplateBase, mut own: Value) -> Value {
    own["cpuCount"] = json!(processors(base));
    own["memoryMB"] = json!(memory_mb(base));
    own["diskSizeMB"] = json!(base.disk_mb.unwrap_or(DISK_MB_DEFAULT));
    own["createdBy"] = Value::Null;
    own["lastSpawnedAt"] = Value::Null;
    own["spawnCount"] = json!(0);
    own["envdVersion"] = json!(ENVD_VERSION);
    own
}

fn processors(base: &TemplateBase) -> u64 {
    base.cpus.map_or(2, whole_processors)
}

fn memory_mb(base: &TemplateBase) -> u64 {
    base.memory_mb.unwrap_or(1024)
}

/// How far a saved box is, in the words of clients.
pub(super) fn status(state: &TemplateState) -> &'static str {
    match state {
        TemplateState::Waiting => "waiting",
        TemplateState::Building => "building",
        TemplateState::Ready => "ready",
        TemplateState::Failed { .. } => "error",
    }
}

/// `GET /templates/aliases/{alias}`
pub(super) async fn alias(
    State(app): State<App>,
    Owner(caller): Owner,
    Path(alias): Path<String>,
) -> Result<Json<Value>, E2bFailure> {
    let (name, _) = named(app.e2b().config(), &alias)?;
    let config = app.e2b().config();
    let is_usual = config.templates.contains_key(&name);
    if is_usual && !config.is_starter(&name) {
        return Ok(Json(json!({ "templateID": name, "public": true })));
    }
    match app.snapshots().versions(&caller, &Reference::read(&alias)).await?.first() {
        Some(row) => Ok(Json(json!({ "templateID": row.template, "public": false }))),
        None if is_usual => Ok(Json(json!({ "templateID": name, "public": true }))),
        None => Err(unknown(&alias)),
    }
}

/// `GET /templates/{id}`
pub(super) async fn show(
    State(app): State<App>,
    Owner(caller): Owner,
    Path(name): Path<String>,
) -> Result<Json<Value>, E2bFailure> {
    let found = app.service().template_versions(&caller, SavedKind::Any, &name).await;
    let found = found.map_err(|error| missing(error, &name))?;
    let newest = found.first().ok_or_else(|| unknown(&name))?;
    let build = |row: &Arc<TemplateRow>| {
        json!({
            "buildID": row.build,
            "status": status(&row.state),
            "createdAt": row.created_at,
            "updatedAt": row.updated_at,
            "cpuCount": processors(&row.base),
            "memoryMB": memory_mb(&row.base),
        })
    };
    let mut view = saved_view(newest, found.len());
    view["builds"] = found.iter().map(build).collect();
    Ok(Json(view))
}

/// `DELETE /templates/{id}`: a template with all its versions, or the one that is named by its tag.
pub(super) async fn remove(
    State(app): State<App>,
    Owner(caller): Owner,
    Path(name): Path<String>,
) -> Result<StatusCode, E2bFailure> {
    let removed = app.service().delete_template(&caller, SavedKind::Any, &name).await;
    removed.map_err(|error| missing(error, &name))?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /teams`: a tenant is one.
pub(super) async fn teams(Owner(caller): Owner) -> Json<Value> {
    let tenant = caller.tenant.as_str();
    Json(json!([{ "teamID": tenant, "name": tenant, "apiKey": "", "isDefault": true }]))
}

/// `GET /health` of the service.
pub(super) async fn health() -> &'static str {
    "Health check successful"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_a_name_with_or_without_what_surrounds_it() {
        let config = E2bConfig::default();
        for name in ["base", "team/base", "base:latest", "team/base:default"] {
            assert_eq!(named(&config, name).unwrap(), ("base".to_owned(), TemplateBase::default()), "{name}");
        }
        let (name, template) = named(&config, "python:3.12-slim").unwrap();
        assert_eq!((name.as_str(), template.image.as_deref()), ("python:3.12-slim", Some("python:3.12-slim")));
        assert!(named(&config, "").is_err());
        assert!(named(&config, &"x".repeat(201)).is_err());
    }
}
