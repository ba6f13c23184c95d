//! The files of a log: names, who may touch them, and what they end with.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::line::LINE_BYTES_MAX;
use crate::{Error, Result};

/// The file whose lock says that somebody writes.
const LOCK: &str = "audit.lock";

/// The name of a file.
pub(super) fn name(number: u64) -> String {
    format!("audit-{number:06}.jsonl")
}

/// Numbers of all files, oldest first. Whatever else is in the directory is not ours.
pub(super) fn list(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for found in std::fs::read_dir(dir)? {
        numbers.extend(found?.file_name().to_str().and_then(number));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn number(file_name: &str) -> Option<u64> {
    let number = file_name.strip_prefix("audit-")?.strip_suffix(".jsonl")?.parse().ok()?;
    // One number, one spelling: otherwise two files could claim the same place. The first is 1.
    (number > 0 && name(number) == file_name).then_some(number)
}

/// Makes a new file that only its owner can read.
pub(super) fn create(dir: &Path, number: u64) -> io::Result<File> {
    options().append(true).create_new(true).mode(0o600).open(dir.join(name(number)))
}

/// Opens a file to go on with it.
pub(super) fn open_to_append(dir: &Path, number: u64) -> io::Result<File> {
    options().append(true).open(dir.join(name(number)))
}

/// Opens a file to look at it.
pub(super) fn open_to_read(dir: &Path, number: u64) -> io::Result<File> {
    options().open(dir.join(name(number)))
}

/// Removes a file.
pub(super) fn remove(dir: &Path, number: u64) -> io::Result<()> {
    std::fs::remove_file(dir.join(name(number)))
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed());
    options
}

/// Makes the directory if it is not there, and refuses one that others can write.
pub(super) fn prepare(dir: &Path) -> Result<()> {
    let failed = |error: io::Error| Error::io(format!("opening the audit log in {}", dir.display()), error);
    if !dir.exists() {
        DirBuilder::new().mode(0o700).create(dir).map_err(failed)?;
    }
    let metadata = dir.metadata().map_err(failed)?;
    if metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    let reason = "it must belong to the user that runs strongbox and be writable by nobody else";
    let fix = format!("chown it and chmod go-w {}", dir.display());
    Err(Error::Unavailable { what: dir.display().to_string(), reason: reason.to_owned(), fix })
}

/// A lock on the log.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Given back by name, not by closing: a child that is just being started may share the descriptor for a moment.
        drop(self.0.unlock());
    }
}

/// Takes the right to write, until what is returned is dropped: two chains in one file would be none.
pub(super) fn lock(dir: &Path) -> Result<Lock> {
    let failed = |error: io::Error| Error::io(format!("locking the audit log in {}", dir.display()), error);
    let file = options().write(true).create(true).truncate(false).mode(0o600).open(dir.join(LOCK)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::Error(error)) => Err(failed(error)),
        Err(TryLockError::WouldBlock) => Err(Error::Unavailable {
            what: format!("the audit log in {}", dir.display()),
            reason: "another process writes it".to_owned(),
            fix: "stop that process, or choose another directory".to_owned(),
        }),
    }
}

/// Whether somebody writes just now.
pub(super) fn is_being_written(dir: &Path) -> bool {
    let Ok(lock) = options().open(dir.join(LOCK)).map(Lock) else { return false };
    matches!(lock.0.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// What a file ends with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tail {
    /// The last line that has an end, without that end.
    pub(super) last_line: Option<Vec<u8>>,
    /// Bytes up to the end of that line.
    pub(super) whole_bytes: u64,
    /// What stands behind it: a line that was never finished.
    pub(super) fragment: Vec<u8>,
}

/// Looks at the end of a file, without reading all of it.
pub(super) fn tail(file: &File) -> io::Result<Tail> {
    let length = file.metadata()?.len();
    // Room for a whole line, its end, the end of the line before it, and a fragment that is almost a line.
    let window = length.min(2 * (LINE_BYTES_MAX as u64 + 1));
    let mut bytes = vec![0; usize::try_from(window).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, length - window)?;
    let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
        // No line at all. Whoever finds more than a fragment can be finds it too long to be ours.
        return Ok(Tail { fragment: bytes, whole_bytes: length - window, last_line: None });
    };
    let fragment = bytes.split_off(end + 1);
    bytes.pop();
    let start = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
    let whole_bytes = length - fragment.len() as u64;
    Ok(Tail { last_line: Some(bytes.split_off(start)), whole_bytes, fragment })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_name() {
        assert_eq!(name(7), "audit-000007.jsonl");
        assert_eq!(number("audit-1234567.jsonl"), Some(1_234_567));
        for other in [
            "audit-000000.jsonl",
            "audit-7.jsonl",
            "audit-0000007.jsonl",
            "audit-+00007.jsonl",
            "audit-.jsonl",
            "audit-000007.json",
        ] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    #[test]
    fn the_tail_of_a_file_is_its_last_whole_line_and_what_is_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let long = "x".repeat(LINE_BYTES_MAX);
        let table: [(&str, Option<&str>, &str); 7] = [
            ("", None, ""),
            ("half", None, "half"),
            ("one\n", Some("one"), ""),
            ("one\ntwo\n", Some("two"), ""),
            ("one\ntwo\nha", Some("two"), "ha"),
            (&format!("one\n{long}\n"), Some(&long), ""),
            (&format!("one\n{long}\n{long}"), Some(&long), &long),
        ];
        for (content, last_line, fragment) in table {
            std::fs::write(dir.path().join("file"), content).unwrap();
            let found = tail(&File::open(dir.path().join("file")).unwrap()).unwrap();
            assert_eq!(found.last_line.as_deref(), last_line.map(str::as_bytes));
            assert_eq!(found.fragment, fragment.as_bytes());
            assert_eq!(found.whole_bytes, (content.len() - fragment.len()) as u64);
        }
    }
}
