//! Measures the disk usage of a tree.

use std::collections::HashSet;

use box_wire::{Answer, FileError, GuestPath};
use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use rustix::io::Errno;

use super::file_error;
use super::place::{FileTree, reopen};
use super::tree::{Mounts, Resume, Step, Walk};

/// Entries that are looked at, at most.
const LOOKS_MAX: u64 = 1_000_000;

/// Files with several names that are remembered, so that each counts once.
const LINKED_MAX: usize = 200_000;

/// The unit of `st_blocks`, whatever the file system's own is.
const BLOCK_BYTES: u64 = 512;

/// Adds up a tree, without what is mounted in it.
pub(super) fn measure(place: &FileTree, path: &GuestPath) -> Result<Answer, FileError> {
    let failed = |error: std::io::Error| file_error(path.as_str(), error);
    let top = place.find(path)?;
    let stat = rustix::fs::fstat(&top).map_err(|error| file_error(path.as_str(), error))?;
    let mut sum = Sum::default();
    sum.add(&stat);
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        let directory = reopen(&top, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut walk = Walk::new(directory.into(), Mounts::Refuse, Resume::There).map_err(failed)?;
        sum.add_all(&mut walk).map_err(failed)?;
    }
    Ok(Answer::Size { bytes: sum.bytes, inodes: sum.inodes, partial: sum.partial })
}

#[derive(Default)]
struct Sum {
    bytes: u64,
    inodes: u64,
    /// Device and inode of files with several names.
    linked: HashSet<(u64, u64)>,
    partial: bool,
}

impl Sum {
    fn add_all(&mut self, walk: &mut Walk) -> std::io::Result<()> {
        let mut looks = 0;
        while let Some(step) = walk.next()? {
            let Step::Item(item) = step else { continue };
            looks += 1;
            if looks > LOOKS_MAX {
                self.partial = true;
                return Ok(());
            }
            if item.may_be_directory() {
                match walk.enter(&item.name) {
                    Ok(()) => {
                        self.add(&rustix::fs::fstat(walk.directory())?);
                        continue;
                    }
                    // Mounted there: not of this tree.
                    Err(Errno::XDEV) => continue,
                    Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP) => {}
                    Err(_) => self.partial = true,
                }
            }
            if let Ok(stat) = rustix::fs::statat(walk.directory(), &item.name, AtFlags::SYMLINK_NOFOLLOW) {
                self.add(&stat);
            }
        }
        Ok(())
    }

    fn add(&mut self, stat: &Stat) {
        let several = stat.st_nlink > 1 && FileType::from_raw_mode(stat.st_mode) != FileType::Directory;
        if several && self.linked.len() >= LINKED_MAX {
            // Better to miss some, and to say so, than to count one file twice.
            self.partial = true;
            return;
        }
        if several && !self.linked.insert((stat.st_dev, stat.st_ino)) {
            return;
        }
        self.inodes += 1;
        self.bytes = self.bytes.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::super::place::ground::Ground;
    use super::*;

    #[test]
    fn allocated_bytes_count_and_hard_links_once() {
        let ground = Ground::new();
        fs::create_dir(ground.tree.join("d")).unwrap();
        fs::write(ground.tree.join("d/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(ground.tree.join("d/file"), ground.tree.join("second")).unwrap();
        let sparse = fs::File::create(ground.tree.join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let blocks = |name: &str| fs::metadata(ground.tree.join(name)).unwrap().blocks() * BLOCK_BYTES;
        let expected = ["", "d", "d/file", "sparse"].map(blocks).iter().sum();
        let answer = measure(&ground.place, &ground.path("")).unwrap();
        assert_eq!(answer, Answer::Size { bytes: expected, inodes: 4, partial: false });
        let one = measure(&ground.place, &ground.path("second")).unwrap();
        assert_eq!(one, Answer::Size { bytes: blocks("second"), inodes: 1, partial: false });
    }
}
