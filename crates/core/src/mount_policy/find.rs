//! Looks through a tree that a box may have arranged to hide something in.

use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::limits;

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Search {
    /// The first one, by its path below the tree.
    Found(PathBuf),
    /// All names were looked at.
    Nothing,
    /// Nothing, but not all names could be looked at.
    Incomplete,
}

/// How much of a tree is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) names: usize,
    /// Bytes of the paths of directories that are still to be looked at. A box can make many with long paths.
    pub(super) pending_bytes: usize,
}

impl Bounds {
    pub(super) fn names(names: usize) -> Self {
        Self { names, pending_bytes: limits::MOUNT_SEARCH_BYTES_MAX }
    }
}

/// A name in a tree.
pub(super) struct Entry<'a> {
    /// The directory, and its path below the tree.
    pub(super) directory: &'a OwnedFd,
    pub(super) parent: &'a Path,
    pub(super) name: &'a CStr,
    pub(super) kind: FileType,
}

impl Entry<'_> {
    /// The path below the tree.
    pub(super) fn path(&self) -> PathBuf {
        self.parent.join(OsStr::from_bytes(self.name.to_bytes()))
    }
}

/// Looks for something in a tree, without following links or entering other mounts, and gives up at `bounds`.
pub(super) fn find(tree: &OwnedFd, bounds: Bounds, mut is_wanted: impl FnMut(&Entry<'_>) -> bool) -> Search {
    let mut pending = vec![PathBuf::new()];
    let (mut seen, mut pending_bytes, mut is_complete) = (0, 0, true);
    while let Some(path) = pending.pop() {
        pending_bytes -= path.as_os_str().len();
        let directory = match open(tree, &path) {
            Ok(directory) => directory,
            // A mount that the box does not see, or something that is gone or another file by now.
            Err(Errno::XDEV | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(_) => {
                is_complete = false;
                continue;
            }
        };
        let Ok(mut entries) = Dir::read_from(&directory) else {
            is_complete = false;
            continue;
        };
        while let Some(entry) = entries.read() {
            let Ok(entry) = entry else {
                is_complete = false;
                break;
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            seen += 1;
            if seen > bounds.names {
                return Search::Incomplete;
            }
            let kind = match entry.file_type() {
                // Not every file system says.
                FileType::Unknown => rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                kind => kind,
            };
            let entry = Entry { directory: &directory, parent: &path, name, kind };
            if is_wanted(&entry) {
                return Search::Found(entry.path());
            }
            if kind == FileType::Directory {
                let path = entry.path();
                pending_bytes += path.as_os_str().len();
                if pending_bytes > bounds.pending_bytes {
                    return Search::Incomplete;
                }
                pending.push(path);
            }
        }
    }
    if is_complete { Search::Nothing } else { Search::Incomplete }
}

/// Enters subvolumes of btrfs too: each has a device of its own, but a box sees what is in it.
fn open(tree: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let path = if path == Path::new("") { Path::new(".") } else { path };
    rustix::fs::openat2(tree, path, flags, Mode::empty(), resolve)
}
