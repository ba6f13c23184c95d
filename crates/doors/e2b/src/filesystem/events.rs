//! What happens in a directory, as clients are told of it.

use std::time::Duration;

use box_core::service::FileBytes;
use box_e2b_wire::filesystem::{Empty, EventType, FilesystemEvent, WatchDirRequest, WatchDirResponse};
use box_e2b_wire::{Code, RpcError};
use box_wire::file_op::{ChangeKind, Happening};
use box_wire::{FileOp, GuestPath};
use futures_util::{Stream, StreamExt, stream};
use tokio::time::Instant;

use crate::box_files::{BoxFiles, METADATA};
use crate::connect::told;
use crate::entries::entry_info;

/// A directory of which everything that happens is told.
#[derive(Debug)]
pub(super) struct Followed {
    path: GuestPath,
    changes: FileBytes,
}

impl Followed {
    /// Nothing is missed from when this returns.
    pub(super) async fn begin(files: &BoxFiles, request: &WatchDirRequest) -> Result<Self, RpcError> {
        let path = files.path(&request.path).map_err(told)?;
        let op = FileOp::Follow {
            path: path.clone(),
            recursive: request.recursive,
            entries: request.include_entry,
            attributes: Some(METADATA.to_owned()),
        };
        let (_, changes) = files.ask(op).await.map_err(told)?;
        Ok(Self { path, changes })
    }

    /// The next event; nothing when what is followed is gone.
    pub(super) async fn next(&mut self) -> Result<Option<FilesystemEvent>, RpcError> {
        loop {
            let Some(happening) = self.changes.happening().await.map_err(told)? else { return Ok(None) };
            if let Some(event) = event(&self.path, happening) {
                return Ok(Some(event));
            }
        }
    }

    /// The next event, with what it comes from.
    async fn step(mut self) -> (Self, Option<Result<FilesystemEvent, RpcError>>) {
        let next = self.next().await.transpose();
        (self, next)
    }

    /// As a stream that says when it begins and that it lives, and ends when its time is over.
    pub(super) fn stream(
        self,
        alive: Duration,
        time: Option<Duration>,
    ) -> impl Stream<Item = Result<WatchDirResponse, RpcError>> + Send + 'static {
        let end = time.map(|time| Instant::now() + time);
        let start = stream::once(async { Ok(WatchDirResponse::Start(Empty {})) });
        // What waits for an event is kept: it may have read half of it.
        let events = stream::unfold(Box::pin(self.step()), move |mut waiting| async move {
            tokio::select! {
                (followed, event) = &mut waiting => {
                    Some((event?.map(|event| WatchDirResponse::Filesystem(Box::new(event))), Box::pin(followed.step())))
                }
                () = tokio::time::sleep(alive) => Some((Ok(WatchDirResponse::Keepalive(Empty {})), waiting)),
                () = over(end) => {
                    let error = RpcError::new(Code::DeadlineExceeded, "the time of the call is over");
                    Some((Err(error), waiting))
                }
            }
        });
        start.chain(events)
    }
}

async fn over(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// A change in the words of clients. They have none for what was missed.
fn event(path: &GuestPath, happening: Happening) -> Option<FilesystemEvent> {
    let Happening { change, detail } = happening;
    let kind = match change.what {
        ChangeKind::Created | ChangeKind::Arrived => EventType::Create,
        ChangeKind::Written => EventType::Write,
        ChangeKind::Removed => EventType::Remove,
        ChangeKind::Left => EventType::Rename,
        ChangeKind::Attributes => EventType::Chmod,
        ChangeKind::Renamed | ChangeKind::Missed => return None,
    };
    let below = change.path.strip_prefix(path.as_str())?.trim_start_matches('/');
    let name = if below.is_empty() { "." } else { below };
    Some(FilesystemEvent { name: name.to_owned(), kind, entry: detail.map(|detail| entry_info(*detail)) })
}

#[cfg(test)]
mod tests {
    use box_wire::file_op::Change;

    use super::*;

    fn told_as(what: ChangeKind, path: &str) -> Option<(String, EventType)> {
        let change = Change { what, path: path.to_owned(), is_directory: false };
        let event = event(&"/home/user".parse().unwrap(), Happening { change, detail: None });
        event.map(|event| (event.name, event.kind))
    }

    #[test]
    fn changes_are_told_from_the_watched_directory_on() {
        for (what, path, name, kind) in [
            (ChangeKind::Created, "/home/user/a", "a", EventType::Create),
            (ChangeKind::Written, "/home/user/a/b", "a/b", EventType::Write),
            (ChangeKind::Left, "/home/user/old", "old", EventType::Rename),
            (ChangeKind::Arrived, "/home/user/new", "new", EventType::Create),
            (ChangeKind::Attributes, "/home/user/a", "a", EventType::Chmod),
            (ChangeKind::Removed, "/home/user", ".", EventType::Remove),
        ] {
            assert_eq!(told_as(what, path), Some((name.to_owned(), kind)), "{what:?}");
        }
        assert_eq!(told_as(ChangeKind::Missed, "/home/user"), None);
    }
}
