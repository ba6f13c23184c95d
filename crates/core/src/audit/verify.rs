//! Whether a log is as it was written.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Serialize;

use super::files;
use super::key::Key;
use super::line::{self, Chain, LINE_BYTES_MAX, LinePosition};
use crate::{Error, Result};

/// What was found out about a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Entries that were read and found good.
    pub entries: u64,
    /// Files that were looked at.
    pub files: usize,
    /// Number of the first entry. More than 1 when older files were removed.
    pub first_seq: Option<u64>,
    /// Number of the last good entry.
    pub last_seq: Option<u64>,
    /// Number of the first entry that is sealed with the key. Nothing in a log from before there were keys.
    pub sealed_from: Option<u64>,
    /// Seal or hash of the last good line. A copy of it elsewhere shows later whether the log was rewritten.
    pub last_hash: Option<String>,
    /// The first thing that is wrong. Nothing behind it was looked at.
    pub problem: Option<Problem>,
}

/// A place where a log is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Name of the file.
    pub file: String,
    /// Number of the line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub what: String,
}

/// Reads a whole log, line by line, and stops at the first that was changed, removed, added or moved.
///
/// Where there is a key, the log must end with lines that are sealed with it. Without one, only a log from before there were
/// keys can be good.
pub fn verify(dir: &Path, key_file: &Path) -> Result<Verdict> {
    let failed = |error: io::Error| Error::io(format!("reading the audit log in {}", dir.display()), error);
    let numbers = files::list(dir).map_err(failed)?;
    let mut walk = Walk { key: Key::read(key_file)?, ..Walk::default() };
    for (index, &number) in numbers.iter().enumerate() {
        let name = files::name(number);
        let checked = match files::open_to_read(dir, number) {
            // The writer may have removed the oldest since they were listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && walk.chain.is_none() => continue,
            Err(error) => return Err(failed(error)),
            Ok(file) => {
                let is_newest = index + 1 == numbers.len();
                walk.begin(number).and_then(|()| walk.file(file, &name, || is_newest && files::is_being_written(dir)))
            }
        };
        let is_last = index + 1 == numbers.len();
        match checked.and_then(|()| if is_last { walk.end() } else { Ok(()) }) {
            Ok(()) => {}
            Err(WalkError::Io(error)) => return Err(failed(error)),
            Err(WalkError::Wrong(line, what)) => {
                walk.verdict.problem = Some(Problem { file: name, line, what });
                break;
            }
        }
    }
    Ok(walk.verdict)
}

/// Why a walk ends early.
enum WalkError {
    Io(io::Error),
    /// A line by its number, and what is wrong with it.
    Wrong(u64, String),
}

impl From<io::Error> for WalkError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How far the log was read.
#[derive(Default)]
struct Walk {
    verdict: Verdict,
    /// Number of the file that is being read.
    number: u64,
    /// What the next line must continue. Nothing before the oldest file: its anchor is taken on trust.
    chain: Option<Chain>,
    /// Lines of the file that were read.
    lines: u64,
    key: Option<Key>,
    /// Whether the last line was sealed. Nothing before the first line.
    is_sealed: Option<bool>,
}

impl Walk {
    /// Goes on to the next file.
    fn begin(&mut self, number: u64) -> Result<(), WalkError> {
        self.verdict.files += 1;
        if number == 1 {
            // No file was ever before this one.
            self.chain = Some(Chain::start());
        } else if self.number > 0 && self.number != number - 1 {
            let what = format!("{}, which comes before it, is missing", files::name(number - 1));
            return Err(WalkError::Wrong(1, what));
        }
        (self.number, self.lines) = (number, 0);
        Ok(())
    }

    /// Looks at what the log ends with.
    fn end(&self) -> Result<(), WalkError> {
        if self.key.is_some() && self.is_sealed == Some(false) {
            let what = "nothing up to the end is sealed, but there is a key: the log was cut off or replaced";
            return Err(WalkError::Wrong(self.lines, what.to_owned()));
        }
        Ok(())
    }

    /// Reads one file. `may_be_unfinished` is asked when its last line has no end.
    fn file(&mut self, file: File, name: &str, may_be_unfinished: impl Fn() -> bool) -> Result<(), WalkError> {
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            // Somebody may have put a line without an end there: no more is read than a line can have.
            (&mut reader).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
            match line.pop() {
                None => break,
                Some(b'\n') => self.line(&line, name, number).map_err(|what| WalkError::Wrong(number, what))?,
                Some(_) if line.len() >= LINE_BYTES_MAX => {
                    return Err(WalkError::Wrong(number, format!("it is longer than {LINE_BYTES_MAX} bytes")));
                }
                Some(_) if may_be_unfinished() => break,
                Some(_) => {
                    let what = "it was never finished: whoever wrote it was killed; the next start cuts it off";
                    return Err(WalkError::Wrong(number, what.to_owned()));
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], name: &str, number: u64) -> Result<(), String> {
        let place = line::read(line, self.key.as_ref())?;
        if self.is_sealed == Some(true) && !place.is_sealed {
            return Err("it is not sealed, but lines before it are: it was put there without the key".to_owned());
        }
        check_anchor(&place, name, number)?;
        if let Some(chain) = &self.chain {
            check_continues(&place, chain)?;
        }
        if place.anchor.is_none() {
            self.verdict.entries += 1;
            self.verdict.first_seq.get_or_insert(place.seq);
            self.verdict.last_seq = Some(place.seq);
            if place.is_sealed {
                self.verdict.sealed_from.get_or_insert(place.seq);
            }
        }
        (self.is_sealed, self.lines) = (Some(place.is_sealed), number);
        self.verdict.last_hash = Some(place.hash.clone());
        self.chain = Some(place.into_chain());
        Ok(())
    }
}

/// A file starts with its own anchor, so that it can neither lose its start nor take the place of another.
fn check_anchor(place: &LinePosition, name: &str, number: u64) -> Result<(), String> {
    match (number, &place.anchor) {
        (1, Some(anchor)) if anchor == name => Ok(()),
        (1, Some(anchor)) => Err(format!("it begins {anchor}: the file was renamed")),
        (1, None) => Err("the file does not start with its anchor: lines before this one were removed".to_owned()),
        (_, None) => Ok(()),
        (_, Some(anchor)) => Err(format!("it begins {anchor}, but stands in the middle of a file")),
    }
}

fn check_continues(place: &LinePosition, chain: &Chain) -> Result<(), String> {
    let expected = if place.anchor.is_some() { chain.seq } else { chain.next_seq() };
    if place.seq != expected {
        let what = "lines were removed, added or moved before it";
        return Err(format!("its number is {}, but {expected} comes next: {what}", place.seq));
    }
    if place.prev != chain.hash {
        return Err("it does not continue the line before it: one of them was replaced".to_owned());
    }
    Ok(())
}
