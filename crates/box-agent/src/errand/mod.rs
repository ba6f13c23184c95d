//! What the agent does itself, in a child that is confined like every command: files, listings, searches.
//!
//! The child works with its three standard streams and nothing else. It may block, grow and die like any command; the agent
//! above only moves its bytes. Nothing here trusts what lies in the box, but nothing here guards the box either: that was done
//! before, by its mounts and by the loss of all rights.

mod archive;
mod attributes;
mod detail;
mod draft;
mod edit;
mod files;
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

use box_wire::errand::{Reply, WriteHow, encode};
use box_wire::limits::PATH_BYTES_MAX;
use box_wire::{Answer, Errand, GuestPath, Trouble, TroubleCode, Work};
use rustix::io::Errno;
use serde::Serialize;

use detail::Teller;
use place::Place;

use crate::saved::Storage;

/// Does the work; the result is the exit code of the child. Only who saves the box has its storage.
pub(crate) fn run(errand: &Errand, storage: Option<&Storage>) -> i32 {
    let mut output = Output;
    let reply = match (&errand.work, storage) {
        (Work::Save, Some(storage)) => save::save(storage, &mut output),
        (work, _) => Place::new(&errand.root).and_then(|place| perform(&place, work, &mut output)),
    };
    match reply {
        Ok(Told::Now(answer)) => i32::from(output.reply(&Ok(answer)).is_err()),
        Ok(Told::Before(Ok(()))) => 0,
        Ok(Told::Before(Err(error))) => {
            // Nobody can be told when that fails.
            let _ = rustix::io::write(rustix::stdio::stderr(), error.to_string().as_bytes());
            1
        }
        Err(trouble) => i32::from(output.reply(&Err(trouble)).is_err()),
    }
}

/// When the answer is told.
enum Told {
    /// It is this one, and all there is.
    Now(Answer),
    /// It was told; then came bytes, and this is how that ended.
    Before(io::Result<()>),
}

fn perform(place: &Place, work: &Work, output: &mut Output) -> Result<Told, Trouble> {
    match work {
        Work::Stat { path } => files::stat(place, path).map(|entry| Told::Now(Answer::Entry(entry))),
        Work::Read { path, offset, bytes_max } => files::read(place, path, *offset, *bytes_max, output),
        Work::Lines { path, first, lines_max, bytes_max } => {
            text::lines(place, path, *first, *lines_max, *bytes_max).map(|lines| Told::Now(Answer::Lines(lines)))
        }
        Work::Edit { path, old, new, all } => edit::edit(place, path, &edit::Change { old, new, all: *all })
            .map(|replacements| Told::Now(Answer::Edited { replacements })),
        Work::Glob { path, pattern, matches_max } => search::glob(place, path, pattern, *matches_max).map(Told::Now),
        Work::Grep { path, pattern, include, ignore_case, matches_max } => {
            let (include, matches_max) = (include.as_deref(), *matches_max);
            let question = search::Question { pattern, include, ignore_case: *ignore_case, matches_max };
            search::grep(place, path, &question).map(Told::Now)
        }
        Work::List { path, depth, entries_max } => list::list(place, path, *depth, *entries_max).map(Told::Now),
        Work::Write { path, how, mode, bytes_max } => {
            let writing = write::Writing { place, path, mode: *mode, bytes_max: *bytes_max, attributes: None };
            writing.run(*how, &mut Input).map(|entry| Told::Now(Answer::Entry(entry)))
        }
        Work::Fill { path, bytes_max, attributes } => {
            let (attributes, bytes_max) = (attributes.as_ref(), *bytes_max);
            let writing = write::Writing { place, path, mode: None, bytes_max, attributes };
            writing.run(WriteHow::From(0), &mut Input).map(|entry| Told::Now(Answer::Entry(entry)))
        }
        Work::MakeDirectory { path, exclusive } => {
            files::make_directory(place, path, *exclusive).map(|entry| Told::Now(Answer::Entry(entry)))
        }
        Work::Move { from, to, replace } => {
            files::rename(place, from, to, *replace).map(|entry| Told::Now(Answer::Entry(entry)))
        }
        Work::Remove { path, recursive } => remove::remove(place, path, *recursive).map(|()| Told::Now(Answer::Done)),
        Work::Pack { path } => archive::pack(place, path, output),
        Work::Unpack { path, bytes_max } => unpack::unpack(place, path, *bytes_max, &mut Input).map(Told::Now),
        Work::Watch { path, recursive } => watch::watch(place, path, *recursive, output),
        Work::Follow { path, recursive, entries, attributes } => {
            let teller = entries.then(|| Teller::new(place, attributes.as_deref()));
            watch::follow(place, path, *recursive, teller.as_ref(), output)
        }
        Work::Measure { path } => measure::measure(place, path).map(Told::Now),
        Work::Space { path } => space::space(place, path).map(Told::Now),
        Work::Relocate { from, to } => files::relocate(place, from, to).map(|entry| Told::Now(Answer::Entry(entry))),
        Work::Join { sources, path, bytes_max } => {
            join::join(place, sources, path, *bytes_max).map(|entry| Told::Now(Answer::Entry(entry)))
        }
        Work::Reach { path } => reach::reach(place, path).map(|()| Told::Now(Answer::Done)),
        Work::Save => Err(Trouble::new(TroubleCode::Unsupported, "this backend cannot save a box")),
        Work::OnBehalf { work, owner } => perform(&place.on_behalf(*owner), work, output),
        Work::InDetail { work, attributes } => match perform(place, work, output)? {
            Told::Now(answer) => Ok(Told::Now(Teller::new(place, attributes.as_deref()).answer(answer))),
            told @ Told::Before(_) => Ok(told),
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

/// How something is told that lies below a path.
fn told_path(path: &GuestPath, below: &[u8]) -> String {
    let below = String::from_utf8_lossy(below);
    match path.as_str() {
        path if below.is_empty() => path.to_owned(),
        "/" => format!("/{below}"),
        path => format!("{path}/{below}"),
    }
}

/// What the system's refusal means for a caller.
fn trouble(path: &str, error: impl Into<io::Error>) -> Trouble {
    let error = error.into();
    let code = match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => TroubleCode::NotFound,
        Some(Errno::NOTDIR) => TroubleCode::NotDirectory,
        Some(Errno::ISDIR) => TroubleCode::IsDirectory,
        Some(Errno::EXIST) => TroubleCode::Exists,
        Some(Errno::NOTEMPTY) => TroubleCode::NotEmpty,
        Some(Errno::ACCESS | Errno::PERM) => TroubleCode::Denied,
        Some(Errno::ROFS) => TroubleCode::ReadOnly,
        Some(Errno::NOSPC | Errno::DQUOT) => TroubleCode::NoSpace,
        Some(Errno::FBIG) => TroubleCode::TooLarge,
        Some(Errno::LOOP) => TroubleCode::SymlinkRefused,
        Some(Errno::NXIO) => TroubleCode::NotRegular,
        Some(Errno::NAMETOOLONG | Errno::INVAL) => TroubleCode::InvalidPath,
        Some(Errno::OPNOTSUPP) => TroubleCode::Unsupported,
        _ => TroubleCode::Failed,
    };
    let mut reason = error.to_string();
    if let Some(cut) = reason.find(" (os error") {
        reason.truncate(cut);
    }
    // A path of a tree can be longer than anybody wants to read.
    let path: String = path.chars().take(PATH_BYTES_MAX).collect();
    Trouble::new(code, format!("{path}: {reason}"))
}
