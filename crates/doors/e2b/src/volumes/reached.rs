//! A request about what lies in a volume, from somebody who may: found, opened by the right token, with a path in it.

use axum::extract::{FromRequestParts, Query, RawPathParams};
use box_core::Error;
use box_core::service::{SessionFiles, VOLUME_ROOT, VolumeFiles};
use box_core::store::VolumeRow;
use box_e2b_wire::BoxUser;
use box_wire::{FileErrorCode, GuestPath};
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use subtle::ConstantTimeEq;

use crate::app::App;
use crate::box_files::{BoxFiles, by_the_letter};
use crate::failure::E2bFailure;
use crate::files;
use door_http::auth::bearer;
use door_http::seats;

/// What is asked, and of what.
#[derive(Debug)]
pub(super) struct Reached {
    /// The files of the volume.
    pub(super) files: BoxFiles,
    /// The file or directory that is meant.
    pub(super) path: GuestPath,
    /// What else stands in the address.
    pub(super) asked: ContentQuery,
}

/// What stands in an address.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ContentQuery {
    path: Option<String>,
    pub(super) depth: Option<u32>,
    pub(super) uid: Option<i64>,
    pub(super) gid: Option<i64>,
    pub(super) mode: Option<i64>,
    pub(super) force: Option<bool>,
}

impl FromRequestParts<App> for Reached {
    type Rejection = E2bFailure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, E2bFailure> {
        let unreadable = |_| E2bFailure::invalid("the path is not UTF-8");
        let raw = RawPathParams::from_request_parts(parts, app).await.map_err(unreadable)?;
        let id = raw.iter().find(|(name, _)| *name == "volume_id").map_or("", |(_, value)| value);
        let row = app.service().volume_of_any_tenant(id).await.map_err(super::told)?;
        check_token(&row, &parts.headers)?;
        seats::trust(&parts.extensions);
        let bad = |error| E2bFailure::invalid(format!("the query cannot be read: {error}"));
        let Query(asked) = Query::<ContentQuery>::try_from_uri(&parts.uri).map_err(bad)?;
        let path = inside(asked.path.as_deref())?;
        Ok(Self { files: files_of(app, &row)?, path, asked })
    }
}

fn check_token(row: &VolumeRow, headers: &HeaderMap) -> Result<(), E2bFailure> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let shown = match (all.next().and_then(|text| text.to_str().ok()), all.next()) {
        (Some(text), None) => bearer(text),
        _ => None,
    };
    if bool::from(shown.unwrap_or_default().as_bytes().ct_eq(row.token.as_bytes())) {
        return Ok(());
    }
    Err(E2bFailure::unauthorized("the token of the volume is needed: send it as Authorization: Bearer TOKEN"))
}

/// The path that a client means. A volume begins at `/`, and nothing is above it.
fn inside(text: Option<&str>) -> Result<GuestPath, E2bFailure> {
    let text = text.filter(|text| !text.is_empty());
    let text =
        text.ok_or_else(|| E2bFailure::invalid("path is needed: something in the volume, such as /notes.txt"))?;
    let below = by_the_letter(text);
    let whole = format!("{VOLUME_ROOT}{}", below.trim_end_matches('/'));
    GuestPath::parse("path", &whole).map_err(|error| told(error.into()))
}

/// The name of something in a volume, as a client knows it.
pub(super) fn outside(path: &str) -> String {
    match path.strip_prefix(VOLUME_ROOT) {
        Some("") => "/".to_owned(),
        Some(below) => below.to_owned(),
        None => path.to_owned(),
    }
}

/// The files of a volume, through the session of its own.
fn files_of(app: &App, row: &VolumeRow) -> Result<BoxFiles, E2bFailure> {
    let VolumeFiles { caller, session, request, root } = app.service().volume_files(row)?;
    let files = SessionFiles::of_existing(app.service().clone(), caller, session);
    Ok(BoxFiles::of(SessionFiles { request, root, ..files }, BoxUser::User, told))
}

/// What a client is told. It does not know where its volume is in our box.
pub(super) fn told(error: Error) -> E2bFailure {
    let failure = match error {
        Error::File(error) => match error.code {
            // What lies below a file is not there.
            FileErrorCode::NotFound | FileErrorCode::NotDirectory => E2bFailure::not_found(error.message),
            FileErrorCode::Exists => E2bFailure::new(StatusCode::CONFLICT, error.message),
            _ => files::told(Error::File(error)),
        },
        error @ (Error::Gone { .. } | Error::SessionNotFound { .. }) => {
            E2bFailure::new(StatusCode::SERVICE_UNAVAILABLE, format!("the volume cannot be reached now: {error}"))
        }
        error => error.into(),
    };
    failure.reworded(|words| {
        let words = words.replace(&format!("{VOLUME_ROOT}/"), "/").replace(VOLUME_ROOT, "/");
        words.replace("workspace quota", "volume quota").replace("workspace_quota_mb", "e2b_door.volume_mb")
    })
}

#[cfg(test)]
mod tests {
    use box_wire::FileError;

    use super::*;

    #[test]
    fn a_volume_begins_at_its_root_and_nothing_is_above() {
        for (text, meant) in [
            ("/", "/mnt/volume"),
            ("a", "/mnt/volume/a"),
            ("/a//b/./c/", "/mnt/volume/a/b/c"),
            ("/../../etc/passwd", "/mnt/volume/etc/passwd"),
            ("..", "/mnt/volume"),
            ("~/a", "/mnt/volume/~/a"),
        ] {
            assert_eq!(inside(Some(text)).unwrap().as_str(), meant, "{text}");
        }
        for bad in [None, Some(""), Some("/a\0b"), Some("/a\nb")] {
            assert_eq!(inside(bad).unwrap_err().status(), 400, "{bad:?}");
        }
        assert_eq!([outside("/mnt/volume"), outside("/mnt/volume/a/b")], ["/", "/a/b"]);
    }

    #[test]
    fn nobody_is_told_where_a_volume_is_in_our_box() {
        for (code, status) in [
            (FileErrorCode::NotFound, 404),
            (FileErrorCode::NotDirectory, 404),
            (FileErrorCode::Exists, 409),
            (FileErrorCode::IsDirectory, 400),
            (FileErrorCode::PathEscapes, 400),
        ] {
            let failure = told(FileError::new(code, "/mnt/volume/a leads out of /mnt/volume").into());
            assert_eq!((failure.status().as_u16(), failure.message()), (status, "/a leads out of /"), "{code:?}");
        }
        let quota = box_core::quota::Quota::of_mb(1);
        let usage = box_core::quota::Usage { bytes: 2 << 20, ..Default::default() };
        let full = told(quota.exceeded(box_core::quota::QuotaMoment::Before, &usage));
        assert!(full.status() == 507 && full.message().contains("e2b_door.volume_mb"), "{full:?}");
        assert!(!full.message().contains("workspace"), "{full:?}");
    }
}
