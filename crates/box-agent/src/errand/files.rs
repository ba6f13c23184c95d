//! Single files and directories.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;

use box_wire::errand::{Entry, EntryKind};
use box_wire::{Answer, GuestPath, Trouble, TroubleCode};
use rustix::fs::{FileType, OFlags, Stat};

use super::place::Place;
use super::{Output, Told, trouble};

/// How much is moved at once.
const CHUNK_BYTES: usize = 128 << 10;

pub(super) fn stat(place: &Place, path: &GuestPath) -> Result<Entry, Trouble> {
    entry(&place.find_itself(path)?, path.as_str())
}

pub(super) fn read(
    place: &Place,
    path: &GuestPath,
    offset: u64,
    bytes_max: Option<u64>,
    output: &mut Output,
) -> Result<Told, Trouble> {
    let mut file = place.open(path, OFlags::RDONLY)?;
    let entry = entry(&file, path.as_str())?;
    check_regular(&entry)?;
    let sent = || -> io::Result<()> {
        output.reply(&Ok(Answer::Entry(entry)))?;
        file.seek(SeekFrom::Start(offset))?;
        let mut rest = file.take(bytes_max.unwrap_or(u64::MAX));
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match rest.read(&mut chunk)? {
                0 => return Ok(()),
                count => output.write_all(&chunk[..count])?,
            }
        }
    };
    Ok(Told::Before(sent()))
}

/// Refuses everything but regular files.
pub(super) fn check_regular(entry: &Entry) -> Result<(), Trouble> {
    let (code, what) = match entry.kind {
        EntryKind::File => return Ok(()),
        EntryKind::Directory => (TroubleCode::IsDirectory, "a directory"),
        EntryKind::Symlink | EntryKind::Other => (TroubleCode::NotRegular, "not a regular file"),
    };
    Err(Trouble::new(code, format!("{} is {what}", entry.path)))
}

/// What there is to tell of an opened thing.
pub(super) fn entry(thing: &impl AsFd, path: &str) -> Result<Entry, Trouble> {
    let failed = |error: rustix::io::Errno| trouble(path, error);
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

/// What there is to tell of something by its numbers.
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

fn kind(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    }
}
