//! What the agent does itself, for a caller and as the workload: files, listings, searches.
//!
//! A file operation is a [`crate::Program`] like any other: it runs in a child with the rights, limits and confinement
//! of a command, has a deadline and can be killed. Instead of executing a program the child does the work. Its standard
//! output is one length-prefixed [`Reply`], followed by raw bytes for operations that return some; its standard input
//! is raw bytes for operations that take some. A failure after the reply is an exit code that is not 0, with the reason
//! on standard error.

mod check;
mod detail;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use self::detail::{Attributes, Detail, Happening, LinkTarget};
use crate::version::Feature;
use crate::{GuestPath, Invalid, User, codec, limits};

/// Something for the agent to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRequest {
    /// Nothing outside of this tree is touched, whatever links say. `/` is the whole box.
    pub root: GuestPath,
    /// The operation.
    pub op: FileOp,
}

/// A file operation. All paths are inside the box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileOp {
    /// Describe a file. Answered with [`Answer::Entry`]. A link itself is described, not its target.
    Stat {
        /// Of what.
        path: GuestPath,
    },
    /// List a directory. Answered with [`Answer::Entries`].
    List {
        /// Which directory.
        path: GuestPath,
        /// Levels to go down; 1 is the directory itself.
        depth: u32,
        /// Most entries in the answer, at most [`limits::ENTRIES_MAX`].
        entries_max: u32,
    },
    /// The bytes of a regular file. Answered with [`Answer::Entry`], then the bytes.
    Read {
        /// Which file.
        path: GuestPath,
        /// From which byte on.
        offset: u64,
        /// Most bytes; to the end when not given.
        bytes_max: Option<u64>,
    },
    /// Takes the bytes of a file. Answered with [`Answer::Entry`] of what was made.
    Write {
        /// Which file.
        path: GuestPath,
        /// What to do with an existing file.
        how: WriteHow,
        /// Permission bits of a new file; those of the old one, or the usual ones, when not given.
        mode: Option<u32>,
        /// Most bytes that the whole file may have.
        bytes_max: u64,
    },
    /// Makes a directory and those above it. Answered with [`Answer::Entry`].
    MakeDirectory {
        /// Which.
        path: GuestPath,
        /// Whether it is an error that it exists.
        exclusive: bool,
    },
    /// Gives something another name. Answered with [`Answer::Entry`] under the new one.
    Move {
        /// The path.
        from: GuestPath,
        /// Its new name.
        to: GuestPath,
        /// Whether a file of that name is replaced.
        replace: bool,
    },
    /// Removes something. Answered with [`Answer::Done`].
    Remove {
        /// The path. Links are removed, not their targets.
        path: GuestPath,
        /// Whether a directory may have something in it.
        recursive: bool,
    },
    /// A file or directory as a tar archive. Answered with [`Answer::Entry`], then the archive.
    Pack {
        /// The path.
        path: GuestPath,
    },
    /// Takes a tar archive and puts what is in it into a directory, which is made. Answered with [`Answer::Unpacked`].
    Unpack {
        /// The directory.
        path: GuestPath,
        /// Most bytes of all files together.
        bytes_max: u64,
    },
    /// Tells of changes until the file operation is ended. Answered with [`Answer::Done`] when nothing is missed any more, then
    /// length-prefixed [`Change`]s.
    Watch {
        /// Of what.
        path: GuestPath,
        /// Whether directories below count.
        recursive: bool,
    },
    /// Measure a tree. Answered with [`Answer::Size`].
    Measure {
        /// Which tree.
        path: GuestPath,
    },
    /// Lines of a text file. Answered with [`Answer::Lines`].
    Lines {
        /// Which file.
        path: GuestPath,
        /// Number of the first line, from 1.
        first: u64,
        /// Most lines, at most [`limits::LINES_MAX`].
        lines_max: u32,
        /// Most bytes of text, at most [`limits::TEXT_BYTES_MAX`].
        bytes_max: u32,
    },
    /// Replaces text in a file. Answered with [`Answer::Edited`].
    Edit {
        /// Which file.
        path: GuestPath,
        /// The old text, exactly. It must occur once, or at least once if all occurrences are replaced.
        old: String,
        /// The new text.
        new: String,
        /// Whether all places are replaced.
        all: bool,
    },
    /// Files whose path matches a pattern, newest first. Answered with [`Answer::Found`].
    Glob {
        /// The start of the search.
        path: GuestPath,
        /// A pattern for paths below it, such as `**/*.rs`.
        pattern: String,
        /// Most files, at most [`limits::MATCHES_MAX`].
        matches_max: u32,
    },
    /// Lines that match a regular expression. Answered with [`Answer::Matched`].
    Grep {
        /// The start of the search: a file or a directory.
        path: GuestPath,
        /// The expression.
        pattern: String,
        /// Only in files whose path below that looks like this.
        include: Option<String>,
        /// Whether capitals do not matter.
        ignore_case: bool,
        /// Most lines, at most [`limits::MATCHES_MAX`].
        matches_max: u32,
    },
    /// Does another operation and answers with more details: [`Answer::Detail`] for [`Answer::Entry`], and
    /// [`Answer::Details`] for [`Answer::Entries`]. Not for operations that return bytes.
    InDetail {
        /// The operation.
        op: Box<FileOp>,
        /// Include extended attributes with this prefix.
        attributes: Option<String>,
    },
    /// Takes the bytes of a file as a program writes them: in place, and what is there goes first. Directories above are made.
    /// Answered with [`Answer::Entry`].
    Fill {
        /// Which file.
        path: GuestPath,
        /// Most bytes that the whole file may have.
        bytes_max: u64,
        /// Extended attributes that it gets.
        attributes: Option<Attributes>,
    },
    /// Rename, replacing what has the new name, and create missing parents. Answered with
    /// [`Answer::Entry`] under the new one.
    Relocate {
        /// The old path.
        from: GuestPath,
        /// Its new name.
        to: GuestPath,
    },
    /// Makes one file of several, one after the other, and removes them. Answered with [`Answer::Entry`].
    Join {
        /// Which files, at most [`limits::JOINED_MAX`].
        sources: Vec<GuestPath>,
        /// What the whole is called. It may be one of them.
        path: GuestPath,
        /// Most bytes that it may have.
        bytes_max: u64,
    },
    /// How much room a file system has. Answered with [`Answer::Space`].
    Space {
        /// Something on it.
        path: GuestPath,
    },
    /// Tells of changes as [`FileOp::Watch`] does, and of a move which name is the old one and which the new. Only of a directory.
    /// Answered with [`Answer::Done`], then length-prefixed [`Happening`]s.
    Follow {
        /// Of what.
        path: GuestPath,
        /// Whether directories below count.
        recursive: bool,
        /// Whether each change includes the changed entry.
        entries: bool,
        /// Of that, extended attributes whose name begins with this.
        attributes: Option<String>,
    },
    /// Does other work, and gives what it makes or fills to a user. For root of a box that has its capabilities.
    OnBehalf {
        /// The operation.
        op: Box<FileOp>,
        /// The owner of what it creates.
        owner: User,
    },
    /// Whether a file can be filled: it, or where it is not there, the directory in which the first missing thing would be made.
    /// Answered with [`Answer::Done`].
    Reach {
        /// Which file.
        path: GuestPath,
    },
    /// Change permission bits or owner. A link is followed. Answered with [`Answer::Entry`].
    Adjust {
        /// The path.
        path: GuestPath,
        /// Its permission bits, when they are to change.
        mode: Option<u32>,
        /// Its owner, when that is to change.
        uid: Option<u32>,
        /// Its group, when that is to change.
        gid: Option<u32>,
    },
    /// Everything that the box changed, as a tar archive from which another box can be created. The box keeps running;
    /// what the caller may not read is left out. Answered with [`Answer::Done`], then the archive.
    Save,
    /// Fills files as [`FileOp::Fill`] does, from their concatenated bytes. Files before a failing one stay. Answered with
    /// [`Answer::Entries`], in this order.
    FillMany {
        /// Which files, at most [`limits::FILLED_MAX`], and the size of each.
        files: Vec<(GuestPath, u64)>,
        /// Extended attributes of each file.
        attributes: Option<Attributes>,
    },
}

/// The effect of a file operation on files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Reads,
    /// It can only make them fewer.
    Removes,
    /// It can make them more, or others.
    Writes,
}

impl FileOp {
    /// The feature that an agent needs for it, besides the version of the protocol.
    pub fn feature(&self) -> Option<Feature> {
        match self {
            Self::FillMany { .. } => Some(Feature::FillMany),
            Self::InDetail { op, .. } | Self::OnBehalf { op, .. } => op.feature(),
            _ => None,
        }
    }

    /// Its effect on files.
    pub fn effect(&self) -> Effect {
        match self {
            Self::Write { .. }
            | Self::MakeDirectory { .. }
            | Self::Move { .. }
            | Self::Unpack { .. }
            | Self::Edit { .. }
            | Self::Fill { .. }
            | Self::FillMany { .. }
            | Self::Relocate { .. }
            | Self::Join { .. }
            | Self::Adjust { .. } => Effect::Writes,
            Self::Remove { .. } => Effect::Removes,
            Self::InDetail { op, .. } | Self::OnBehalf { op, .. } => op.effect(),
            Self::Stat { .. }
            | Self::List { .. }
            | Self::Read { .. }
            | Self::Pack { .. }
            | Self::Watch { .. }
            | Self::Measure { .. }
            | Self::Lines { .. }
            | Self::Glob { .. }
            | Self::Grep { .. }
            | Self::Space { .. }
            | Self::Follow { .. }
            | Self::Reach { .. }
            | Self::Save => Effect::Reads,
        }
    }
}

/// What a write does with an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteHow {
    /// It is replaced when all bytes are there, and not before.
    Replace,
    /// It must not be there.
    Create,
    /// Bytes from this offset on are written in place, and what was behind them goes. The file must be at least that long.
    From(u64),
}

/// The first message of a file operation.
pub type Reply = Result<Answer, FileError>;

/// The result of a file operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Success without a value.
    Done,
    /// One thing.
    Entry(Entry),
    /// The entries of a directory, sorted by path.
    Entries {
        /// The things.
        entries: Vec<Entry>,
        /// Whether there are more.
        truncated: bool,
    },
    /// A finished unpacking.
    Unpacked {
        /// Files, links and directories.
        entries: u64,
        /// Bytes of files.
        bytes: u64,
    },
    /// The size of a tree.
    Size {
        /// Allocated bytes, hard links once.
        bytes: u64,
        /// Files, links and directories, hard links once.
        inodes: u64,
        /// Whether there was too much to look at all of it: the numbers are then too small.
        partial: bool,
    },
    /// Lines of text.
    Lines(Lines),
    /// How often a text was replaced.
    Edited {
        /// How often.
        replacements: u64,
    },
    /// Paths of files.
    Found {
        /// The paths.
        paths: Vec<String>,
        /// Whether there are more.
        truncated: bool,
    },
    /// Lines that match.
    Matched {
        /// The lines, sorted by path and number.
        matches: Vec<Match>,
        /// Whether there are more.
        truncated: bool,
        /// Files that could not be searched to their end.
        skipped: u64,
    },
    /// One thing, and more of it.
    Detail(Box<Detail>),
    /// The entries of a directory, sorted by path, with details.
    Details {
        /// The things.
        entries: Vec<Detail>,
        /// Whether there are more.
        truncated: bool,
    },
    /// The free space.
    Space {
        /// All of it.
        total_bytes: u64,
        /// The space that the workload can still use.
        free_bytes: u64,
    },
}

/// A file, directory, link or something else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its path in the box. Invalid UTF-8 is replaced by U+FFFD.
    pub path: String,
    /// Its type.
    pub kind: EntryKind,
    /// Bytes of a file.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner inside the box.
    pub uid: u32,
    /// Group inside the box.
    pub gid: u32,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// The target of a link.
    pub target: Option<String>,
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A socket, a pipe or a device, or a kind that only newer agents know.
    #[serde(other)]
    Other,
}

/// Lines of a text file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    /// The lines, with their line ends. Invalid UTF-8 is replaced by U+FFFD.
    pub text: String,
    /// Number of the first of them.
    pub first: u64,
    /// How many there are here.
    pub count: u64,
    /// How many the file has; nothing when it was not read to its end.
    pub total: Option<u64>,
    /// Why there are fewer than asked for.
    pub cut: Option<Cut>,
}

/// Why an answer holds fewer lines than the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cut {
    /// The limit of lines was reached.
    Lines,
    /// The limit of text was reached.
    Bytes,
}

/// One line that matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Match {
    /// Which file.
    pub path: String,
    /// Which line, from 1.
    pub line: u64,
    /// Its text, without its line end; cut after [`limits::MATCH_CHARS_MAX`] characters.
    pub text: String,
}

/// Something that changed in a watched tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The kind of change.
    pub what: ChangeKind,
    /// To what.
    pub path: String,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A change of a watched entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// Its bytes are others.
    Written,
    /// It has another name: this is the old one, or the new one.
    Renamed,
    /// Its permission bits, owner or times are others.
    Attributes,
    /// It is gone.
    Removed,
    /// It was renamed: this is the old name. Only sent to [`FileOp::Follow`].
    Left,
    /// It was renamed: this is the new name. Only sent to [`FileOp::Follow`].
    Arrived,
    /// Some changes could not be reported. Changes that only newer agents know are read as this one: look again.
    #[serde(other)]
    Missed,
}

/// Why a file operation could not be done. Nothing of it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    /// The kind of error.
    pub code: FileErrorCode,
    /// The reason, for a reader, with the path.
    pub message: String,
}

/// The kinds of trouble that a caller can act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileErrorCode {
    /// There is nothing of that name.
    NotFound,
    /// The path leads out of the tree that may be touched.
    PathEscapes,
    /// The path cannot be one.
    InvalidPath,
    /// A link stands where none may.
    SymlinkRefused,
    /// It is a directory.
    IsDirectory,
    /// It is not a directory.
    NotDirectory,
    /// It is neither a file nor a directory.
    NotRegular,
    /// Something of that name exists.
    Exists,
    /// The directory has something in it.
    NotEmpty,
    /// The workload may not do that.
    Denied,
    /// It lies on something read-only.
    ReadOnly,
    /// The disk or quota is full.
    NoSpace,
    /// It is larger than may be.
    TooLarge,
    /// It is not text.
    Binary,
    /// The text to replace is not there.
    NoMatch,
    /// The text to replace is there more than once.
    Ambiguous,
    /// The pattern is wrong.
    InvalidPattern,
    /// The pattern would take too much memory or time.
    PatternTooComplex,
    /// The archive is not one, or holds something that may not be.
    BadArchive,
    /// It took too long.
    Timeout,
    /// The file system cannot do that.
    Unsupported,
    /// Something else failed. Codes of newer agents are read as this one; the message says more.
    #[serde(other)]
    Failed,
}

impl FileErrorCode {
    /// A stable word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::PathEscapes => "path_escapes",
            Self::InvalidPath => "invalid_path",
            Self::SymlinkRefused => "symlink_refused",
            Self::IsDirectory => "is_directory",
            Self::NotDirectory => "not_directory",
            Self::NotRegular => "not_regular",
            Self::Exists => "exists",
            Self::NotEmpty => "not_empty",
            Self::Denied => "denied",
            Self::ReadOnly => "read_only",
            Self::NoSpace => "no_space",
            Self::TooLarge => "too_large",
            Self::Binary => "binary",
            Self::NoMatch => "no_match",
            Self::Ambiguous => "ambiguous",
            Self::InvalidPattern => "invalid_pattern",
            Self::PatternTooComplex => "pattern_too_complex",
            Self::BadArchive => "bad_archive",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
            Self::Unsupported => "unsupported",
        }
    }
}

impl FileError {
    /// FileError of a kind.
    pub fn new(code: FileErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The path that a caller means by a text: absolute, or below `root`. Refuses a text that leads out of `root`; where
/// links lead is decided in the box.
pub fn path_below(root: &GuestPath, text: &str) -> Result<GuestPath, FileError> {
    let invalid = |error: Invalid| FileError::new(FileErrorCode::InvalidPath, error.to_string());
    if text.is_empty() {
        return Err(invalid(Invalid::new("path", text, format!("a path such as {root}/file"))));
    }
    let escapes = || {
        let message = format!("the path {:?} leads out of {root}; only what is below it can be used", shortened(text));
        FileError::new(FileErrorCode::PathEscapes, message)
    };
    let absolute = if text.starts_with('/') { text.to_owned() } else { format!("{root}/{text}") };
    let mut parts = Vec::new();
    for part in absolute.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err(escapes()),
            part => parts.push(part),
        }
    }
    let path = GuestPath::parse("path", &format!("/{}", parts.join("/"))).map_err(invalid)?;
    if path.is_within(root) { Ok(path) } else { Err(escapes()) }
}

fn shortened(text: &str) -> String {
    text.chars().take(limits::QUOTED_VALUE_CHARS_MAX).collect()
}

/// Bytes before each message: its length.
pub const PREFIX_BYTES: usize = 4;

/// A message with its length before it.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, BadMessage> {
    let mut bytes = codec::append(message, vec![0; PREFIX_BYTES]).map_err(BadMessage)?;
    let length = u32::try_from(bytes.len() - PREFIX_BYTES).map_err(|error| BadMessage(error.to_string()))?;
    bytes[..PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Decodes a message without its length.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    codec::read(bytes).map_err(BadMessage)
}

/// Why a message cannot be encoded or decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadMessage(String);

#[cfg(test)]
mod tests;
