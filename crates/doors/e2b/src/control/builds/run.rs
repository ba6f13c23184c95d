//! A build from its beginning to its end. Whatever happens, its box goes, and what became of it is remembered.

use std::sync::Arc;

use box_core::snapshots::remove_archive;
use box_core::store::{TemplateBase, TemplateRow, TemplateState};
use box_core::{Caller, Error, SessionId, SessionRequest};
use jiff::Timestamp;
use tokio::time::timeout;

use super::super::create;
use super::super::create_request::CreateRequest;
use super::super::origin::Origin;
use super::asked::Step;
use super::steps::Site;
use crate::app::App;
use crate::builds::{BuildLog, Level};
use crate::failure::E2bFailure;
use crate::lifetimes::end_if_there;
use crate::limits;
use crate::sandbox_request::inhabitant;

/// What clients call the beginning of a build, and its end.
const BASE: &str = "base";
const FINALIZE: &str = "finalize";

/// What is to be built.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) row: Arc<TemplateRow>,
    pub(super) origin: Origin,
    pub(super) steps: Vec<Step>,
    pub(super) start_cmd: Option<String>,
    pub(super) ready_cmd: Option<String>,
}

/// Why a build failed, and at which step.
pub(super) struct Failed {
    pub(super) message: String,
    pub(super) step: String,
}

impl Failed {
    pub(super) fn at(step: &str, failure: impl Into<E2bFailure>) -> Self {
        Self { message: failure.into().message().to_owned(), step: step.to_owned() }
    }
}

/// Builds a template, to its end.
pub(super) async fn run(app: &App, caller: &Caller, plan: Plan, log: &BuildLog) {
    let key = plan.row.key.clone();
    let built = tokio::select! {
        built = timeout(limits::E2B_BUILD_TIME_MAX, build(app, caller, &plan, log)) => built.unwrap_or_else(|_| {
            let minutes = limits::E2B_BUILD_TIME_MAX.as_secs() / 60;
            Err(Failed { message: format!("the build took longer than {minutes} minutes"), step: FINALIZE.to_owned() })
        }),
        () = app.closing().cancelled() => {
            Err(Failed { message: "the server is stopping; build it again".to_owned(), step: FINALIZE.to_owned() })
        }
    };
    remove_box(app, &plan.row).await;
    let remembered = match built {
        Ok(row) => publish(app, caller, row, log).await,
        Err(Failed { message, step }) => {
            log.say(&step, Level::Error, message.as_str());
            if let Ok(archive) = app.snapshots().archive(&key.id) {
                remove_archive(archive).await;
            }
            let failed = TemplateState::Failed { message, step: Some(step) };
            app.snapshots().change(&key, |row| row.state = failed).await.map(drop)
        }
    };
    if let Err(error) = remembered {
        tracing::error!(template.id = key.id, %error, "what became of a build cannot be remembered");
    }
    discard_files(app, &plan.row).await;
}

/// Lets sandboxes begin with what was built, unless somebody has deleted it meanwhile.
async fn publish(app: &App, caller: &Caller, row: TemplateRow, log: &BuildLog) -> Result<(), Error> {
    let snapshots = app.snapshots();
    if snapshots.build(caller, &row.template, &row.build).await?.is_none() {
        return snapshots.remove(&row.key).await;
    }
    log.say(FINALIZE, Level::Info, "the template is ready");
    snapshots.publish(row).await.map(drop)
}

/// The session in which a template is built. No sandbox can have such an id.
fn session_of(row: &TemplateRow) -> Result<SessionId, Error> {
    Ok(format!("build-{}", row.key.id).parse()?)
}

/// Who acts in it.
fn builder(row: &TemplateRow) -> Caller {
    inhabitant(format!("build:{}", row.key.id), &row.key.tenant)
}

async fn build(app: &App, caller: &Caller, plan: &Plan, log: &BuildLog) -> Result<TemplateRow, Failed> {
    let at_base = |error: Error| Failed::at(BASE, create::refused(error, &plan.origin.name));
    let _permit = app.e2b().builds().permits().acquire().await.ok();
    log.say(BASE, Level::Info, format!("building from {}", plan.origin.name));
    let session = session_of(&plan.row).map_err(at_base)?;
    let mut origin = plan.origin.clone();
    let TemplateBase { cpus, memory_mb, .. } = plan.row.base;
    origin.template.cpus = cpus.or(origin.template.cpus);
    origin.template.memory_mb = memory_mb.or(origin.template.memory_mb);
    let request =
        create::request(caller, &origin, &CreateRequest::default()).map_err(|failure| Failed::at(BASE, failure))?;
    let request = SessionRequest { persistent: Some(false), ..request };
    let (info, _) = app.service().create_session(caller, &session, &request).await.map_err(at_base)?;
    let mut site = Site::new(app, builder(&plan.row), session, &plan.row, &origin);
    for (index, step) in plan.steps.iter().enumerate() {
        site.carry_out(&(index + 1).to_string(), plan.steps.len(), step, log).await?;
    }
    let finished = finish(app, plan, site, TemplateBase::of(&info.config), log).await;
    finished.map_err(|failure| Failed::at(FINALIZE, failure))
}

/// Saves the box in which all steps were carried out.
async fn finish(
    app: &App,
    plan: &Plan,
    site: Site<'_>,
    base: TemplateBase,
    log: &BuildLog,
) -> Result<TemplateRow, E2bFailure> {
    log.say(FINALIZE, Level::Info, "saving the template");
    let row = &plan.row;
    let room = app.service().save_archive(&site.caller, &site.session, &row.key.id).await?;
    let (env, mut defaults) = site.outcome();
    defaults.start_command = plan.start_cmd.clone().or(defaults.start_command);
    defaults.ready_command = plan.ready_cmd.clone().or(defaults.ready_command);
    Ok(TemplateRow {
        state: TemplateState::Ready,
        archive_bytes: room.bytes(),
        updated_at: Timestamp::now(),
        base,
        env,
        defaults,
        ..TemplateRow::clone(row)
    })
}

async fn remove_box(app: &App, row: &TemplateRow) {
    let Ok(session) = session_of(row) else { return };
    if let Err(error) = end_if_there(app, &builder(row), &session).await {
        tracing::error!(session.id = %session, %error, "the box of a build cannot be removed");
    }
}

/// Removes the files that came for a build, unless another build of the template needs them.
pub(super) async fn discard_files(app: &App, row: &TemplateRow) {
    let all = app.snapshots().of(&row.key.tenant).await.unwrap_or_default();
    let is_open = |other: &&Arc<TemplateRow>| {
        other.template == row.template && matches!(other.state, TemplateState::Waiting | TemplateState::Building)
    };
    if all.iter().any(|other| is_open(&other) && other.key != row.key) {
        return;
    }
    for path in app.e2b().builds().uploads().forget(&row.key.tenant, &row.template) {
        remove_archive(path).await;
    }
}
