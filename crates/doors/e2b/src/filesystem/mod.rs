//! The service that knows the files of a sandbox: what is there, where it is, and what happens to it.

mod events;
mod watchers;

use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use box_core::Error;
use box_e2b_wire::filesystem::{
    Empty, EntryResponse, ListDirRequest, ListDirResponse, MoveRequest, PathRequest, WatchDirRequest, WatcherEvents,
    WatcherId,
};
use box_e2b_wire::{Code, RpcError};
use box_wire::{FileErrorCode, FileOp};
use http::HeaderMap;

use self::watchers::Watchers;
use super::box_files::BoxFiles;
use super::connect::{self, Streamed, Unary, told};
use super::entries::entry_info;
use super::sandbox_request::SandboxRequest;
use crate::app::App;

/// What can be asked.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/filesystem.Filesystem/Stat", post(stat))
        .route("/filesystem.Filesystem/MakeDir", post(make_dir))
        .route("/filesystem.Filesystem/Move", post(rename))
        .route("/filesystem.Filesystem/ListDir", post(list_dir))
        .route("/filesystem.Filesystem/Remove", post(remove))
        .route("/filesystem.Filesystem/WatchDir", post(watch_dir))
        .route("/filesystem.Filesystem/CreateWatcher", post(create_watcher))
        .route("/filesystem.Filesystem/GetWatcherEvents", post(get_watcher_events))
        .route("/filesystem.Filesystem/RemoveWatcher", post(remove_watcher))
        .layer(Extension(Watchers::default()))
}

/// The files that a call is about.
fn files(app: &App, sandbox_request: SandboxRequest, headers: &HeaderMap) -> Result<BoxFiles, RpcError> {
    let user = connect::user(headers, sandbox_request.usual_user())?;
    Ok(BoxFiles::new(app, sandbox_request, user))
}

async fn stat(
    State(app): State<App>,
    sandbox_request: SandboxRequest,
    headers: HeaderMap,
    Unary(request): Unary<PathRequest>,
) -> Response {
    let answer = async {
        let files = files(&app, sandbox_request, &headers)?;
        let path = files.path(&request.path).map_err(told)?;
        // What lies below a file is not there either.
        let detail = files.detail(FileOp::Stat { path }).await.map_err(|error| match kind(&error) {
            Some(FileErrorCode::NotDirectory) => RpcError::new(Code::NotFound, error.to_string()),
            _ => told(error),
        })?;
        Ok(EntryResponse { entry: entry_info(detail) })
    };
    connect::unary(answer.await)
}

async fn make_dir(
    State(app): State<App>,
    sandbox_request: SandboxRequest,
    headers: HeaderMap,
    Unary(request): Unary<PathRequest>,
) -> Response {
    let answer = async {
        let files = files(&app, sandbox_request, &headers)?;
        let path = files.path(&request.path).map_err(told)?;
        match files.detail(FileOp::MakeDirectory { path: path.clone(), exclusive: true }).await {
            Ok(detail) => Ok(EntryResponse { entry: entry_info(detail) }),
            Err(error) if kind(&error) == Some(FileErrorCode::Exists) => {
                Err(match files.ask(list(path.clone())).await {
                    Ok(_) => RpcError::new(Code::AlreadyExists, format!("directory already exists: {path}")),
                    Err(_) => {
                        RpcError::new(Code::InvalidArgument, format!("path exists and is not a directory: {path}"))
                    }
                })
            }
            Err(error) => Err(told(error)),
        }
    };
    connect::unary(answer.await)
}

async fn rename(
    State(app): State<App>,
    sandbox_request: SandboxRequest,
    headers: HeaderMap,
    Unary(request): Unary<MoveRequest>,
) -> Response {
    let answer = async {
        let files = files(&app, sandbox_request, &headers)?;
        let (from, to) = (files.path(&request.source), files.path(&request.destination));
        let op = FileOp::Relocate { from: from.map_err(told)?, to: to.map_err(told)? };
        let detail = files.detail(op).await.map_err(told)?;
        Ok(EntryResponse { entry: entry_info(detail) })
    };
    connect::unary(answer.await)
}

async fn list_dir(
    State(app): State<App>,
    sandbox_request: SandboxRequest,
    headers: HeaderMap,
    Unary(request): Unary<ListDirRequest>,
) -> Response {
    let answer = async {
        let files = files(&app, sandbox_request, &headers)?;
        let path = files.path(&request.path).map_err(told)?;
        let depth = request.depth.clamp(1, box_wire::limits::DEPTH_MAX);
        let op = FileOp::List { path, depth, entries_max: box_wire::limits::ENTRIES_MAX };
        let (entries, truncated) = files.details(op).await.map_err(told)?;
        if truncated {
            // There is no word for it in the answer, and half of a directory must not be taken for all of it.
            let message = format!("{} has more entries than can be told at once; list fewer levels", request.path);
            return Err(RpcError::new(Code::ResourceExhausted, message));
        }
        Ok(ListDirResponse { entries: entries.into_iter().map(entry_info).collect() })
    };
    connect::unary(answer.await)
}

async fn remove(
    State(app): State<App>,
    sandbox_request: SandboxRequest,
    headers: HeaderMap,
    Unary(request): Unary<PathRequest>,
) -> Response {
    let answer = async {
        let files = files(&app, sandbox_request, &headers)?;
        let path = files.path(&request.path).map_err(told)?;
        match files.ask(FileOp::Remove { path, recursive: true }).await {
            Err(error) if !matches!(kind(&error), Some(FileErrorCode::NotFound | FileErrorCode::NotDirectory)) => {
                Err(told(error))
            }
            _ => Ok(Empty {}),
        }
    };
    connect::unary(answer.await)
}

async fn watch_dir(
    State(app): State<App>,
    sandbox_request: SandboxRequest,
    headers: HeaderMap,
    Streamed(request): Streamed<WatchDirRequest>,
) -> Response {
    let begin = async {
        let files = files(&app, sandbox_request, &headers)?;
        let time = connect::timeout(&headers)?;
        let followed = events::Followed::begin(&files, &request).await?;
        Ok(followed.stream(connect::keepalive(&headers), time))
    };
    match begin.await {
        Ok(messages) => connect::stream(messages, app.closing().clone()),
        Err(error) => axum::response::IntoResponse::into_response(connect::StreamError(error)),
    }
}

async fn create_watcher(
    State(app): State<App>,
    Extension(watchers): Extension<Watchers>,
    sandbox_request: SandboxRequest,
    headers: HeaderMap,
    Unary(request): Unary<WatchDirRequest>,
) -> Response {
    let answer = async {
        let place = watchers.reserve(&sandbox_request.sandbox)?;
        let files = files(&app, sandbox_request, &headers)?;
        let followed = events::Followed::begin(&files, &request).await?;
        Ok(WatcherId { watcher_id: place.keep(followed, &app) })
    };
    connect::unary(answer.await)
}

async fn get_watcher_events(
    Extension(watchers): Extension<Watchers>,
    sandbox_request: SandboxRequest,
    Unary(request): Unary<WatcherId>,
) -> Response {
    let events = watchers.take(&sandbox_request.sandbox, &request.watcher_id);
    connect::unary(events.map(|events| WatcherEvents { events }))
}

async fn remove_watcher(
    Extension(watchers): Extension<Watchers>,
    sandbox_request: SandboxRequest,
    Unary(request): Unary<WatcherId>,
) -> Response {
    connect::unary(watchers.remove(&sandbox_request.sandbox, &request.watcher_id).map(|()| Empty {}))
}

/// The least that only a directory can be asked.
fn list(path: box_wire::GuestPath) -> FileOp {
    FileOp::List { path, depth: 1, entries_max: 1 }
}

/// What is wrong with a file, if that is it.
fn kind(error: &Error) -> Option<FileErrorCode> {
    match error {
        Error::File(error) => Some(error.code),
        _ => None,
    }
}
