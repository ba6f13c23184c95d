//! What E2B's clients are told of a file in a volume. What they call required is always there.

use box_wire::file_op::{Entry, EntryKind};
use jiff::Timestamp;
use serde::Serialize;

use super::reached::outside;
use crate::entries::name_of;

/// A file, a directory, or whatever else it is.
#[derive(Debug, Serialize)]
pub(super) struct StatView {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    path: String,
    size: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    /// Nobody notes when a file was read, so this is when it was written, as are the other two.
    atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl From<Entry> for StatView {
    fn from(entry: Entry) -> Self {
        let path = outside(&entry.path);
        let written = Timestamp::from_nanosecond(entry.modified_ns.into()).unwrap_or(Timestamp::UNIX_EPOCH);
        Self {
            name: name_of(&path).to_owned(),
            kind: match entry.kind {
                EntryKind::File => "file",
                EntryKind::Directory => "directory",
                EntryKind::Symlink => "symlink",
                EntryKind::Other => "unknown",
            },
            path,
            size: entry.size,
            mode: entry.mode & 0o7777,
            uid: entry.uid,
            gid: entry.gid,
            atime: written,
            mtime: written,
            ctime: written,
            target: entry.target,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn everything_that_clients_read_is_there() {
        let entry = Entry {
            path: "/mnt/volume/a/link".to_owned(),
            kind: EntryKind::Symlink,
            size: 3,
            mode: 0o120_777,
            uid: 1000,
            gid: 0,
            modified_ns: 1_000_000_000_500_000_000,
            target: Some("b".to_owned()),
        };
        let time = "2001-09-09T01:46:40.5Z";
        let expected = json!({
            "name": "link", "type": "symlink", "path": "/a/link", "size": 3, "mode": 0o777, "uid": 1000, "gid": 0,
            "atime": time, "mtime": time, "ctime": time, "target": "b",
        });
        assert_eq!(serde_json::to_value(StatView::from(entry)).unwrap(), expected);
    }
}
