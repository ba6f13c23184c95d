//! Bytes of files of a sandbox: downloads, uploads in either form, and files that become one.

mod conditions;
mod download;
mod form;
#[cfg(fuzzing)]
pub mod fuzzing;
mod metadata;
mod pieces;
mod told;
mod upload;

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use box_e2b_wire::BoxUser;
use box_wire::FileOp;
use box_wire::file_op::Detail;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};

pub(super) use self::download::file as download;
pub(super) use self::told::told;
pub(super) use self::upload::receive_one;
use super::box_files::BoxFiles;
use super::entries::name_of;
use super::failure::E2bFailure;
use super::sandbox_request::SandboxRequest;
use crate::app::App;
use crate::limits;
use door_http::body::read_all;

/// What can be asked.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/files", get(read).post(write)).route("/files/compose", post(compose))
}

/// Which file, and as whom. What else stands in the address was for the signature.
#[derive(Debug, Default, Deserialize)]
struct FileQuery {
    path: Option<String>,
    username: Option<String>,
}

/// What was written.
#[derive(Debug, Serialize)]
struct Written {
    path: String,
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

impl From<Detail> for Written {
    fn from(detail: Detail) -> Self {
        let metadata = detail.attributes.into_iter().collect();
        let path = detail.entry.path;
        Self { name: name_of(&path).to_owned(), path, kind: "file", metadata }
    }
}

fn user(name: Option<&str>, usual: BoxUser) -> Result<BoxUser, E2bFailure> {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(usual) };
    let unknown = || E2bFailure::unauthorized(format!("invalid user {name:.40?}; there are `user` and `root`"));
    BoxUser::named(name).ok_or_else(unknown)
}

async fn read(
    State(app): State<App>,
    sandbox_request: SandboxRequest,
    Query(query): Query<FileQuery>,
    headers: HeaderMap,
) -> Result<Response, E2bFailure> {
    let user = user(query.username.as_deref(), sandbox_request.usual_user())?;
    let files = BoxFiles::new(&app, sandbox_request, user);
    let path = files.path(query.path.as_deref().unwrap_or_default()).map_err(told)?;
    download::file(&files, path, &headers).await
}

async fn write(
    State(app): State<App>,
    sandbox_request: SandboxRequest,
    Query(query): Query<FileQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Vec<Written>>, E2bFailure> {
    let user = user(query.username.as_deref(), sandbox_request.usual_user());
    let files = user.map(|user| BoxFiles::new(&app, sandbox_request, user));
    let written = upload::receive(files, query.path.as_deref(), &headers, body).await?;
    Ok(Json(written.into_iter().map(Written::from).collect()))
}

/// Which files become one.
#[derive(Debug, Deserialize)]
struct ComposeBody {
    #[serde(alias = "sourcePaths")]
    source_paths: Vec<String>,
    destination: String,
    #[serde(default)]
    username: Option<String>,
}

async fn compose(
    State(app): State<App>,
    sandbox_request: SandboxRequest,
    request: Request,
) -> Result<Response, E2bFailure> {
    let bytes = read_all(request, limits::COMPOSE_BODY_BYTES_MAX).await?;
    let body: ComposeBody =
        serde_json::from_slice(&bytes).map_err(|error| E2bFailure::invalid(format!("invalid body: {error}")))?;
    let user = user(body.username.as_deref(), sandbox_request.usual_user())?;
    let files = BoxFiles::new(&app, sandbox_request, user);
    let sources = body.source_paths.iter().map(|path| files.path(path)).collect::<Result<_, _>>();
    let path = files.path(&body.destination).map_err(told)?;
    let op = FileOp::Join { sources: sources.map_err(told)?, path, bytes_max: limits::FILE_BYTES_MAX };
    let joined = files.detail(op).await.map_err(told)?;
    Ok((StatusCode::OK, Json(Written::from(joined))).into_response())
}
