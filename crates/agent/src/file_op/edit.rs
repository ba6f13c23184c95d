//! Replaces a text in a file, exactly and once, or everywhere.
//!
//! The file is never half-written: the result is a new file that takes the old one's name. Edits of one file wait for each other
//! by a lock on it, and one that finds that the file became another while it worked starts again.

mod replace_file;
mod replaced;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use box_wire::limits::EDIT_FILE_BYTES_MAX;
use box_wire::{FileError, FileErrorCode, GuestPath};
use rustix::fs::{FlockOperation, OFlags, Stat};
use rustix::io::Errno;

use super::file_error;
use super::files::{check_regular, entry};
use super::place::FileTree;
use super::text::binary;
use replace_file::{Replaced, Target};
use replaced::{Mismatch, Near, replaced};

/// How often an edit starts again because the file became another one.
const TRIES_MAX: u32 = 200;

/// How often an edit tries to take a lock that another process holds, and how long it pauses in between: 10 seconds in
/// all.
const LOCK_TRIES_MAX: u32 = 2000;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Change<'a> {
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    pub(super) all: bool,
}

/// How often the text was replaced.
pub(super) fn edit(place: &FileTree, path: &GuestPath, change: &Change<'_>) -> Result<u64, FileError> {
    for _ in 0..TRIES_MAX {
        if let Some(count) = try_edit(place, path, change)? {
            return Ok(count);
        }
    }
    let message = format!("{path} was changed by others again and again while it was edited; read it and try again");
    Err(FileError::new(FileErrorCode::Failed, message))
}

/// Nothing when the file became another one in the meantime.
fn try_edit(place: &FileTree, path: &GuestPath, change: &Change<'_>) -> Result<Option<u64>, FileError> {
    let failed = |error: io::Error| file_error(path.as_str(), error);
    let mut file = place.open(path, OFlags::RDONLY)?;
    check_regular(&entry(&file, path.as_str())?)?;
    lock(&file, path)?;
    let before = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
    let bytes = read(&mut file, path)?;
    let (result, count) = match replaced(&bytes, change.old.as_bytes(), change.new.as_bytes(), change.all, size_max()) {
        Ok(done) => done,
        // What was read may be of a file that has lost its name while this one waited for the lock.
        Err(_) if !is_still(place, path, &before)? => return Ok(None),
        Err(mismatch) => return Err(refusal(path, mismatch)),
    };
    let target = Target::of(place, &file, path)?;
    match target.replace(&result, &before).map_err(failed)? {
        Replaced::Yes => Ok(Some(count as u64)),
        Replaced::Changed => Ok(None),
    }
}

/// Waits until no other edit holds the file. Closing the file releases the lock.
fn lock(file: &File, path: &GuestPath) -> Result<(), FileError> {
    for _ in 0..LOCK_TRIES_MAX {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            // On a file system without locks, the check for a replaced file protects the edit.
            Ok(()) | Err(_) => return Ok(()),
        }
    }
    let message = format!("{path} is locked by another program; try again when that is done");
    Err(FileError::new(FileErrorCode::Failed, message))
}

fn read(file: &mut File, path: &GuestPath) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    let read = file.take(EDIT_FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| file_error(path.as_str(), error))?;
    // First: a huge sparse file is not text, and saying that it is large would not help.
    if memchr::memchr(0, &bytes).is_some() {
        return Err(binary(path.as_str()));
    }
    if bytes.len() > size_max() {
        return Err(refusal(path, Mismatch::TooLarge(bytes.len())));
    }
    Ok(bytes)
}

fn size_max() -> usize {
    usize::try_from(EDIT_FILE_BYTES_MAX).unwrap_or(usize::MAX)
}

fn is_still(place: &FileTree, path: &GuestPath, before: &Stat) -> Result<bool, FileError> {
    let now = rustix::fs::fstat(place.find(path)?).map_err(|error| file_error(path.as_str(), error))?;
    Ok(is_same(before, &now))
}

/// Whether nothing was written to a file between two looks at it.
fn is_same(one: &Stat, other: &Stat) -> bool {
    let key = |stat: &Stat| {
        (
            stat.st_dev,
            stat.st_ino,
            stat.st_size,
            (stat.st_mtime, stat.st_mtime_nsec),
            (stat.st_ctime, stat.st_ctime_nsec),
        )
    };
    key(one) == key(other)
}

fn refusal(path: &GuestPath, mismatch: Mismatch) -> FileError {
    let (code, message) = match mismatch {
        Mismatch::Absent(near) => {
            let hint = match near {
                Near::LineEnds => {
                    "only its line ends differ: the file has \\r\\n where the text has \\n, or the reverse"
                }
                Near::WhiteSpace => {
                    "only its white space differs: take indentation and line ends exactly as in the file"
                }
                Near::Nothing => "read the file again, and give the text exactly as it is there",
            };
            (FileErrorCode::NoMatch, format!("the text to replace is not in {path}; {hint}"))
        }
        Mismatch::Ambiguous(count) => {
            let hint = "give more of the text around the one that is meant, or use replace_all for all of them";
            (FileErrorCode::Ambiguous, format!("the text to replace is {count} times in {path}; {hint}"))
        }
        Mismatch::TooLarge(_) => {
            let hint = "change it with a command, such as `sed`";
            (FileErrorCode::TooLarge, format!("{path} is or would be larger than {EDIT_FILE_BYTES_MAX} bytes; {hint}"))
        }
    };
    FileError::new(code, message)
}
