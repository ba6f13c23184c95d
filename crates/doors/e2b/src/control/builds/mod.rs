//! Templates built from steps: a box in which they are carried out, saved at the end.

mod asked;
mod files;
mod run;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use box_core::Caller;
use box_core::store::{TemplateBase, TemplateDefaults, TemplateKey, TemplateOrigin, TemplateRow, TemplateState};
use box_core::tasks::Start as _;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use super::body::{Pairs, Sent};
use super::create::new_id;
use super::origin::{self, Origin};
use super::owner::Owner;
use super::snapshots::names;
use super::templates;
use crate::app::App;
use crate::builds::Entry;
use crate::failure::E2bFailure;
use crate::limits;
use asked::{BuildAsked, TemplateAsked};

pub(super) use files::{link, upload};

/// `POST /v3/templates`, and the same of version 2
pub(super) async fn request(
    State(app): State<App>,
    Owner(caller): Owner,
    Sent(asked): Sent<TemplateAsked>,
) -> Result<(StatusCode, Json<Value>), E2bFailure> {
    let (name, tags) = asked.called()?;
    if let Some(name) = &name {
        app.snapshots().check_free(name)?;
    }
    clear(&app, &caller).await?;
    // It has room now, and shows that there is a place for archives.
    drop(app.snapshots().room(&caller.tenant, 0).await?);
    let id = new_id()?.as_str().to_owned();
    let now = Timestamp::now();
    let base = TemplateBase {
        profile: caller.profile.clone(),
        cpus: asked.cpu_count.map(f64::from),
        memory_mb: asked.memory_mb,
        ..TemplateBase::default()
    };
    let row = TemplateRow {
        template: app.snapshots().template_id(&caller, name.as_deref(), &id).await?,
        key: TemplateKey { tenant: caller.tenant, id },
        build: Uuid::now_v7().to_string(),
        name,
        tags,
        origin: TemplateOrigin::Build,
        state: TemplateState::Waiting,
        base,
        archive_bytes: 0,
        env: BTreeMap::new(),
        defaults: TemplateDefaults::default(),
        created_at: now,
        updated_at: now,
    };
    let row = app.snapshots().put(row).await?;
    let told = json!({
        "templateID": row.template,
        "buildID": row.build,
        "public": false,
        "names": names(&row),
        "tags": row.tags,
        "aliases": row.name.as_slice(),
    });
    Ok((StatusCode::ACCEPTED, Json(told)))
}

/// Makes room: builds that nobody started in time, and all but the last ones that failed, are forgotten.
async fn clear(app: &App, caller: &Caller) -> Result<(), E2bFailure> {
    let wait = SignedDuration::try_from(limits::E2B_BUILD_WAIT_MAX).unwrap_or(SignedDuration::MAX);
    let mut failed = 0;
    for row in app.snapshots().of(&caller.tenant).await? {
        let is_over = match row.state {
            TemplateState::Waiting => Timestamp::now().duration_since(row.created_at) > wait,
            TemplateState::Failed { .. } => {
                failed += 1;
                failed > limits::E2B_FAILED_MAX
            }
            TemplateState::Building | TemplateState::Ready => false,
        };
        if is_over {
            app.snapshots().remove(&row.key).await?;
            run::discard_files(app, &row).await;
        }
    }
    Ok(())
}

/// A build that the path names, of the caller's tenant.
async fn find(app: &App, caller: &Caller, template: &str, build: &str) -> Result<Arc<TemplateRow>, E2bFailure> {
    let found = app.snapshots().build(caller, template, build).await?;
    let shown: String = build.chars().take(64).collect();
    found.ok_or_else(|| E2bFailure::not_found(format!("build '{shown}' was not found")))
}

/// `POST /v2/templates/{id}/builds/{build}`
pub(super) async fn start(
    State(app): State<App>,
    Owner(caller): Owner,
    Path((template, build)): Path<(String, String)>,
    Sent(asked): Sent<BuildAsked>,
) -> Result<StatusCode, E2bFailure> {
    let row = find(&app, &caller, &template, &build).await?;
    let steps = asked.steps()?;
    let origin = origin_of(&app, &caller, &asked).await?;
    let mut started = false;
    let row = app.snapshots().change(&row.key, |row| {
        started = row.state == TemplateState::Waiting;
        if started {
            row.state = TemplateState::Building;
        }
    });
    let row = row.await?.filter(|_| started);
    let row = row.ok_or_else(|| E2bFailure::invalid("this build was started before; ask for a new one"))?;
    let plan = run::Plan { row, origin, steps, start_cmd: asked.start_cmd, ready_cmd: asked.ready_cmd };
    let log = app.e2b().builds().begin(&plan.row.key);
    let building = app.clone();
    app.tasks().start(async move { run::run(&building, &caller, plan, &log).await });
    Ok(StatusCode::ACCEPTED)
}

/// What a build begins with. Images of E2B that have the name of a template of the operator are that template.
async fn origin_of(app: &App, caller: &Caller, asked: &BuildAsked) -> Result<Origin, E2bFailure> {
    match (&asked.from_template, &asked.from_image) {
        (Some(name), _) => {
            let origin = origin::find(app, caller, name).await?;
            let is_known = origin.archive.is_some() || app.e2b().config().templates.contains_key(&origin.name);
            let hint = "an image is named by fromImage, and allowed by `allowed_images`";
            if is_known { Ok(origin) } else { Err(templates::no_image(name, hint)) }
        }
        (None, Some(image)) => {
            let (name, template) = templates::named(app.e2b().config(), image)?;
            Ok(Origin::plain(name, template))
        }
        (None, None) => Err(E2bFailure::invalid("fromImage or fromTemplate is missing: what the template begins with")),
    }
}

/// `GET /templates/{id}/builds/{build}/status`
pub(super) async fn status(
    State(app): State<App>,
    Owner(caller): Owner,
    Path((template, build)): Path<(String, String)>,
    pairs: Pairs,
) -> Result<Json<Value>, E2bFailure> {
    let row = find(&app, &caller, &template, &build).await?;
    let offset = pairs.one("logsOffset").map_or(Ok(0), str::parse);
    let offset = offset.map_err(|_| E2bFailure::invalid("logsOffset is a number: how many lines are known already"))?;
    let log = app.e2b().builds().log(&row.key);
    let entries = log.map(|log| log.read(offset, limits::E2B_BUILD_LINES_MAX)).unwrap_or_default();
    let lines: Vec<&str> = entries.iter().map(|entry: &Entry| entry.message.as_str()).collect();
    let mut told = json!({
        "templateID": row.template,
        "buildID": row.build,
        "status": templates::status(&row.state),
        "logs": lines,
        "logEntries": entries,
    });
    if let TemplateState::Failed { message, step } = &row.state {
        told["reason"] = json!({ "message": message });
        if let Some(step) = step {
            told["reason"]["step"] = json!(step);
        }
    }
    Ok(Json(told))
}
