//! Files of a session: read, written, listed, moved, removed and watched. The work is done in the box, by its agent.

mod asked;
mod download;
mod upload;
mod views;
mod watching;

use axum::Json;
use axum::body::Body as Bytes;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use box_core::service::SessionFiles;
use box_core::service::files::entry_of;
use box_wire::{Answer, FileOp};
use http::{HeaderMap, Method, StatusCode, request::Parts};
use tokio_util::sync::CancellationToken;

use self::asked::{
    DownloadQuery, ListQuery, MakeDirectoryBody, MoveBody, RemoveQuery, StatQuery, UploadQuery, WatchQuery,
};
use self::views::{EntryView, ListView, UnpackedView, UploadedView};
use crate::app::App;
use crate::extract::{InSession, SessionPath, Who};
use crate::views::Binary;
use door_http::body::{Body, Params};
use door_http::failure::{ErrorBody, Failure};

/// The files of the session that the path names, as its caller sees them. Files never make a session.
#[derive(Debug)]
pub(crate) struct Files {
    session: SessionFiles,
    closing: CancellationToken,
}

impl FromRequestParts<App> for Files {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Response> {
        let Who(caller) = Who::from_request_parts(parts, app).await?;
        let InSession(session) = InSession::from_request_parts(parts, app).await?;
        let session = SessionFiles::of_existing(app.service().clone(), caller, session);
        Ok(Self { session, closing: app.closing().clone() })
    }
}

impl Files {
    /// Asks for something that is answered with one entry and nothing else.
    async fn entry(&self, op: FileOp) -> Result<Json<EntryView>, Failure> {
        Ok(Json(self.session.entry(op).await?.into()))
    }
}

/// Downloads a file
///
/// All of it, or what `Range` asks for; with `ETag` and `If-Range` a download that broke off can be resumed. `Strongbox-Mode` has
/// the permission bits. With `archive=tar` a file or directory comes as a tar archive. An answer that cannot be completed breaks
/// off, so that nobody takes it for whole.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/files", tag = "files",
    params(SessionPath, DownloadQuery,
        ("Range" = Option<String>, Header, description = "One range of bytes, such as bytes=100-"),
        ("If-Range" = Option<String>, Header, description = "The ETag of the file of which the range is wanted; all of another one is sent")),
    responses(
        (status = 200, description = "The file, or the archive",
            content((inline(Binary) = "application/octet-stream"), (inline(Binary) = "application/x-tar"))),
        (status = 206, description = "The part that Range asked for", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 416, description = "Nothing of that range is there", body = ErrorBody)))]
pub(crate) async fn download(
    files: Files,
    Params(query): Params<DownloadQuery>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let path = query.path()?;
    match query.archive {
        Some(_) => download::archive(&files.session, path).await,
        None if method == Method::HEAD => download::head(&files.session, path).await,
        None => download::file(&files.session, path, &headers).await,
    }
}

/// Uploads a file
///
/// The body is what is in it, byte for byte. What was there is replaced when all of it came, and not before; a caller who hangs
/// up leaves nothing. With `offset` an upload that broke off is resumed in place. With `archive=tar` the body is an archive, and
/// what is in it is put into the directory `path`, which is made; the answer then says how much it was.
#[utoipa::path(put, path = "/v1/sessions/{session_id}/files", tag = "files", params(SessionPath, UploadQuery),
    request_body(content = inline(Binary), content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The file; of an archive, what was unpacked", body = UploadedView),
        (status = 201, description = "The file, which is new because that was asked for", body = EntryView),
        (status = 413, description = "It is larger than a file may be", body = ErrorBody)))]
pub(crate) async fn upload(
    files: Files,
    Params(query): Params<UploadQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let (op, status) = query.op()?;
    let body = upload::check(&headers, query.offset(), body).await?;
    let done = match upload::receive(&files.session, op, body).await? {
        Answer::Unpacked { entries, bytes } => UploadedView::Archive(UnpackedView { entries, bytes }),
        answer => UploadedView::File(entry_of(answer)?.into()),
    };
    Ok((status, Json(done)).into_response())
}

/// Removes a file, a link or a directory
///
/// A link is removed, not what it points to. A directory that has something in it is removed with `recursive=true` only.
#[utoipa::path(delete, path = "/v1/sessions/{session_id}/files", tag = "files", params(SessionPath, RemoveQuery),
    responses((status = 204, description = "It is gone")))]
pub(crate) async fn remove(files: Files, Params(query): Params<RemoveQuery>) -> Result<StatusCode, Failure> {
    files.session.ask(query.op()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Says what is at a path
///
/// A link is told as a link, with what it says.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/files/stat", tag = "files", params(SessionPath, StatQuery),
    responses((status = 200, description = "What is there", body = EntryView)))]
pub(crate) async fn stat(files: Files, Params(query): Params<StatQuery>) -> Result<Json<EntryView>, Failure> {
    files.entry(query.op()?).await
}

/// Lists a directory
///
/// Sorted by path, down to `depth` levels. `truncated` says that there is more than `limit`.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/files/list", tag = "files", params(SessionPath, ListQuery),
    responses((status = 200, description = "What is in it", body = ListView)))]
pub(crate) async fn list(files: Files, Params(query): Params<ListQuery>) -> Result<Json<ListView>, Failure> {
    let (entries, truncated) = files.session.entries(query.op()?).await?;
    Ok(Json(ListView::new(entries, truncated)))
}

/// Makes a directory, and those above it
#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/mkdir", tag = "files", params(SessionPath),
    request_body = MakeDirectoryBody, responses((status = 200, description = "The directory", body = EntryView)))]
pub(crate) async fn make_directory(
    files: Files,
    Body(body): Body<MakeDirectoryBody>,
) -> Result<Json<EntryView>, Failure> {
    files.entry(body.op()?).await
}

/// Gives something another name
#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/move", tag = "files", params(SessionPath),
    request_body = MoveBody, responses((status = 200, description = "It, under its new name", body = EntryView)))]
pub(crate) async fn rename(files: Files, Body(body): Body<MoveBody>) -> Result<Json<EntryView>, Failure> {
    files.entry(body.op()?).await
}

/// Tells of changes as events
///
/// `watching` comes first: from then on nothing is missed. Then `created`, `written`, `renamed`, `attributes` and `removed`, each
/// with `path` and `is_directory`. `missed` says that more happened than could be told: look again. `error` is the last one when
/// the box ends. The session counts as used while it is watched.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/files/watch", tag = "files", params(SessionPath, WatchQuery),
    responses((status = 200, description = "Events", content_type = "text/event-stream", body = String)))]
pub(crate) async fn watch(files: Files, Params(query): Params<WatchQuery>) -> Result<Response, Failure> {
    let (_, changes) = files.session.ask(query.op()?).await?;
    Ok(watching::respond(changes, files.closing))
}
