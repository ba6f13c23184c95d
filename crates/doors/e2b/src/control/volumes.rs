//! Volumes made, listed, shown and removed.

use axum::Json;
use axum::extract::{Path, State};
use box_core::Caller;
use box_core::store::VolumeRow;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::body::Sent;
use super::owner::Owner;
use crate::app::App;
use crate::failure::E2bFailure;
use crate::limits;
use crate::to_the_end::to_the_end;
use crate::volumes::{self, LOOKING_AFTER};

/// What is sent to make one.
#[derive(Debug, Deserialize)]
pub(super) struct CreateVolume {
    name: Option<String>,
}

/// A volume in a list.
#[derive(Debug, Serialize)]
pub(super) struct ListedView {
    #[serde(rename = "volumeID")]
    id: String,
    name: String,
}

/// A volume for whoever is to use it.
#[derive(Debug, Serialize)]
pub(super) struct OpenView {
    #[serde(flatten)]
    listed: ListedView,
    token: String,
}

impl From<&VolumeRow> for ListedView {
    fn from(row: &VolumeRow) -> Self {
        Self { id: row.id.clone(), name: row.name.clone() }
    }
}

impl From<&VolumeRow> for OpenView {
    fn from(row: &VolumeRow) -> Self {
        Self { listed: row.into(), token: row.token.clone() }
    }
}

/// `GET /volumes`
pub(super) async fn list(State(app): State<App>, Owner(caller): Owner) -> Result<Json<Vec<ListedView>>, E2bFailure> {
    let all = app.e2b().volumes().all(&caller.tenant).await?;
    Ok(Json(all.iter().map(|row| (&**row).into()).collect()))
}

/// `POST /volumes`
pub(super) async fn create(
    State(app): State<App>,
    Owner(caller): Owner,
    Sent(asked): Sent<CreateVolume>,
) -> Result<(StatusCode, Json<OpenView>), E2bFailure> {
    let name = checked(asked.name)?;
    app.service().check_writable()?;
    let making = app.clone();
    let work = async move { making.e2b().volumes().make(caller.tenant, name).await };
    let made = to_the_end(&app, LOOKING_AFTER, work).await?;
    Ok((StatusCode::CREATED, Json((&*made).into())))
}

/// `GET /volumes/{id}`
pub(super) async fn show(
    State(app): State<App>,
    Owner(caller): Owner,
    Path(id): Path<String>,
) -> Result<Json<OpenView>, E2bFailure> {
    let row = app.e2b().volumes().find(&id).await?.filter(|row| row.tenant == caller.tenant);
    Ok(Json((&*row.ok_or_else(|| volumes::absent(&id))?).into()))
}

/// `DELETE /volumes/{id}`
pub(super) async fn remove(
    State(app): State<App>,
    Owner(caller): Owner,
    Path(id): Path<String>,
) -> Result<StatusCode, E2bFailure> {
    let removing = app.clone();
    to_the_end(&app, LOOKING_AFTER, async move { remove_all(&removing, &caller, &id).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove_all(app: &App, caller: &Caller, id: &str) -> Result<(), E2bFailure> {
    let row = app.e2b().volumes().forget(app, &caller.tenant, id).await?;
    volumes::clear(app, &row).await;
    Ok(())
}

fn checked(name: Option<String>) -> Result<String, E2bFailure> {
    let most = limits::E2B_VOLUME_NAME_BYTES_MAX;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let fits = |name: &String| (1..=most).contains(&name.len()) && name.bytes().all(good);
    let bad = || E2bFailure::invalid(format!("name has 1 to {most} letters, digits, dashes and underscores"));
    name.filter(fits).ok_or_else(bad)
}
