//! What lies in a volume, for who has its token: looked at, read, written and removed by the agent of a small box of its own.

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use box_core::profile::Account;
use box_core::service::files::entry_of as entry_in;
use box_wire::file_op::{Entry, EntryKind};
use box_wire::{FileOp, GuestPath};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::reached::Reached;
use super::views::StatView;
use crate::app::App;
use crate::box_files::BoxFiles;
use crate::control::Sent;
use crate::failure::E2bFailure;
use crate::files;
use crate::unread::Unread;

/// What can be asked.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/volumecontent/{volume_id}/file", get(read).put(write))
        .route("/volumecontent/{volume_id}/dir", get(list).post(make_directory))
        .route("/volumecontent/{volume_id}/path", get(stat).patch(change).delete(remove))
        .layer(from_fn(heard_out))
}

async fn heard_out(request: Request, next: Next) -> Response {
    Unread::heard_out(request, |request| next.run(request)).await
}

async fn read(Reached { files, path, .. }: Reached, headers: HeaderMap) -> Result<Response, E2bFailure> {
    files::download(&files, path, &headers).await
}

async fn write(
    Reached { files, path, asked }: Reached,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<StatView>), E2bFailure> {
    let change = Change::read(asked.uid, asked.gid, asked.mode)?;
    let written = files::receive_one(&files, path.clone(), &headers, body).await?;
    Ok((StatusCode::CREATED, Json(change.made_to(&files, path, written.entry).await?.into())))
}

async fn list(Reached { files, path, asked }: Reached) -> Result<Json<Vec<StatView>>, E2bFailure> {
    let depth = asked.depth.unwrap_or(1).clamp(1, box_wire::limits::DEPTH_MAX);
    let op = FileOp::List { path, depth, entries_max: box_wire::limits::ENTRIES_MAX };
    let (entries, truncated) = files.entries(op).await.map_err(|error| files.told(error))?;
    if truncated {
        // The answer has no field for this, and half of a directory must not be taken for all of it.
        let message = "there are more entries than can be told at once; list fewer levels";
        return Err(E2bFailure::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    Ok(Json(entries.into_iter().map(StatView::from).collect()))
}

async fn make_directory(Reached { files, path, asked }: Reached) -> Result<(StatusCode, Json<StatView>), E2bFailure> {
    let change = Change::read(asked.uid, asked.gid, asked.mode)?;
    let with_those_above = asked.force.unwrap_or(false);
    if !with_those_above {
        // FileOp makes what is missing above; here it has to be there.
        entry_of(&files, FileOp::Stat { path: path.parent() }).await?;
    }
    let made = entry_of(&files, FileOp::MakeDirectory { path: path.clone(), exclusive: !with_those_above }).await?;
    Ok((StatusCode::CREATED, Json(change.made_to(&files, path, made).await?.into())))
}

async fn stat(Reached { files, path, .. }: Reached) -> Result<Json<StatView>, E2bFailure> {
    Ok(Json(entry_of(&files, FileOp::Stat { path }).await?.into()))
}

async fn change(
    Reached { files, path, .. }: Reached,
    Sent(sent): Sent<ChangeBody>,
) -> Result<Json<StatView>, E2bFailure> {
    let change = Change::read(sent.uid, sent.gid, sent.mode)?;
    let now = entry_of(&files, FileOp::Stat { path: path.clone() }).await?;
    Ok(Json(change.made_to(&files, path, now).await?.into()))
}

async fn remove(Reached { files, path, .. }: Reached) -> Result<StatusCode, E2bFailure> {
    if path == files.root {
        return Err(E2bFailure::invalid("the root of a volume cannot be removed; remove the volume, or what is in it"));
    }
    files.ask(FileOp::Remove { path, recursive: true }).await.map_err(|error| files.told(error))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn entry_of(files: &BoxFiles, op: FileOp) -> Result<Entry, E2bFailure> {
    files.entry(op).await.map_err(|error| files.told(error))
}

/// What is sent to change who may do what with a file.
#[derive(Debug, Deserialize)]
pub(super) struct ChangeBody {
    uid: Option<i64>,
    gid: Option<i64>,
    mode: Option<i64>,
}

/// What is to change.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
}

impl Change {
    fn read(uid: Option<i64>, gid: Option<i64>, mode: Option<i64>) -> Result<Self, E2bFailure> {
        let bits = |mode: i64| u32::try_from(mode).ok().filter(|mode| *mode <= 0o777);
        let bad = || E2bFailure::invalid("mode has permission bits only, from 0 to 511 (octal 777)");
        Ok(Self {
            uid: uid.map(|uid| known("uid", uid, Account::User.user().uid)).transpose()?,
            gid: gid.map(|gid| known("gid", gid, Account::User.user().gid)).transpose()?,
            mode: mode.map(|mode| bits(mode).ok_or_else(bad)).transpose()?,
        })
    }

    /// Changes something that was found so. Only root may give it away.
    async fn made_to(self, files: &BoxFiles, path: GuestPath, found: Entry) -> Result<Entry, E2bFailure> {
        let Self { uid, gid, mode } = self;
        // What a link leads to may be somebody else's than the link.
        let is_itself = found.kind != EntryKind::Symlink;
        let uid = uid.filter(|uid| !(is_itself && *uid == found.uid));
        let gid = gid.filter(|gid| !(is_itself && *gid == found.gid));
        if (uid, gid, mode) == (None, None, None) {
            return Ok(found);
        }
        let op = FileOp::Adjust { path, mode, uid, gid };
        if uid.is_none() && gid.is_none() {
            return entry_of(files, op).await;
        }
        let changed = async { entry_in(files.ask_root(op).await?.0) };
        changed.await.map_err(|error| files.told(error))
    }
}

/// The number of somebody to whom something in a volume can belong: sandboxes have these two.
fn known(field: &str, number: i64, user: u32) -> Result<u32, E2bFailure> {
    let found = u32::try_from(number).ok().filter(|number| *number == 0 || *number == user);
    let unknown = || E2bFailure::invalid(format!("{field} {number} is nobody here; 0 is root and {user} is user"));
    found.ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_one_of_two_and_have_permission_bits() {
        let change = Change::read(Some(0), Some(1000), Some(0o640)).unwrap();
        assert_eq!(change, Change { uid: Some(0), gid: Some(1000), mode: Some(0o640) });
        for (uid, gid, mode) in [
            (Some(1), None, None),
            (Some(-1), None, None),
            (None, Some(65_534), None),
            (None, Some(1 << 40), None),
            (None, None, Some(0o4755)),
            (None, None, Some(-1)),
        ] {
            assert_eq!(Change::read(uid, gid, mode).unwrap_err().status(), 400);
        }
    }
}
