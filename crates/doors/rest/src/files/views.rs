//! What callers are shown of files.

use box_wire::file_op::{Entry, EntryKind};
use jiff::Timestamp;
use serde::Serialize;

/// A file, directory, link or something else.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct EntryView {
    /// Its path in the box. What is not UTF-8 in it is told as U+FFFD.
    path: String,
    /// `file`, `directory`, `symlink` or `other`.
    #[schema(value_type = String, example = "file")]
    kind: EntryKind,
    /// Bytes of a file.
    size: u64,
    /// Permission bits, in octal.
    #[schema(example = "0644")]
    mode: String,
    /// Owner inside the box.
    uid: u32,
    /// Group inside the box.
    gid: u32,
    /// When it was last changed.
    #[schema(value_type = Option<String>)]
    modified_at: Option<Timestamp>,
    /// What a link says.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl From<Entry> for EntryView {
    fn from(entry: Entry) -> Self {
        Self {
            path: entry.path,
            kind: entry.kind,
            size: entry.size,
            mode: format!("{:04o}", entry.mode),
            uid: entry.uid,
            gid: entry.gid,
            modified_at: Timestamp::from_nanosecond(entry.modified_ns.into()).ok(),
            target: entry.target,
        }
    }
}

/// What is in a directory.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ListView {
    /// The things, sorted by path.
    entries: Vec<EntryView>,
    /// Whether there are more.
    truncated: bool,
}

impl ListView {
    pub(super) fn new(entries: Vec<Entry>, truncated: bool) -> Self {
        Self { entries: entries.into_iter().map(EntryView::from).collect(), truncated }
    }
}

/// What was unpacked.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct UnpackedView {
    /// Files, links and directories.
    pub(super) entries: u64,
    /// Bytes of files.
    pub(super) bytes: u64,
}

/// What came of an upload.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub(crate) enum UploadedView {
    /// The file.
    File(EntryView),
    /// What was in the archive.
    Archive(UnpackedView),
}
