//! Where a log ended, so that it can go on from there.

use std::fs::File;
use std::io;
use std::path::Path;

use super::files::{self, Tail};
use super::line::{self, Chain, LINE_BYTES_MAX, Place};
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
}

/// Finds the end of the log in a directory, and cuts off a line that was never finished.
pub(super) fn resume(dir: &Path) -> Result<End> {
    let failed = |error: io::Error| Error::io(format!("reading the audit log in {}", dir.display()), error);
    let mut numbers = files::list(dir).map_err(failed)?;
    let Some(number) = numbers.pop() else {
        let file = files::create(dir, 1).map_err(failed)?;
        return Ok(End { file, number: 1, bytes: 0, fresh: true, chain: Chain::start(), repair: None });
    };
    let file = files::open_to_append(dir, number).map_err(failed)?;
    let tail = files::tail(&file).map_err(failed)?;
    let (fresh, chain) = match last_place(&tail, dir, number)? {
        Some(place) => (place.anchor.is_some(), place.into_chain()),
        // A crash came between making the file and writing its anchor. The file before is still there then.
        None => (true, end_of_earlier(dir, &numbers)?),
    };
    let repair = cut_fragment(&file, &tail).map_err(failed)?;
    Ok(End { file, number, bytes: tail.whole_bytes, fresh, chain, repair })
}

fn end_of_earlier(dir: &Path, numbers: &[u64]) -> Result<Chain> {
    let failed = |error: io::Error| Error::io(format!("reading the audit log in {}", dir.display()), error);
    let Some(&number) = numbers.last() else { return Ok(Chain::start()) };
    let tail = files::open_to_read(dir, number).and_then(|file| files::tail(&file)).map_err(failed)?;
    let place = last_place(&tail, dir, number)?;
    place.map(Place::into_chain).ok_or_else(|| not_ours(dir, number, "it has no line, but a file follows it"))
}

/// The place of the last whole line of a file, if it has one.
fn last_place(tail: &Tail, dir: &Path, number: u64) -> Result<Option<Place>> {
    if tail.fragment.len() > LINE_BYTES_MAX {
        return Err(not_ours(dir, number, "it ends with more than a line can be"));
    }
    let read =
        |line: &Vec<u8>| line::read(line).map_err(|what| not_ours(dir, number, &format!("its last line: {what}")));
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
fn not_ours(dir: &Path, number: u64, reason: &str) -> Error {
    Error::Unavailable {
        what: format!("the audit log {}", dir.join(files::name(number)).display()),
        reason: reason.to_owned(),
        fix: "find out who changed it, then move all files of the log away to begin a new one".to_owned(),
    }
}
