//! Volumes created, listed, shown and removed.

use axum::Json;
use axum::extract::{Path, State};
use box_core::store::VolumeRow;
use box_core::volumes::VolumeKey;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::body::Sent;
use super::owner::Owner;
use crate::app::App;
use crate::failure::E2bFailure;
use crate::volumes::told;

/// What is sent to create a volume.
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

/// A volume with what opens its content.
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
    let all = app.service().volumes(&caller).await.map_err(told)?;
    Ok(Json(all.iter().map(|volume| (&*volume.row).into()).collect()))
}

/// `POST /volumes`
pub(super) async fn create(
    State(app): State<App>,
    Owner(caller): Owner,
    Sent(asked): Sent<CreateVolume>,
) -> Result<(StatusCode, Json<OpenView>), E2bFailure> {
    let name = asked.name.unwrap_or_default().try_into().map_err(box_core::Error::Invalid)?;
    let created = app.service().create_volume(&caller, &name).await.map_err(told)?;
    Ok((StatusCode::CREATED, Json((&*created.row).into())))
}

/// `GET /volumes/{id}`
pub(super) async fn show(
    State(app): State<App>,
    Owner(caller): Owner,
    Path(id): Path<String>,
) -> Result<Json<OpenView>, E2bFailure> {
    let volume = app.service().volume(&caller, &VolumeKey::Id(id)).await.map_err(told)?;
    Ok(Json((&*volume.row).into()))
}

/// `DELETE /volumes/{id}`
pub(super) async fn remove(
    State(app): State<App>,
    Owner(caller): Owner,
    Path(id): Path<String>,
) -> Result<StatusCode, E2bFailure> {
    app.service().delete_volume(&caller, &VolumeKey::Id(id)).await.map_err(told)?;
    Ok(StatusCode::NO_CONTENT)
}
