//! Lists a directory.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use box_wire::file_op::{Entry, EntryKind};
use box_wire::{Answer, FileError, GuestPath, limits};
use rustix::fs::{AtFlags, OFlags};

use super::files::{describe, kind};
use super::place::FileTree;
use super::tree::{Mounts, Resume, Step, Walk};
use super::{file_error, told_path};

/// Entries that are looked at, at most. Behind that it is not known any more which come first.
const LOOKS_MAX: u64 = 1_000_000;

/// Room in a reply for all that is not paths.
const ENTRY_BYTES: usize = 64;

pub(super) fn list(place: &FileTree, path: &GuestPath, depth: u32, entries_max: u32) -> Result<Answer, FileError> {
    let failed = |error: std::io::Error| file_error(path.as_str(), error);
    let top = place.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut walk = Walk::new(top.into(), Mounts::Enter, Resume::There).map_err(failed)?;
    let mut listing = Listing::new(entries_max);
    let mut looks = 0;
    while let Some(step) = walk.next().map_err(failed)? {
        let Step::Item(item) = step else { continue };
        looks += 1;
        if looks > LOOKS_MAX {
            listing.truncated = true;
            break;
        }
        let told = told_path(path, &walk.path_to(&item.name));
        if !listing.wants(&told) {
            listing.truncated = true;
        } else if let Some(entry) = look(walk.directory(), &item.name, told) {
            listing.add(entry);
        }
        if item.may_be_directory() && walk.depth() < depth as usize {
            // A directory that cannot be read, or that is gone by now, is listed without content.
            let _ = walk.enter(&item.name);
        }
    }
    Ok(listing.finish())
}

/// The entry of a file in a directory; none if it is gone.
fn look(directory: BorrowedFd<'_>, name: &CStr, told: String) -> Option<Entry> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let target = match kind(&stat) {
        EntryKind::Symlink => {
            rustix::fs::readlinkat(directory, name, Vec::new()).ok().map(|target| target.to_string_lossy().into_owned())
        }
        _ => None,
    };
    Some(describe(&stat, told, target))
}

/// The first entries by path, as many as fit.
struct Listing {
    /// By path and sequence number: two paths can read alike after lossy conversion to UTF-8.
    entries: BTreeMap<(String, u64), Entry>,
    turn: u64,
    bytes: usize,
    entries_max: usize,
    truncated: bool,
}

impl Listing {
    fn new(entries_max: u32) -> Self {
        let entries_max = entries_max.min(limits::ENTRIES_MAX) as usize;
        Self { entries: BTreeMap::new(), turn: 0, bytes: 0, entries_max, truncated: false }
    }

    /// Whether an entry of that path belongs to the answer.
    fn wants(&self, path: &str) -> bool {
        let last = self.entries.last_key_value();
        self.entries.len() < self.entries_max || last.is_some_and(|((last, _), _)| path < last.as_str())
    }

    fn add(&mut self, mut entry: Entry) {
        self.turn += 1;
        let path = std::mem::take(&mut entry.path);
        self.bytes += bytes_of(&path, &entry);
        self.entries.insert((path, self.turn), entry);
        while self.entries.len() > self.entries_max || self.bytes > limits::REPLY_BYTES_MAX / 2 {
            let Some(((path, _), entry)) = self.entries.pop_last() else { return };
            self.bytes -= bytes_of(&path, &entry);
            self.truncated = true;
        }
    }

    fn finish(self) -> Answer {
        let entries = self.entries.into_iter().map(|((path, _), entry)| Entry { path, ..entry }).collect();
        Answer::Entries { entries, truncated: self.truncated }
    }
}

fn bytes_of(path: &str, entry: &Entry) -> usize {
    ENTRY_BYTES + path.len() + entry.target.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::place::ground::Ground;
    use super::*;

    fn paths(ground: &Ground, depth: u32, entries_max: u32) -> (Vec<String>, bool) {
        match list(&ground.place, &ground.path(""), depth, entries_max).unwrap() {
            Answer::Entries { entries, truncated } => {
                let top = ground.path("").to_string();
                let name = |entry: Entry| entry.path.strip_prefix(&top).unwrap().to_owned();
                (entries.into_iter().map(name).collect(), truncated)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn as_many_levels_and_entries_are_told_as_asked_for() {
        let ground = Ground::new();
        fs::create_dir_all(ground.tree.join("b/c/d")).unwrap();
        fs::write(ground.tree.join("a"), "text").unwrap();
        std::os::unix::fs::symlink("/etc", ground.tree.join("z")).unwrap();
        let whole = |names: &[&str]| (names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>(), false);
        assert_eq!(paths(&ground, 1, 10), whole(&["/a", "/b", "/z"]));
        assert_eq!(paths(&ground, 2, 10), whole(&["/a", "/b", "/b/c", "/z"]));
        assert_eq!(paths(&ground, 64, 10), whole(&["/a", "/b", "/b/c", "/b/c/d", "/z"]));
        assert_eq!(paths(&ground, 64, 2), (vec!["/a".to_owned(), "/b".to_owned()], true), "the first by path");
    }

    #[test]
    fn names_that_are_no_text_are_told_all_the_same() {
        use std::os::unix::ffi::OsStrExt;
        let ground = Ground::new();
        for name in [b"\xff", b"\xfe"] {
            fs::write(ground.tree.join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
        }
        assert_eq!(paths(&ground, 1, 10), (vec!["/\u{fffd}".to_owned(); 2], false));
    }

    #[test]
    fn a_listing_fits_into_a_reply() {
        let ground = Ground::new();
        let target = "t".repeat(4000);
        for number in 0..1500 {
            std::os::unix::fs::symlink(&target, ground.tree.join(format!("{number:04}"))).unwrap();
        }
        let (names, truncated) = paths(&ground, 1, 10_000);
        assert!(truncated && names.len() < 1500 && names.len() > 500, "{}", names.len());
        let reply: box_wire::file_op::Reply = Ok(list(&ground.place, &ground.path(""), 1, 10_000).unwrap());
        assert!(box_wire::file_op::encode(&reply).unwrap().len() <= limits::REPLY_BYTES_MAX);
    }
}
