//! Where a log ended, so that it can go on from there.

use std::fs::File;
use std::io;
use std::path::Path;

use super::files::{self, Tail};
use super::key::KeyFile;
use super::line::{self, Chain, LINE_BYTES_MAX, LinePosition};
use crate::hexadecimal::sha256;
use crate::{Error, Result};

/// The end of a log.
#[derive(Debug)]
pub(super) struct End {
    /// The newest file.
    pub(super) file: File,
    /// Its number.
    pub(super) number: u64,
    /// Its size.
    pub(super) bytes: u64,
    /// Whether it holds no entry.
    pub(super) fresh: bool,
    /// What the next line continues.
    pub(super) chain: Chain,
    /// What was cut off, for the log itself.
    pub(super) repair: Option<String>,
    /// Whether its last line is sealed with the key. Nothing where it has no line.
    pub(super) is_sealed: Option<bool>,
}

/// Finds the end of the log in a directory, and cuts off a line that was never finished.
pub(super) fn resume(dir: &Path, key: &KeyFile) -> Result<End> {
    let failed = |error: io::Error| Error::io(format!("reading the audit log in {}", dir.display()), error);
    let mut numbers = files::list(dir).map_err(failed)?;
    let Some(number) = numbers.pop() else {
        let file = files::create(dir, 1).map_err(failed)?;
        return Ok(End {
            file,
            number: 1,
            bytes: 0,
            fresh: true,
            chain: Chain::start(),
            repair: None,
            is_sealed: None,
        });
    };
    let file = files::open_to_append(dir, number).map_err(failed)?;
    let tail = files::tail(&file).map_err(failed)?;
    let last = last_place(&tail, dir, number, key)?;
    let fresh = last.as_ref().is_none_or(|place| place.anchor.is_some());
    let last = match last {
        Some(place) => Some(place),
        // A crash came between making the file and writing its anchor. The file before is still there then.
        None => end_of_earlier(dir, &numbers, key)?,
    };
    let is_sealed = last.as_ref().map(|place| place.is_sealed);
    if is_sealed == Some(false) && !key.is_new() {
        let reason = "its last line is not sealed, but there is a key: the log was cut off or replaced";
        return Err(not_ours(dir, number, reason, key));
    }
    let chain = last.map_or_else(Chain::start, LinePosition::into_chain);
    let repair = cut_fragment(&file, &tail).map_err(failed)?;
    Ok(End { file, number, bytes: tail.whole_bytes, fresh, chain, repair, is_sealed })
}

fn end_of_earlier(dir: &Path, numbers: &[u64], key: &KeyFile) -> Result<Option<LinePosition>> {
    let failed = |error: io::Error| Error::io(format!("reading the audit log in {}", dir.display()), error);
    let Some(&number) = numbers.last() else { return Ok(None) };
    let tail = files::open_to_read(dir, number).and_then(|file| files::tail(&file)).map_err(failed)?;
    let place = last_place(&tail, dir, number, key)?;
    place.map(Some).ok_or_else(|| not_ours(dir, number, "it has no line, but a file follows it", key))
}

/// The place of the last whole line of a file, if it has one.
fn last_place(tail: &Tail, dir: &Path, number: u64, key: &KeyFile) -> Result<Option<LinePosition>> {
    if tail.fragment.len() > LINE_BYTES_MAX {
        return Err(not_ours(dir, number, "it ends with more than a line can be", key));
    }
    // A key that was just made sealed nothing: what is sealed was sealed with one that is gone.
    let known = (!key.is_new()).then_some(&key.key);
    let read = |line: &Vec<u8>| match (line::read(line, Some(&key.key)), known) {
        (Err(_), None) => line::read(line, None),
        (read, _) => read,
    };
    let read = |line| read(line).map_err(|what| not_ours(dir, number, &format!("its last line: {what}"), key));
    tail.last_line.as_ref().map(read).transpose()
}

fn cut_fragment(file: &File, tail: &Tail) -> io::Result<Option<String>> {
    if tail.fragment.is_empty() {
        return Ok(None);
    }
    file.set_len(tail.whole_bytes)?;
    let (length, hash) = (tail.fragment.len(), sha256(&tail.fragment));
    Ok(Some(format!("{length} bytes of a line that was never finished were cut off (sha256:{hash})")))
}

/// Going on behind a line that is not ours would make it look as if it were.
fn not_ours(dir: &Path, number: u64, reason: &str, key: &KeyFile) -> Error {
    let key = key.path().display();
    Error::Unavailable {
        what: format!("the audit log {}", dir.join(files::name(number)).display()),
        reason: reason.to_owned(),
        fix: format!(
            "restore the key file {key} if it is not the one that the log was written with; else find out who changed the \
             log, then move all files of it away to begin a new one"
        ),
    }
}
