//! Counts what is in a tree that a hostile program may be changing at the same moment.
//!
//! Nothing is found by a path that could lead elsewhere: every step is below a directory that is open, and the kernel refuses
//! links and other mounts on the way. The walk is a loop with a list, so no depth can exhaust the stack.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::{Quota, Usage};
use crate::limits;

/// No link, no way out, no other mount.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
/// How a directory is opened.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// Longest path that is walked from one directory; what is deeper is walked from one on the way. The kernel takes 4095 bytes.
const PATH_BYTES_MAX: usize = 3000;
/// What one block of a `stat` is.
const BLOCK_BYTES: u64 = 512;

/// How much of a tree is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Most names; one file may have many.
    pub(super) names_max: u64,
    /// Deepest directory.
    pub(super) depth_max: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { names_max: limits::QUOTA_NAMES_MAX, depth_max: limits::QUOTA_DEPTH_MAX }
    }
}

/// Counts until all is counted, the quota is passed or a bound is met.
pub(super) fn measure(root: BorrowedFd<'_>, quota: Quota, bounds: Bounds) -> rustix::io::Result<Usage> {
    let itself = rustix::fs::fstat(root)?;
    if FileType::from_raw_mode(itself.st_mode) != FileType::Directory {
        return Ok(Usage { bytes: allocated(&itself), inodes: 1, is_beyond_count: false });
    }
    let device = itself.st_dev;
    let root = rustix::fs::openat2(root, ".", DIRECTORY, Mode::empty(), RESOLVE)?;
    let first = Pending { base: Rc::new(root), path: Vec::new(), depth: 0 };
    let mut walk =
        Walk { quota, bounds, device, usage: Usage::default(), names: 0, linked: HashSet::new(), pending: vec![first] };
    while let Some(directory) = walk.pending.pop() {
        if walk.enter(&directory)? == Going::Stop {
            break;
        }
    }
    Ok(walk.usage)
}

fn allocated(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES
}

/// A directory that is yet to be looked at.
struct Pending {
    /// A directory above it that is open, or itself.
    base: Rc<OwnedFd>,
    /// Its path from there; empty when it is the base itself.
    path: Vec<u8>,
    depth: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Going {
    On,
    Stop,
}

struct Walk {
    quota: Quota,
    bounds: Bounds,
    device: u64,
    usage: Usage,
    names: u64,
    /// Files with several names that were counted.
    linked: HashSet<u64>,
    pending: Vec<Pending>,
}

impl Walk {
    fn enter(&mut self, directory: &Pending) -> rustix::io::Result<Going> {
        let opened = match directory.open() {
            Ok(opened) => opened,
            // It is gone, was replaced, is not ours to read, or another tree is mounted there: nothing of it counts.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::XDEV | Errno::AGAIN) => {
                return Ok(Going::On);
            }
            Err(errno) => return Err(errno),
        };
        let opened = Rc::new(opened);
        let mut entries = Dir::read_from(&*opened)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if self.count(&opened, name, directory)? == Going::Stop {
                return Ok(Going::Stop);
            }
        }
        Ok(Going::On)
    }

    fn count(&mut self, parent: &Rc<OwnedFd>, name: &CStr, directory: &Pending) -> rustix::io::Result<Going> {
        self.names += 1;
        if self.names > self.bounds.names_max {
            self.usage.is_beyond_count = true;
            return Ok(Going::Stop);
        }
        let stat = match rustix::fs::statat(&**parent, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::ACCESS) => return Ok(Going::On),
            Err(errno) => return Err(errno),
        };
        if stat.st_dev != self.device {
            return Ok(Going::On);
        }
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // The names of a file that has several lie anywhere; a directory has one.
        if is_directory || stat.st_nlink < 2 || self.linked.insert(stat.st_ino) {
            self.usage.inodes += 1;
            self.usage.bytes += allocated(&stat);
        }
        if is_directory {
            if directory.depth >= self.bounds.depth_max {
                self.usage.is_beyond_count = true;
                return Ok(Going::Stop);
            }
            self.pending.push(directory.below(parent, name));
        }
        Ok(if self.quota.is_exceeded_by(&self.usage) { Going::Stop } else { Going::On })
    }
}

impl Pending {
    fn open(&self) -> rustix::io::Result<OwnedFd> {
        let path: &[u8] = if self.path.is_empty() { b"." } else { &self.path };
        rustix::fs::openat2(self.base.as_fd(), path, DIRECTORY, Mode::empty(), RESOLVE)
    }

    /// A directory in this one, which is open as `opened`.
    fn below(&self, opened: &Rc<OwnedFd>, name: &CStr) -> Self {
        let name = name.to_bytes();
        let depth = self.depth + 1;
        if self.path.len() + 1 + name.len() > PATH_BYTES_MAX {
            return Self { base: Rc::clone(opened), path: name.to_vec(), depth };
        }
        let path = if self.path.is_empty() { name.to_vec() } else { [&self.path, name].join(&b'/') };
        Self { base: Rc::clone(&self.base), path, depth }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn measured(path: &Path, mb: u64, bounds: Bounds) -> Usage {
        let root = File::open(path).unwrap();
        measure(root.as_fd(), Quota::of_mb(mb), bounds).unwrap()
    }

    fn usage(path: &Path, mb: u64) -> Usage {
        measured(path, mb, Bounds::default())
    }

    fn write(path: &Path, bytes: usize) {
        let mut file = File::create(path).unwrap();
        std::io::Write::write_all(&mut file, &vec![b'x'; bytes]).unwrap();
        file.sync_all().unwrap();
    }

    #[test]
    fn allocated_blocks_count_and_holes_do_not() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("full"), 300_000);
        File::create(dir.path().join("sparse")).unwrap().set_len(1 << 40).unwrap();
        let found = usage(dir.path(), 100);
        assert!((300_000..MIB).contains(&found.bytes), "{found:?}");
        assert_eq!((found.inodes, found.is_beyond_count), (2, false));
    }

    #[test]
    fn a_file_counts_once_however_many_names_it_has() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        write(&dir.path().join("one"), 300_000);
        let before = usage(dir.path(), 100);
        for number in 0..10 {
            fs::hard_link(dir.path().join("one"), dir.path().join(format!("below/{number}"))).unwrap();
        }
        let after = usage(dir.path(), 100);
        assert_eq!((after.inodes, after.bytes), (before.inodes, before.bytes));
    }

    #[test]
    fn links_count_and_what_they_lead_to_does_not() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(&other.path().join("large"), 2_000_000);
        symlink(other.path(), dir.path().join("directory")).unwrap();
        symlink(other.path().join("large"), dir.path().join("file")).unwrap();
        symlink("loop", dir.path().join("loop")).unwrap();
        let found = usage(dir.path(), 1);
        assert_eq!(found.inodes, 3);
        assert!(found.bytes < MIB, "{found:?}");
    }

    #[test]
    fn too_many_files_and_too_many_names_are_each_too_much() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("0"), 1);
        for number in 1..=20 {
            fs::hard_link(dir.path().join("0"), dir.path().join(number.to_string())).unwrap();
        }
        let bounds = Bounds { names_max: 10, ..Bounds::default() };
        assert!(measured(dir.path(), 1, bounds).is_beyond_count);
        assert!(!measured(dir.path(), 1, Bounds { names_max: 21, ..bounds }).is_beyond_count);
        let dir = tempfile::tempdir().unwrap();
        for number in 0..=limits::INODES_MIN {
            File::create(dir.path().join(number.to_string())).unwrap();
        }
        let found = usage(dir.path(), 1);
        assert_eq!(found.inodes, limits::INODES_MIN + 1);
        assert!(Quota::of_mb(1).is_exceeded_by(&found));
    }

    #[test]
    fn what_lies_deeper_than_a_path_can_be_long_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let name = "d".repeat(250);
        let mut deepest = rustix::fs::open(dir.path(), DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..40 {
            rustix::fs::mkdirat(&deepest, name.as_str(), Mode::RWXU).unwrap();
            deepest = rustix::fs::openat(&deepest, name.as_str(), DIRECTORY, Mode::empty()).unwrap();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let hidden = rustix::fs::openat(&deepest, "hidden", flags, Mode::RUSR | Mode::WUSR).unwrap();
        let mut hidden = File::from(hidden);
        std::io::Write::write_all(&mut hidden, &vec![b'x'; 2_000_000]).unwrap();
        hidden.sync_all().unwrap();
        assert!(usage(dir.path(), 100).bytes >= 2_000_000);
        assert!(usage(dir.path(), 1).bytes > MIB);
        assert!(measured(dir.path(), 100, Bounds { depth_max: 39, ..Bounds::default() }).is_beyond_count);
    }

    #[test]
    fn a_directory_that_is_swapped_for_a_link_never_leads_out() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(&other.path().join("large"), 2_000_000);
        let (inside, spare, link) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
        fs::create_dir_all(inside.join("deep")).unwrap();
        symlink(other.path(), &link).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    fs::rename(&inside, &spare).unwrap();
                    fs::rename(&link, &inside).unwrap();
                    fs::rename(&inside, &link).unwrap();
                    fs::rename(&spare, &inside).unwrap();
                }
            });
            let found: Vec<_> = (0..5000).map(|_| usage(dir.path(), 1)).collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(found.iter().all(|usage| usage.bytes < MIB), "a walk left the tree");
        });
    }
}
