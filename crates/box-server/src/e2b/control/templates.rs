//! What sandboxes are made from: templates of the operator, each a profile or an image of ours.

use axum::Json;
use axum::extract::{Path, State};
use box_e2b_wire::ENVD_VERSION;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::owner::Owner;
use super::views::whole_processors;
use crate::app::App;
use crate::e2b::failure::E2bFailure;
use crate::e2b::{E2bConfig, E2bTemplate};

/// Longest name of a template.
const NAME_BYTES_MAX: usize = 200;

/// The template of a name. Whoever writes a namespace before it or a tag behind it means the same; what is no template may be
/// an image.
pub(super) fn named(config: &E2bConfig, name: &str) -> Result<(String, E2bTemplate), E2bFailure> {
    if name.is_empty() {
        return Err(E2bFailure::invalid("templateID is missing"));
    }
    if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(E2bFailure::invalid(format!("templateID has at most {NAME_BYTES_MAX} readable bytes")));
    }
    let bare = name.rsplit('/').next().unwrap_or(name);
    let untagged = bare.split(':').next().unwrap_or(bare);
    let known = [name, bare, untagged].into_iter().find_map(|name| config.templates.get_key_value(name));
    Ok(match known {
        Some((known, template)) => (known.clone(), template.clone()),
        None => (name.to_owned(), E2bTemplate { image: Some(name.to_owned()), ..E2bTemplate::default() }),
    })
}

/// What is told of a template that is not there.
pub(super) fn unknown(name: &str) -> E2bFailure {
    let shown: String = name.chars().take(64).collect();
    E2bFailure::not_found(format!("template '{shown}' not found; `e2b_door.templates` in the configuration lists them"))
}

/// `GET /templates`
pub(super) async fn list(State(app): State<App>, Owner(_): Owner) -> Json<Vec<Value>> {
    let view = |(name, template): (&String, &E2bTemplate)| {
        json!({
            "templateID": name,
            "buildID": name,
            "aliases": [name],
            "names": [name],
            "public": true,
            "cpuCount": template.cpus.map_or(2, whole_processors),
            "memoryMB": template.memory_mb.unwrap_or(1024),
            "diskSizeMB": template.disk_mb.unwrap_or(box_core::limits::DISK_MB_DEFAULT),
            "createdAt": Timestamp::UNIX_EPOCH,
            "updatedAt": Timestamp::UNIX_EPOCH,
            "createdBy": null,
            "lastSpawnedAt": null,
            "spawnCount": 0,
            "buildCount": 1,
            "buildStatus": "ready",
            "envdVersion": ENVD_VERSION,
        })
    };
    Json(app.e2b().config().templates.iter().map(view).collect())
}

/// `GET /templates/aliases/{alias}`
pub(super) async fn alias(
    State(app): State<App>,
    Owner(_): Owner,
    Path(alias): Path<String>,
) -> Result<Json<Value>, E2bFailure> {
    let (name, _) = named(app.e2b().config(), &alias)?;
    if app.e2b().config().templates.contains_key(&name) {
        return Ok(Json(json!({ "templateID": name, "public": true })));
    }
    Err(unknown(&alias))
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
            assert_eq!(named(&config, name).unwrap(), ("base".to_owned(), E2bTemplate::default()), "{name}");
        }
        let (name, template) = named(&config, "python:3.12-slim").unwrap();
        assert_eq!((name.as_str(), template.image.as_deref()), ("python:3.12-slim", Some("python:3.12-slim")));
        assert!(named(&config, "").is_err());
        assert!(named(&config, &"x".repeat(201)).is_err());
    }
}
