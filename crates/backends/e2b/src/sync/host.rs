//! A tree of the host: what is in it, through no link.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use box_core::{Error, Grant, Result, SafeRoot};
use rustix::fs::{FileType, Mode, OFlags, Stat};

use super::known::HostStamp;
use crate::limits::{MOUNT_BYTES_MAX, MOUNT_DEPTH_MAX, MOUNT_ENTRIES_MAX};

/// A directory of the host that a box sees a copy of.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: SafeRoot,
    /// The owner of files that come out of the box; none if this process's own user is right.
    pub(super) owner: Option<(u32, u32)>,
    path: PathBuf,
}

impl Tree {
    /// The object that was decided on, opened for reading.
    pub(super) fn of(grant: Grant) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&grant.object, ".", flags, Mode::empty());
        let root = SafeRoot::from_directory(opened.map_err(|error| Error::io(reading(&grant.path), error))?);
        if !super::is_same_object(&root, grant.device, grant.inode) {
            let reason = "it became another directory while it was looked at".to_owned();
            return Err(Error::MountDenied { path: grant.path.display().to_string(), reason });
        }
        let owner = rustix::process::geteuid().is_root().then_some((grant.uid, grant.gid));
        Ok(Self { root, owner, path: grant.path })
    }

    /// Everything in it that can be carried, parents first; `inner` are places that are not looked into.
    pub(super) fn scan(&self, inner: &[String]) -> Result<BTreeMap<String, HostStamp>> {
        let mut found = BTreeMap::new();
        let (mut bytes, mut pending) = (0_u64, vec![(String::new(), 0)]);
        while let Some((directory, depth)) = pending.pop() {
            if depth >= MOUNT_DEPTH_MAX {
                return Err(self.refuse(&format!("it is deeper than {MOUNT_DEPTH_MAX} levels")));
            }
            for name in self.root.list(&directory)? {
                let Some(name) = name.to_str() else {
                    tracing::warn!(mount = %self.path.display(), ?name, "skipping a file whose name is not UTF-8");
                    continue;
                };
                let path = if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
                if inner.contains(&path) {
                    continue;
                }
                let Some(stamp) = self.stamp(&path)? else { continue };
                match &stamp {
                    HostStamp::Directory => pending.push((path.clone(), depth + 1)),
                    HostStamp::File { size, .. } => bytes = bytes.saturating_add(*size),
                    HostStamp::Link(_) => {}
                }
                found.insert(path, stamp);
                if bytes > MOUNT_BYTES_MAX {
                    return Err(too_large(&self.path));
                }
                if found.len() > MOUNT_ENTRIES_MAX {
                    return Err(self.refuse(&format!("it holds more than {MOUNT_ENTRIES_MAX} files")));
                }
            }
        }
        Ok(found)
    }

    /// What an entry is like; nothing where nothing is, or what is there cannot be carried.
    pub(super) fn stamp(&self, path: &str) -> Result<Option<HostStamp>> {
        let Some(stat) = self.root.look(path)? else { return Ok(None) };
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Some(HostStamp::Directory),
            FileType::RegularFile => Some(file_stamp(&stat)),
            FileType::Symlink => self.link(path).map(HostStamp::Link),
            _ => None,
        })
    }

    /// What a link says; nothing where it is none any more.
    fn link(&self, path: &str) -> Option<Vec<u8>> {
        let path = Path::new(path);
        let parent = self.root.below(path.parent().unwrap_or(Path::new(""))).ok()?;
        let target = rustix::fs::readlinkat(parent.directory(), path.file_name()?, Vec::new()).ok()?;
        Some(target.as_bytes().to_vec())
    }

    fn refuse(&self, reason: &str) -> Error {
        Error::MountDenied {
            path: self.path.display().to_string(),
            reason: format!("{reason}, the most that is carried into a sandbox"),
        }
    }
}

/// What a file is like.
pub(super) fn file_stamp(stat: &Stat) -> HostStamp {
    let nanoseconds = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    HostStamp::File {
        inode: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o777,
        modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
        changed: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
    }
}

/// That a path is read.
pub(super) fn reading(path: &Path) -> String {
    format!("reading {}", path.as_os_str().as_bytes().escape_ascii())
}

/// That a mount holds too much.
pub(super) fn too_large(path: &Path) -> Error {
    let reason = format!("it holds more than {} MiB, the most that is carried into a sandbox", MOUNT_BYTES_MAX >> 20);
    Error::MountDenied { path: path.display().to_string(), reason }
}
