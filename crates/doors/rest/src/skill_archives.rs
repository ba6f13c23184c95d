//! Skills from archives that are sent along, and from places that are named.

use std::path::PathBuf;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use box_core::{Caller, Scope};
use box_skills::{SkillStore, limits as skill_limits};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use super::skill_body::{ArchiveQuery, FetchBody, FetchRequest, FetchSchema, PreviewView, SkillView};
use super::views::Binary;
use crate::app::App;
use crate::extract::Who;
use crate::fetch;
use crate::skill_door::told;
use door_http::blocking;
use door_http::body::{self, Body, Params};
use door_http::failure::Failure;

/// What an archive may say that it is.
const ARCHIVE_KINDS: [&str; 3] = ["application/zip", "application/x-zip-compressed", "application/octet-stream"];

/// Says what is in an archive, and installs nothing
///
/// The body is a zip archive of at most 20 MiB.
#[utoipa::path(post, path = "/v1/skills/preview", tag = "skills", params(ArchiveQuery),
    request_body(content((inline(Binary) = "application/zip"), (inline(Binary) = "application/octet-stream"))),
    responses((status = 200, description = "The skills in it", body = PreviewView)))]
pub(crate) async fn preview(
    State(app): State<App>,
    Who(caller): Who,
    Params(query): Params<ArchiveQuery>,
    request: Request,
) -> Result<Response, Failure> {
    let _turn = app.skills().turn().await?;
    let archive = read_archive(request).await?;
    preview_of(&app, &caller, archive.into(), query, "").await
}

/// Installs skills of an archive: all that were chosen, or none
///
/// The body is a zip archive of at most 20 MiB. With the `digest` of a preview, what is installed is what was shown.
#[utoipa::path(post, path = "/v1/skills/install", tag = "skills", params(ArchiveQuery),
    request_body(content((inline(Binary) = "application/zip"), (inline(Binary) = "application/octet-stream"))),
    responses((status = 201, description = "The skills", body = Vec<SkillView>)))]
pub(crate) async fn install(
    State(app): State<App>,
    Who(caller): Who,
    Params(query): Params<ArchiveQuery>,
    request: Request,
) -> Result<Response, Failure> {
    let _turn = app.skills().turn().await?;
    let archive = read_archive(request).await?;
    install_of(&app, &caller, archive.into(), query, "").await
}

/// Installs skills from an address or from a directory of the host
///
/// Everything that holds for archives that are sent along holds for these. Or says what would be installed.
#[utoipa::path(post, path = "/v1/skills/fetch", tag = "skills", request_body = FetchSchema,
    responses(
        (status = 200, description = "The skills in it, when a preview was asked for", body = PreviewView),
        (status = 201, description = "The skills", body = Vec<SkillView>)))]
pub(crate) async fn fetch(
    State(app): State<App>,
    Who(caller): Who,
    Body(FetchRequest { from, archive: query }): Body<FetchRequest>,
) -> Result<Response, Failure> {
    let _turn = app.skills().turn().await?;
    let is_preview = from.preview == Some(true);
    let (archive, filename) = fetched(&app, &caller, from).await?;
    if is_preview {
        preview_of(&app, &caller, archive, query, &filename).await
    } else {
        install_of(&app, &caller, archive, query, &filename).await
    }
}

async fn preview_of(
    app: &App,
    caller: &Caller,
    archive: Vec<u8>,
    query: ArchiveQuery,
    filename: &str,
) -> Result<Response, Failure> {
    let request = query.request(filename);
    let look = move |store: &SkillStore| {
        let skills = store.preview_zip(&archive, &request)?.into_iter().map(SkillView::from).collect();
        Ok(PreviewView { digest: box_skills::digest(&archive), skills })
    };
    Ok(Json(app.skills().with_store(caller, look).await?).into_response())
}

async fn install_of(
    app: &App,
    caller: &Caller,
    archive: Vec<u8>,
    query: ArchiveQuery,
    filename: &str,
) -> Result<Response, Failure> {
    let (request, selection) = (query.request(filename), query.selection());
    let install = move |store: &SkillStore| store.install_zip(&archive, &request, &selection);
    let skills = app.skills().adding(app.service(), caller, install).await?;
    let skills: Vec<SkillView> = skills.into_iter().map(SkillView::from).collect();
    Ok((StatusCode::CREATED, Json(skills)).into_response())
}

async fn read_archive(request: Request) -> Result<Bytes, Failure> {
    let kind = check_kind(request.headers());
    let bytes = body::read_all(request, skill_limits::ZIP_BYTES_MAX).await?;
    kind?;
    Ok(bytes)
}

fn check_kind(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if ARCHIVE_KINDS.contains(&kind.as_str()) {
        return Ok(());
    }
    let message = "send the archive itself, as application/zip";
    let failure = Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message);
    Err(failure.hint("with curl: --data-binary @skill.zip -H 'Content-Type: application/zip'"))
}

/// The archive from where the caller says, and what it is called there.
async fn fetched(app: &App, caller: &Caller, from: FetchBody) -> Result<(Vec<u8>, String), Failure> {
    match (from.url, from.directory) {
        (Some(url), None) => fetch::archive(app.skills().config(), &url).await,
        (None, Some(directory)) => {
            caller.require(Scope::Admin)?;
            let roots = app.skills().config().checkout_roots.clone();
            let directory = PathBuf::from(directory);
            let filename = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok((blocking(move || box_skills::archive_of(&directory, &roots)).await?.map_err(told)?, filename))
        }
        _ => Err(Failure::invalid("url", "say either url or directory")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_that_says_what_it_is_says_that_it_is_one() {
        let check =
            |kind: &str| check_kind(&[(header::CONTENT_TYPE, kind.parse().unwrap())].into_iter().collect()).is_ok();
        assert!(["application/zip", "Application/ZIP; x=y", "application/octet-stream"].into_iter().all(check));
        assert!(!["application/json", "multipart/form-data; boundary=x", "text/plain"].into_iter().any(check));
        assert!(check_kind(&HeaderMap::new()).is_ok());
    }
}
