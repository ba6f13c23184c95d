//! Single files and directories: what they are, what is in them, and what they are called.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};

use box_wire::file_op::{Entry, EntryKind};
use box_wire::{Answer, FileError, FileErrorCode, GuestPath};
use rustix::fs::{AtFlags, FileType, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::draft::Draft;
use super::place::{DIRECTORY_MODE, FileTree, Spot};
use super::tree::{Mounts, open_below};
use super::{AnswerTiming, Output, file_error};

/// How much is moved at once.
pub(super) const CHUNK_BYTES: usize = 128 << 10;

pub(super) fn stat(place: &FileTree, path: &GuestPath) -> Result<Entry, FileError> {
    entry(&place.find_itself(path)?, path.as_str())
}

pub(super) fn read(
    place: &FileTree,
    path: &GuestPath,
    offset: u64,
    bytes_max: Option<u64>,
    output: &mut Output,
) -> Result<AnswerTiming, FileError> {
    let mut file = place.open(path, OFlags::RDONLY)?;
    let entry = entry(&file, path.as_str())?;
    check_regular(&entry)?;
    let sent = || -> io::Result<()> {
        output.reply(&Ok(Answer::Entry(entry)))?;
        file.seek(SeekFrom::Start(offset))?;
        // Between two files the kernel copies the data, without a buffer in this process.
        let mut pipe = File::from(rustix::stdio::stdout().try_clone_to_owned()?);
        io::copy(&mut file.take(bytes_max.unwrap_or(u64::MAX)), &mut pipe).map(drop)
    };
    Ok(AnswerTiming::Before(sent()))
}

pub(super) fn make_directory(place: &FileTree, path: &GuestPath, exclusive: bool) -> Result<Entry, FileError> {
    let made = match place.find_itself(path) {
        Ok(_) if exclusive => return Err(file_error(path.as_str(), Errno::EXIST)),
        Ok(_) => place.directory_made(path)?,
        Err(error) if error.code == FileErrorCode::NotFound && exclusive => make_new(place, path)?,
        Err(error) if error.code == FileErrorCode::NotFound => place.directory_made(path)?,
        Err(error) => return Err(error),
    };
    entry(&made, path.as_str())
}

/// Makes a directory that must not be there.
fn make_new(place: &FileTree, path: &GuestPath) -> Result<OwnedFd, FileError> {
    let spot = place.parent_made(path)?;
    let made = rustix::fs::mkdirat(&spot.directory, &spot.name, DIRECTORY_MODE);
    made.map_err(|error| file_error(path.as_str(), error))?;
    let made = place.find_itself(path)?;
    place.give(&made).map_err(|error| file_error(path.as_str(), error))?;
    Ok(made)
}

/// Gives something another name. Links are moved, not what they point to.
pub(super) fn rename(place: &FileTree, from: &GuestPath, to: &GuestPath, replace: bool) -> Result<Entry, FileError> {
    put(place, from, &place.parent(from)?, to, &place.parent(to)?, replace)
}

/// Renames a file or directory and replaces what has the new name. Missing parents are created, but only if `from`
/// exists.
pub(super) fn relocate(place: &FileTree, from: &GuestPath, to: &GuestPath) -> Result<Entry, FileError> {
    place.find_itself(from)?;
    put(place, from, &place.parent(from)?, to, &place.parent_made(to)?, true)
}

fn put(
    place: &FileTree,
    from: &GuestPath,
    source: &Spot,
    to: &GuestPath,
    target: &Spot,
    replace: bool,
) -> Result<Entry, FileError> {
    match rename_spot(source, target, replace) {
        Err(Errno::XDEV) => carry_over(source, target, from, to, replace)?,
        Err(Errno::INVAL) if to.is_within(from) => {
            let message = format!("{from} cannot be moved into itself, to {to}");
            return Err(FileError::new(FileErrorCode::InvalidPath, message));
        }
        Err(error @ (Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR | Errno::NOTDIR)) => {
            return Err(file_error(to.as_str(), error));
        }
        renamed => renamed.map_err(|error| file_error(from.as_str(), error))?,
    }
    entry(&place.find_itself(to)?, to.as_str())
}

fn rename_spot(source: &Spot, target: &Spot, replace: bool) -> rustix::io::Result<()> {
    let rename =
        |flags| rustix::fs::renameat_with(&source.directory, &source.name, &target.directory, &target.name, flags);
    if replace {
        return rename(RenameFlags::empty());
    }
    match rename(RenameFlags::NOREPLACE) {
        // The file system cannot do that in one step.
        Err(Errno::INVAL) => match rustix::fs::statat(&target.directory, &target.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(_) => rename(RenameFlags::empty()),
        },
        renamed => renamed,
    }
}

/// Moves a file to another file system: the new one is whole before the old one goes.
fn carry_over(source: &Spot, target: &Spot, from: &GuestPath, to: &GuestPath, replace: bool) -> Result<(), FileError> {
    let (failed, refused) = (|error| file_error(from.as_str(), error), |error| file_error(to.as_str(), error));
    let stat = rustix::fs::statat(&source.directory, &source.name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    if kind(&stat) != EntryKind::File {
        let message = format!("{from} and {to} are on different file systems, between which only files can be moved");
        return Err(FileError::new(FileErrorCode::NotRegular, message));
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = open_below(&source.directory, &source.name, flags, Mounts::Enter).map_err(failed)?;
    let mut draft = Draft::new(&target.directory).map_err(refused)?;
    io::copy(&mut File::from(opened), &mut draft.file).map_err(|error| file_error(to.as_str(), error))?;
    draft.set_mode(stat.st_mode).map_err(refused)?;
    let placed = if replace { draft.replace(&target.name) } else { draft.create(&target.name) };
    placed.map_err(|(error, _)| refused(error))?;
    rustix::fs::unlinkat(&source.directory, &source.name, AtFlags::empty()).map_err(failed)
}

/// Refuses everything but regular files.
pub(super) fn check_regular(entry: &Entry) -> Result<(), FileError> {
    let (code, what) = match entry.kind {
        EntryKind::File => return Ok(()),
        EntryKind::Directory => (FileErrorCode::IsDirectory, "a directory"),
        EntryKind::Symlink | EntryKind::Other => (FileErrorCode::NotRegular, "not a regular file"),
    };
    Err(FileError::new(code, format!("{} is {what}", entry.path)))
}

/// The entry of an opened file.
pub(super) fn entry(thing: &impl AsFd, path: &str) -> Result<Entry, FileError> {
    let failed = |error: rustix::io::Errno| file_error(path, error);
    let stat = rustix::fs::fstat(thing).map_err(failed)?;
    let kind = kind(&stat);
    let target = match kind {
        EntryKind::Symlink => {
            let target = rustix::fs::readlinkat(thing, "", Vec::new()).map_err(failed)?;
            Some(target.to_string_lossy().into_owned())
        }
        _ => None,
    };
    Ok(describe(&stat, path.to_owned(), target))
}

/// The entry of a file by its `stat`.
pub(super) fn describe(stat: &Stat, path: String, target: Option<String>) -> Entry {
    let modified = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
    Entry {
        path,
        kind: kind(stat),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_ns: i64::try_from(modified).unwrap_or(i64::MAX),
        target,
    }
}

pub(super) fn kind(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    }
}
