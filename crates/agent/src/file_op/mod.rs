//! File operations: listings, reading, writing and searches, in a child that is confined like every command.
//!
//! The child works with its three standard streams and nothing else. It may block, grow and die like any command; the agent
//! above only moves its bytes. Nothing here trusts what lies in the box, but nothing here guards the box either: that was done
//! before, by its mounts and by the loss of all rights.

mod adjust;
mod archive;
mod attributes;
mod detail;
mod draft;
mod edit;
mod files;
mod fill_many;
mod join;
mod list;
mod measure;
mod place;
mod reach;
mod remove;
pub(crate) mod save;
mod search;
mod space;
mod text;
mod tree;
mod unpack;
mod watch;
mod write;

use std::io::{self, Read, Write};

use box_wire::file_op::{Reply, WriteHow, encode};
use box_wire::limits::PATH_BYTES_MAX;
use box_wire::{Answer, FileError, FileErrorCode, FileOp, FileRequest, GuestPath};
use rustix::io::Errno;
use serde::Serialize;

use detail::Teller;
use place::FileTree;

use crate::snapshot::Storage;

/// Does the work; the result is the exit code of the child. Only who saves the box has its storage.
pub(crate) fn run(request: &FileRequest, storage: Option<&Storage>) -> i32 {
    let mut output = Output;
    let reply = match (&request.op, storage) {
        (FileOp::Save, Some(storage)) => save::save(storage, &mut output),
        (op, _) => FileTree::new(&request.root).and_then(|place| perform(&place, op, &mut output)),
    };
    match reply {
        Ok(AnswerTiming::Now(answer)) => i32::from(output.reply(&Ok(answer)).is_err()),
        Ok(AnswerTiming::Before(Ok(()))) => 0,
        Ok(AnswerTiming::Before(Err(error))) => {
            // A failure to write this message cannot be reported anywhere.
            let _ = rustix::io::write(rustix::stdio::stderr(), error.to_string().as_bytes());
            1
        }
        Err(error) => i32::from(output.reply(&Err(error)).is_err()),
    }
}

/// When the answer is sent.
enum AnswerTiming {
    /// It is this one, and all there is.
    Now(Answer),
    /// It was sent; then came bytes, and this is how that ended.
    Before(io::Result<()>),
}

fn perform(place: &FileTree, op: &FileOp, output: &mut Output) -> Result<AnswerTiming, FileError> {
    match op {
        FileOp::Stat { path } => files::stat(place, path).map(|entry| AnswerTiming::Now(Answer::Entry(entry))),
        FileOp::Read { path, offset, bytes_max } => files::read(place, path, *offset, *bytes_max, output),
        FileOp::Lines { path, first, lines_max, bytes_max } => text::lines(place, path, *first, *lines_max, *bytes_max)
            .map(|lines| AnswerTiming::Now(Answer::Lines(lines))),
        FileOp::Edit { path, old, new, all } => edit::edit(place, path, &edit::Change { old, new, all: *all })
            .map(|replacements| AnswerTiming::Now(Answer::Edited { replacements })),
        FileOp::Glob { path, pattern, matches_max } => {
            search::glob(place, path, pattern, *matches_max).map(AnswerTiming::Now)
        }
        FileOp::Grep { path, pattern, include, ignore_case, matches_max } => {
            let (include, matches_max) = (include.as_deref(), *matches_max);
            let question = search::Question { pattern, include, ignore_case: *ignore_case, matches_max };
            search::grep(place, path, &question).map(AnswerTiming::Now)
        }
        FileOp::List { path, depth, entries_max } => {
            list::list(place, path, *depth, *entries_max).map(AnswerTiming::Now)
        }
        FileOp::Write { path, how, mode, bytes_max } => {
            let writing = write::Writing { place, path, mode: *mode, bytes_max: *bytes_max, attributes: None };
            writing.run(*how, &mut Input).map(|entry| AnswerTiming::Now(Answer::Entry(entry)))
        }
        FileOp::Fill { path, bytes_max, attributes } => {
            let (attributes, bytes_max) = (attributes.as_ref(), *bytes_max);
            let writing = write::Writing { place, path, mode: None, bytes_max, attributes };
            writing.run(WriteHow::From(0), &mut Input).map(|entry| AnswerTiming::Now(Answer::Entry(entry)))
        }
        FileOp::FillMany { files, attributes } => {
            fill_many::fill_many(place, files, attributes.as_ref(), &mut Input).map(AnswerTiming::Now)
        }
        FileOp::MakeDirectory { path, exclusive } => {
            files::make_directory(place, path, *exclusive).map(|entry| AnswerTiming::Now(Answer::Entry(entry)))
        }
        FileOp::Move { from, to, replace } => {
            files::rename(place, from, to, *replace).map(|entry| AnswerTiming::Now(Answer::Entry(entry)))
        }
        FileOp::Remove { path, recursive } => {
            remove::remove(place, path, *recursive).map(|()| AnswerTiming::Now(Answer::Done))
        }
        FileOp::Pack { path } => archive::pack(place, path, output),
        FileOp::Unpack { path, bytes_max } => {
            unpack::unpack(place, path, *bytes_max, &mut Input).map(AnswerTiming::Now)
        }
        FileOp::Watch { path, recursive } => watch::watch(place, path, *recursive, output),
        FileOp::Follow { path, recursive, entries, attributes } => {
            let teller = entries.then(|| Teller::new(place, attributes.as_deref()));
            watch::follow(place, path, *recursive, teller.as_ref(), output)
        }
        FileOp::Measure { path } => measure::measure(place, path).map(AnswerTiming::Now),
        FileOp::Space { path } => space::space(place, path).map(AnswerTiming::Now),
        FileOp::Relocate { from, to } => {
            files::relocate(place, from, to).map(|entry| AnswerTiming::Now(Answer::Entry(entry)))
        }
        FileOp::Join { sources, path, bytes_max } => {
            join::join(place, sources, path, *bytes_max).map(|entry| AnswerTiming::Now(Answer::Entry(entry)))
        }
        FileOp::Reach { path } => reach::reach(place, path).map(|()| AnswerTiming::Now(Answer::Done)),
        FileOp::Adjust { path, mode, uid, gid } => {
            let adjusted = adjust::adjust(place, path, *mode, (*uid, *gid));
            adjusted.map(|entry| AnswerTiming::Now(Answer::Entry(entry)))
        }
        FileOp::Save => Err(FileError::new(FileErrorCode::Unsupported, "this backend cannot save a box")),
        FileOp::OnBehalf { op, owner } => perform(&place.on_behalf(*owner), op, output),
        FileOp::InDetail { op, attributes } => match perform(place, op, output)? {
            AnswerTiming::Now(answer) => {
                Ok(AnswerTiming::Now(Teller::new(place, attributes.as_deref()).answer(answer)))
            }
            told @ AnswerTiming::Before(_) => Ok(told),
        },
    }
}

/// The standard input of the child.
struct Input;

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(rustix::stdio::stdin(), bytes)?)
    }
}

/// The standard output of the child: the reply first, then bytes.
struct Output;

impl Output {
    fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        self.item(reply)
    }

    /// A message with its length before it.
    fn item(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.write_all(&encode(message).map_err(io::Error::other)?)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The name in an answer for something below a path.
fn told_path(path: &GuestPath, below: &[u8]) -> String {
    let below = String::from_utf8_lossy(below);
    match path.as_str() {
        path if below.is_empty() => path.to_owned(),
        "/" => format!("/{below}"),
        path => format!("{path}/{below}"),
    }
}

/// Why a file cannot be made or given away where the user has no id on the host.
const FOREIGN_USER: &str = "only the box's usual user can own files in a mounted directory";

/// The file error for an error of the system.
fn file_error(path: &str, error: impl Into<io::Error>) -> FileError {
    let error = error.into();
    let code = match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => FileErrorCode::NotFound,
        Some(Errno::NOTDIR) => FileErrorCode::NotDirectory,
        Some(Errno::ISDIR) => FileErrorCode::IsDirectory,
        Some(Errno::EXIST) => FileErrorCode::Exists,
        Some(Errno::NOTEMPTY) => FileErrorCode::NotEmpty,
        // Owner ids that are not mapped in the box are too large.
        Some(Errno::ACCESS | Errno::PERM | Errno::OVERFLOW) => FileErrorCode::Denied,
        Some(Errno::ROFS) => FileErrorCode::ReadOnly,
        Some(Errno::NOSPC | Errno::DQUOT) => FileErrorCode::NoSpace,
        Some(Errno::FBIG) => FileErrorCode::TooLarge,
        Some(Errno::LOOP) => FileErrorCode::SymlinkRefused,
        Some(Errno::NXIO) => FileErrorCode::NotRegular,
        Some(Errno::NAMETOOLONG | Errno::INVAL) => FileErrorCode::InvalidPath,
        Some(Errno::OPNOTSUPP) => FileErrorCode::Unsupported,
        _ => FileErrorCode::Failed,
    };
    let mut reason = match Errno::from_io_error(&error) {
        Some(Errno::OVERFLOW) => format!("Permission denied; {FOREIGN_USER}"),
        _ => error.to_string(),
    };
    if let Some(cut) = reason.find(" (os error") {
        reason.truncate(cut);
    }
    // A path of a tree can be too long to be read.
    let path: String = path.chars().take(PATH_BYTES_MAX).collect();
    FileError::new(code, format!("{path}: {reason}"))
}
