//! Sandboxes that begin as another one is. Each copy is made while its source is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use box_core::Caller;
use box_core::store::SandboxRow;
use futures_util::StreamExt;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::body::{OfSandbox, Sent};
use super::create::{self, OWN_VARIABLES};
use super::create_request::{AutoResume, CreateRequest, NetworkAsked};
use super::origin::Origin;
use super::owner::Owner;
use super::snapshots::{SAVING, running};
use super::views::SandboxView;
use crate::app::App;
use crate::failure::E2bFailure;
use crate::limits;
use crate::to_the_end::to_the_end;

/// How long a copy lives where nobody said.
const FORK_TIMEOUT_SEC: u64 = 15;

/// What is asked of copies.
#[derive(Debug, Deserialize)]
pub(super) struct ForkAsked {
    timeout: Option<i64>,
    count: Option<usize>,
}

/// What became of one copy.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Forked {
    /// It is there.
    Sandbox(SandboxView),
    /// It is not.
    Error(Value),
}

/// `POST /sandboxes/{id}/fork`
pub(super) async fn fork(
    State(app): State<App>,
    Owner(caller): Owner,
    OfSandbox(id): OfSandbox,
    Sent(asked): Sent<ForkAsked>,
) -> Result<(StatusCode, Json<Vec<Forked>>), E2bFailure> {
    let count = asked.count.unwrap_or(1);
    if !(1..=limits::E2B_FORKS_MAX).contains(&count) {
        return Err(E2bFailure::invalid(format!("count is from 1 to {}", limits::E2B_FORKS_MAX)));
    }
    let source = running(&app, &caller, id).await?.row;
    let making = app.clone();
    let made = async move { make(&making, &caller, &source, asked.timeout, count).await };
    let made = to_the_end(&app, SAVING, made).await?;
    let view = |made: Result<Arc<SandboxRow>, E2bFailure>| match made {
        Ok(row) => Forked::Sandbox(SandboxView::new(&row, app.e2b().config().domain.as_deref())),
        Err(failure) => Forked::Error(json!({ "code": failure.status().as_u16(), "message": failure.message() })),
    };
    Ok((StatusCode::CREATED, Json(made.into_iter().map(view).collect())))
}

async fn make(
    app: &App,
    caller: &Caller,
    source: &SandboxRow,
    timeout: Option<i64>,
    count: usize,
) -> Result<Vec<Result<Arc<SandboxRow>, E2bFailure>>, E2bFailure> {
    let one = |_| copy(app, caller, source, timeout);
    let mut made: Vec<_> =
        futures_util::stream::iter(0..count).map(one).buffered(limits::E2B_FORKS_AT_ONCE).collect().await;
    // Without any copy, an error of one is that of the request.
    let is_failure = made.iter().all(Result::is_err);
    match made.pop() {
        Some(Err(failure)) if is_failure => Err(failure),
        last => {
            made.extend(last);
            Ok(made)
        }
    }
}

/// Makes one copy: what its maker said of the source holds for it, too.
async fn copy(
    app: &App,
    caller: &Caller,
    source: &SandboxRow,
    timeout: Option<i64>,
) -> Result<Arc<SandboxRow>, E2bFailure> {
    let saved = app.service().begin_fork(caller, &source.key.id).await?;
    let origin = Origin {
        name: source.template.clone(),
        template: saved.base(),
        archive: Some(saved.archive().to_owned()),
        env: BTreeMap::new(),
        defaults: source.defaults.clone(),
    };
    let mut env = source.env.clone();
    env.retain(|name, _| !OWN_VARIABLES.contains(&name.as_str()));
    let network = source.network.clone().map(serde_json::from_value::<NetworkAsked>).transpose();
    let asked = CreateRequest {
        timeout,
        auto_pause: Some(source.auto_pause),
        auto_resume: Some(AutoResume { enabled: source.auto_resume }),
        allow_internet_access: source.allow_internet_access,
        network: network.ok().flatten(),
        metadata: Some(source.metadata.clone()),
        env_vars: Some(env),
        volume_mounts: Some(source.volume_mounts.clone()),
        ..CreateRequest::default()
    };
    let made = create::make(app, caller.clone(), origin, asked, FORK_TIMEOUT_SEC, None).await;
    made.map_err(|failure| saved.error().map_or(failure, E2bFailure::from))
}
