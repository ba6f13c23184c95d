//! Reports changes in a tree as long as a client reads them.
//!
//! inotify reports on single directories, so each one has a watch. A new directory gets one when its creation is
//! reported; entries that it got before are then reported as new, perhaps twice. Changes that cannot be reported count
//! as missed.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use box_wire::file_op::{Change, ChangeKind, Detail, EntryKind, Happening};
use box_wire::limits::PATH_BYTES_MAX;
use box_wire::{Answer, FileError, GuestPath};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::detail::Teller;
use super::files::{entry, stat};
use super::place::{FileTree, by_descriptor};
use super::tree::{Mounts, Resume, Step, Walk, join, open_below};
use super::{AnswerTiming, Output, file_error, told_path};

/// Directories that are watched.
const DIRECTORIES_MAX: usize = if cfg!(test) { 64 } else { 8192 };

/// Changes that wait to be sent.
const CHANGES_MAX: usize = 65_536;

/// Buffer for events of one read.
const EVENTS_BYTES: usize = 16 << 10;

/// Events about the entries of a directory.
const OF_ITEMS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR);

/// Events about the watched directory itself.
const OF_ITSELF: WatchFlags = WatchFlags::DELETE_SELF.union(WatchFlags::MOVE_SELF);

pub(super) fn watch(
    place: &FileTree,
    path: &GuestPath,
    recursive: bool,
    output: &mut Output,
) -> Result<AnswerTiming, FileError> {
    let watcher = Watcher::new(place, path, recursive, Moves::Alike)?;
    Ok(AnswerTiming::Before(watcher.tell_all(output, |change, output| output.item(&change))))
}

/// The same for a directory; the two names of a move are separate changes, and each change has the current entry if a
/// teller is given.
pub(super) fn follow(
    place: &FileTree,
    path: &GuestPath,
    recursive: bool,
    teller: Option<&Teller<'_>>,
    output: &mut Output,
) -> Result<AnswerTiming, FileError> {
    let watcher = Watcher::new(place, path, recursive, Moves::Apart)?;
    if watcher.only.is_some() {
        return Err(file_error(path.as_str(), Errno::NOTDIR));
    }
    Ok(AnswerTiming::Before(watcher.tell_all(output, |change, output| {
        let detail = teller.and_then(|teller| detail(place, teller, &change)).map(Box::new);
        output.item(&Happening { change, detail })
    })))
}

/// The entry after a change.
fn detail(place: &FileTree, teller: &Teller<'_>, change: &Change) -> Option<Detail> {
    match change.what {
        ChangeKind::Created | ChangeKind::Written | ChangeKind::Attributes | ChangeKind::Arrived => {}
        ChangeKind::Renamed | ChangeKind::Removed | ChangeKind::Missed | ChangeKind::Left => return None,
    }
    let entry = stat(place, &change.path.parse().ok()?).ok()?;
    Some(teller.detail(entry))
}

/// Waits for an event; returns false when the reader is gone.
fn wait(inotify: &OwnedFd) -> io::Result<bool> {
    let stdout = rustix::stdio::stdout();
    let mut both = [PollFd::new(inotify, PollFlags::IN), PollFd::from_borrowed_fd(stdout, PollFlags::empty())];
    match rustix::event::poll(&mut both, None) {
        Ok(_) | Err(Errno::INTR) => Ok(both[1].revents().is_empty()),
        Err(error) => Err(error.into()),
    }
}

/// What is watched, and the changes that are not sent yet.
struct Watcher<'a> {
    place: &'a FileTree,
    /// The watched path.
    path: GuestPath,
    /// Its real name in the watched directory, if the watched path is a file.
    only: Option<OsString>,
    recursive: bool,
    moves: Moves,
    inotify: OwnedFd,
    /// From the top to the directory of each watch.
    directories: HashMap<i32, Vec<u8>>,
    /// A directory that lost its name, with the cookie by which the event of its new name is recognized. That event, if
    /// any, follows directly.
    moved: Option<(u32, Vec<u8>)>,
    changes: Vec<Change>,
    ended: bool,
}

/// An event of inotify.
struct Happened {
    watch: i32,
    what: ReadFlags,
    cookie: u32,
    name: Option<Vec<u8>>,
}

/// How the two halves of a move are reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    Alike,
    Apart,
}

/// Whether entries found in a directory are reported as new.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Discovery {
    Reported,
    Known,
}

impl Moves {
    /// The reported kind of one half of a move.
    fn of(self, half: ChangeKind) -> ChangeKind {
        if self == Self::Apart { half } else { ChangeKind::Renamed }
    }
}

impl<'a> Watcher<'a> {
    fn new(place: &'a FileTree, path: &GuestPath, recursive: bool, moves: Moves) -> Result<Self, FileError> {
        let found = place.look_up(path)?;
        let is_directory = entry(&found.object, path.as_str())?.kind == EntryKind::Directory;
        let (directory, only) = if is_directory {
            (place.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?.into(), None)
        } else {
            let spot = place.parent_of(path, &found)?;
            (spot.directory, Some(spot.name))
        };
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let mut watcher = Self {
            place,
            path: path.clone(),
            recursive: recursive && is_directory,
            moves,
            only,
            inotify: inotify.map_err(|error| file_error(path.as_str(), error))?,
            directories: HashMap::new(),
            moved: None,
            changes: Vec::new(),
            ended: false,
        };
        watcher.add(directory, b"", Discovery::Known).map_err(|error| file_error(path.as_str(), error))?;
        Ok(watcher)
    }

    /// Passes on events until the watch ends or the reader is gone.
    fn tell_all(
        mut self,
        output: &mut Output,
        mut pass: impl FnMut(Change, &mut Output) -> io::Result<()>,
    ) -> io::Result<()> {
        output.reply(&Ok(Answer::Done))?;
        loop {
            for change in self.changes.drain(..) {
                pass(change, output)?;
            }
            if self.ended || !wait(&self.inotify)? {
                return Ok(());
            }
            self.take()?;
        }
    }

    /// Takes events from inotify.
    fn take(&mut self) -> io::Result<()> {
        for happened in read(&self.inotify)? {
            self.note(happened);
        }
        Ok(())
    }

    fn note(&mut self, happened: Happened) {
        let what = happened.what;
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.miss();
            if self.recursive {
                self.add_again(b"", Discovery::Known);
            }
            return;
        }
        if what.contains(ReadFlags::IGNORED) {
            self.directories.remove(&happened.watch);
            return;
        }
        self.follow_moves(&happened);
        let Some(directory) = self.directories.get(&happened.watch) else { return };
        match happened.name {
            Some(name) => {
                let path = join(directory, &name);
                if self.only.as_ref().is_none_or(|only| only.as_bytes() == path) {
                    self.note_item(&path, what, happened.cookie);
                }
            }
            // Events about directories below come from the watch of their parent.
            None if directory.is_empty() => self.note_itself(what),
            None => {}
        }
    }

    fn note_item(&mut self, path: &[u8], what: ReadFlags, cookie: u32) {
        let is_directory = what.contains(ReadFlags::ISDIR);
        let kind = match what {
            what if what.contains(ReadFlags::CREATE) => ChangeKind::Created,
            what if what.contains(ReadFlags::DELETE) => ChangeKind::Removed,
            what if what.contains(ReadFlags::MOVED_FROM) => self.moves.of(ChangeKind::Left),
            what if what.contains(ReadFlags::MOVED_TO) => self.moves.of(ChangeKind::Arrived),
            what if what.contains(ReadFlags::MODIFY) => ChangeKind::Written,
            what if what.contains(ReadFlags::ATTRIB) => ChangeKind::Attributes,
            _ => return,
        };
        self.tell(kind, path, is_directory);
        if !is_directory || !self.recursive {
            return;
        }
        if what.contains(ReadFlags::MOVED_FROM) {
            self.moved = Some((cookie, path.to_vec()));
        } else if what.contains(ReadFlags::CREATE) {
            self.add_again(path, Discovery::Reported);
        } else if what.contains(ReadFlags::MOVED_TO) && !self.directories.values().any(|known| known == path) {
            self.add_again(path, Discovery::Known);
        }
    }

    fn note_itself(&mut self, what: ReadFlags) {
        let kind = match what {
            what if what.contains(ReadFlags::DELETE_SELF) => ChangeKind::Removed,
            what if what.contains(ReadFlags::MOVE_SELF) => self.moves.of(ChangeKind::Left),
            what if what.contains(ReadFlags::ATTRIB) && self.only.is_none() => ChangeKind::Attributes,
            _ => return,
        };
        self.tell(kind, b"", true);
        // What has another name now may lie anywhere.
        self.ended = kind != ChangeKind::Attributes;
    }

    /// Updates the path of a moved directory, and stops watching one that left the tree.
    fn follow_moves(&mut self, happened: &Happened) {
        let Some((cookie, old)) = self.moved.take() else { return };
        let arrived = happened.what.contains(ReadFlags::MOVED_TO) && happened.cookie == cookie;
        let new = match (&happened.name, self.directories.get(&happened.watch)) {
            (Some(name), Some(directory)) if arrived => Some(join(directory, name)),
            _ => None,
        };
        let mut left = Vec::new();
        for (watch, path) in &mut self.directories {
            let Some(rest) = below(path, &old) else { continue };
            match &new {
                Some(new) => *path = [new, rest].concat(),
                None => left.push(*watch),
            }
        }
        for watch in left {
            self.directories.remove(&watch);
            // It may be gone already.
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }

    /// Watches a directory below the top that an event named.
    fn add_again(&mut self, path: &[u8], found: Discovery) {
        let opened = self.place.open(&self.path, OFlags::RDONLY | OFlags::DIRECTORY).ok().and_then(|top| {
            if path.is_empty() {
                return Some(OwnedFd::from(top));
            }
            open_below(&top, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mounts::Enter).ok()
        });
        // What cannot be opened is gone, which has an event of its own, or may not be read.
        let Some(directory) = opened else { return };
        if self.add(directory, path, found).is_err() {
            self.miss();
        }
    }

    /// Watches a directory, and those below it. Each is watched before it is read, so that nothing is lost between.
    fn add(&mut self, directory: OwnedFd, path: &[u8], found: Discovery) -> io::Result<()> {
        self.add_one(&directory, path)?;
        if !self.recursive {
            return Ok(());
        }
        let mut walk = Walk::new(directory, Mounts::Enter, Resume::There)?;
        while let Some(step) = walk.next()? {
            let Step::Item(item) = step else { continue };
            let below = join(path, &walk.path_to(&item.name));
            let entered = item.may_be_directory() && walk.enter(&item.name).is_ok();
            if found == Discovery::Reported {
                self.tell(ChangeKind::Created, &below, entered);
            }
            if entered && (below.len() > PATH_BYTES_MAX || self.add_one(&walk.directory(), &below).is_err()) {
                self.miss();
                return Ok(());
            }
        }
        Ok(())
    }

    fn add_one(&mut self, directory: &impl AsFd, path: &[u8]) -> rustix::io::Result<()> {
        if self.directories.len() >= DIRECTORIES_MAX {
            return Err(Errno::NOSPC);
        }
        let flags = if path.is_empty() { OF_ITEMS | OF_ITSELF } else { OF_ITEMS };
        let watch = inotify::add_watch(&self.inotify, by_descriptor(directory), flags)?;
        self.directories.insert(watch, path.to_vec());
        Ok(())
    }

    fn miss(&mut self) {
        self.tell(ChangeKind::Missed, b"", true);
    }

    fn tell(&mut self, what: ChangeKind, path: &[u8], is_directory: bool) {
        let what = if self.changes.len() < CHANGES_MAX { what } else { ChangeKind::Missed };
        if self.changes.len() > CHANGES_MAX {
            return;
        }
        let below = if self.only.is_some() { b"" } else { path };
        self.changes.push(Change { what, path: told_path(&self.path, below), is_directory });
    }
}

/// The pending events, as many as one read returns.
fn read(inotify: &OwnedFd) -> io::Result<Vec<Happened>> {
    let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
    let mut reader = Reader::new(inotify, &mut buffer);
    let mut all = Vec::new();
    loop {
        let event = match reader.next() {
            Ok(event) => event,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(all),
            Err(error) => return Err(error.into()),
        };
        let name = event.file_name().map(|name| name.to_bytes().to_vec());
        all.push(Happened { watch: event.wd(), what: event.events(), cookie: event.cookie(), name });
        if reader.is_buffer_empty() {
            return Ok(all);
        }
    }
}

/// The rest of a path below another one; empty if they are equal.
fn below<'a>(path: &'a [u8], other: &[u8]) -> Option<&'a [u8]> {
    path.strip_prefix(other).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests;
