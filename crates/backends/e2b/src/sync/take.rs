//! Takes over on the host what has changed in a box. Everything that comes out of a box is hostile: names lead nowhere but below the
//! tree, no link is followed, and nothing gets more rights than its owner has.

use std::collections::BTreeSet;
use std::fs::{File, FileTimes, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};
use std::time::{Duration, SystemTime};

use box_core::{Error, Result};
use tar::{Archive, Entry, EntryType};

use super::host::Tree;
use super::known::{BoxStamp, HostStamp, Known, News, Pair};
use crate::limits::{MOUNT_BYTES_MAX, MOUNT_ENTRIES_MAX};

/// Files on their way into a tree are called this until they are whole.
const PARTIAL: &str = ".strongbox-partial";

/// Takes over what has changed; answers what both sides have then.
pub(super) fn apply(tree: &Tree, known: Known, news: &News, archive: Option<File>) -> Result<Known> {
    let mut taking = Taking { tree, known, bytes: 0 };
    taking.remove(&news.removed)?;
    if let Some(archive) = archive {
        taking.unpack(archive, news)?;
    }
    Ok(taking.known)
}

struct Taking<'a> {
    tree: &'a Tree,
    known: Known,
    bytes: u64,
}

impl Taking<'_> {
    /// Removes what the box removed, except files that changed on the host: deepest first, directories only when they
    /// are empty.
    fn remove(&mut self, removed: &BTreeSet<String>) -> Result<()> {
        for path in removed.iter().rev() {
            let Some(pair) = self.known.0.remove(path) else { continue };
            let Some(now) = self.tree.stamp(path)? else { continue };
            if now == HostStamp::Directory && now == pair.host {
                if self.tree.root.list(path)?.is_empty() {
                    self.tree.root.remove_tree(path)?;
                }
            } else if now == pair.host {
                self.tree.root.remove_file(path)?;
            }
        }
        Ok(())
    }

    fn unpack(&mut self, archive: File, news: &News) -> Result<()> {
        let mut archive = Archive::new(io::BufReader::new(archive));
        for (count, entry) in archive.entries().map_err(bad)?.enumerate() {
            let entry = entry.map_err(bad)?;
            if count > MOUNT_ENTRIES_MAX {
                return Err(refused("it has more entries than were listed"));
            }
            let path = entry.path_bytes().into_owned();
            let Some(path) = std::str::from_utf8(&path).ok().map(|path| path.trim_end_matches('/').to_owned()) else {
                continue;
            };
            // Only listed files: others in the archive are newer than the list, and the next synchronization takes
            // them.
            let Some(stamp) = news.changed.get(&path) else { continue };
            if !is_below(&path) {
                return Err(refused("a name in it leads elsewhere"));
            }
            self.take(&path, stamp, entry)?;
        }
        Ok(())
    }

    fn take(&mut self, path: &str, stamp: &BoxStamp, mut entry: Entry<'_, impl Read>) -> Result<()> {
        let kind = entry.header().entry_type();
        match (stamp, kind) {
            (BoxStamp::Directory, EntryType::Directory) => self.directory(path)?,
            (BoxStamp::Link(_), EntryType::Symlink) => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                self.make_room(path)?;
                self.tree.root.symlink(std::ffi::OsStr::from_bytes(&target), path)?;
                self.own(path)?;
            }
            (BoxStamp::File { modified_ns, .. }, EntryType::Regular | EntryType::GNUSparse) => {
                self.file(path, &mut entry, time(*modified_ns))?;
            }
            // It is something else by now.
            _ => return Ok(()),
        }
        // A file that has changed again differs from the list, and is taken the next time.
        if let Some(host) = self.tree.stamp(path)? {
            self.known.0.insert(path.to_owned(), Pair { host, boxed: stamp.clone() });
        }
        Ok(())
    }

    fn directory(&mut self, path: &str) -> Result<()> {
        match self.tree.stamp(path)? {
            Some(HostStamp::Directory) => return Ok(()),
            Some(_) => self.tree.root.remove_file(path)?,
            None => {}
        }
        self.parents(path)?;
        self.tree.root.make_directory(path, 0o755)?;
        self.own(path)
    }

    fn file(&mut self, path: &str, entry: &mut Entry<'_, impl Read>, modified: SystemTime) -> Result<()> {
        self.make_room_for_file(path)?;
        let partial = Path::new(path).with_file_name(PARTIAL);
        self.tree.root.remove_tree(&partial)?;
        let mut file = self.tree.root.create_new_file(&partial, 0o600)?;
        let written = self.fill(&mut file, entry).and_then(|()| {
            let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
            let set = file.set_permissions(Permissions::from_mode(mode));
            let set = set.and_then(|()| file.set_times(FileTimes::new().set_modified(modified)));
            set.map_err(|error| Error::io(format!("writing {path}"), error))?;
            self.own(&partial.to_string_lossy())?;
            self.tree.root.rename(&partial, path)
        });
        if written.is_err() {
            drop(self.tree.root.remove_file(&partial));
        }
        written
    }

    fn fill(&mut self, file: &mut File, entry: &mut Entry<'_, impl Read>) -> Result<()> {
        let mut chunk = vec![0; 64 << 10];
        loop {
            let count = entry.read(&mut chunk).map_err(bad)?;
            if count == 0 {
                return Ok(());
            }
            self.bytes += count as u64;
            if self.bytes > MOUNT_BYTES_MAX {
                return Err(refused(&format!("it holds more than {} MiB", MOUNT_BYTES_MAX >> 20)));
            }
            file.write_all(&chunk[..count]).map_err(|error| Error::io("writing a file of a box", error))?;
        }
    }

    /// Makes the directories above a path. One that is something else here, and that the box has as a directory, gives way.
    fn parents(&mut self, path: &str) -> Result<()> {
        let Some((above, _)) = path.rsplit_once('/') else { return Ok(()) };
        if self.tree.stamp(above)? == Some(HostStamp::Directory) {
            return Ok(());
        }
        self.directory(above)
    }

    /// Removes what has a name that a link gets.
    fn make_room(&mut self, path: &str) -> Result<()> {
        self.parents(path)?;
        self.tree.root.remove_tree(path)
    }

    /// Removes a directory that has the name of a file; a file is replaced in one step.
    fn make_room_for_file(&mut self, path: &str) -> Result<()> {
        self.parents(path)?;
        if self.tree.stamp(path)? == Some(HostStamp::Directory) {
            return self.tree.root.remove_tree(path);
        }
        Ok(())
    }

    fn own(&self, path: &str) -> Result<()> {
        match self.tree.owner {
            Some((uid, gid)) => self.tree.root.set_owner(path, uid, gid),
            None => Ok(()),
        }
    }
}

/// A timestamp of the box. Times before the epoch become the epoch.
fn time(nanoseconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
}

/// Whether a name leads below the tree, and is not one of the staging files.
fn is_below(path: &str) -> bool {
    let path = Path::new(path);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    is_plain && path.file_name().is_some_and(|name| name != PARTIAL)
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where errors are mapped")]
fn bad(error: io::Error) -> Error {
    refused(&error.to_string())
}

fn refused(reason: &str) -> Error {
    let reason = format!("the archive that came out of the box cannot be used: {reason}");
    Error::Setup { step: "carry out".to_owned(), reason }
}
