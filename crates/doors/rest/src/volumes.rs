//! Volumes of a tenant: created, listed, shown and deleted. Sessions mount them by name.

use axum::Json;
use axum::extract::State;
use box_core::session::HostPathMode;
use box_core::volumes::{VolumeInfo, VolumeKey, VolumeMount, VolumeName};
use box_wire::GuestPath;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::extract::{OfVolume, VolumePath, Who};
use door_http::body::{self, Body, Fields, FromFields};
use door_http::failure::Failure;

/// The body that creates a volume.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(crate) struct VolumeBody {
    /// Its name: 1 to 64 letters, digits, `-` and `_`, unique within the tenant.
    #[serde(default, deserialize_with = "body::text")]
    #[schema(required, nullable = false, example = "data")]
    name: Option<String>,
}

impl FromFields for VolumeBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl VolumeBody {
    fn name(self) -> Result<VolumeName, Failure> {
        Ok(self.name.unwrap_or_default().try_into()?)
    }
}

/// A volume that a session mounts.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeMountBody {
    /// The name of the volume, which must exist.
    name: String,
    /// Where it appears in the box.
    #[schema(example = "/mnt/data")]
    path: String,
    /// What the box may do with it: `rw` or `ro`.
    #[serde(default)]
    mode: HostPathMode,
}

impl VolumeMountBody {
    /// The mount as the service is asked for it.
    pub(super) fn into_mount(self) -> Result<VolumeMount, Failure> {
        let name = self
            .name
            .parse()
            .map_err(|invalid: box_wire::Invalid| Failure::from(box_wire::Invalid { field: "volumes", ..invalid }))?;
        let path = GuestPath::parse("volumes", &self.path)?;
        Ok(VolumeMount { volume: VolumeKey::Name(name), path, mode: self.mode })
    }
}

/// A volume.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct VolumeView {
    /// Its name.
    name: String,
    /// The most that it may hold. It is measured while commands run, and those that exceed it are killed.
    quota_mb: u64,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// The sessions that mount it.
    sessions: Vec<String>,
}

impl From<VolumeInfo> for VolumeView {
    fn from(info: VolumeInfo) -> Self {
        let VolumeInfo { row, quota_mb, sessions } = info;
        let sessions = sessions.into_iter().map(String::from).collect();
        Self { name: row.name.clone(), quota_mb, created_at: row.created_at, sessions }
    }
}

/// The name of a deleted volume.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct DeletedVolumeView {
    /// Its name.
    deleted: String,
}

/// Lists volumes, the oldest first
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes",
    responses((status = 200, description = "The volumes", body = Vec<VolumeView>)))]
pub(crate) async fn list(State(app): State<App>, Who(caller): Who) -> Result<Json<Vec<VolumeView>>, Failure> {
    let volumes = app.service().volumes(&caller).await?;
    Ok(Json(volumes.into_iter().map(VolumeView::from).collect()))
}

/// Creates a volume
///
/// It is empty. Sessions mount it with `volumes`, several at the same time, and it outlives them.
#[utoipa::path(post, path = "/v1/volumes", tag = "volumes", request_body = VolumeBody,
    responses((status = 201, description = "The volume", body = VolumeView)))]
pub(crate) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    Body(body): Body<VolumeBody>,
) -> Result<(StatusCode, Json<VolumeView>), Failure> {
    let created = app.service().create_volume(&caller, &body.name()?).await?;
    Ok((StatusCode::CREATED, Json(created.into())))
}

/// Shows a volume, with the sessions that mount it
#[utoipa::path(get, path = "/v1/volumes/{volume_name}", tag = "volumes", params(VolumePath),
    responses((status = 200, description = "The volume", body = VolumeView)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    OfVolume(name): OfVolume,
) -> Result<Json<VolumeView>, Failure> {
    Ok(Json(app.service().volume(&caller, &VolumeKey::Name(name)).await?.into()))
}

/// Deletes a volume with its content
///
/// Refused with 409 while a session mounts it; the message names the session.
#[utoipa::path(delete, path = "/v1/volumes/{volume_name}", tag = "volumes", params(VolumePath),
    responses((status = 200, description = "The volume is deleted", body = DeletedVolumeView)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    OfVolume(name): OfVolume,
) -> Result<Json<DeletedVolumeView>, Failure> {
    let deleted = name.to_string();
    app.service().delete_volume(&caller, &VolumeKey::Name(name)).await?;
    Ok(Json(DeletedVolumeView { deleted }))
}
