//! What a tree of the host holds, without following links and for a bounded time.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use box_core::SafeRoot;
use rustix::fs::{AtFlags, Dir, FileType, statat};

use super::Tally;

/// Most names that are looked at in one tree.
const NAMES_MAX: u64 = 500_000;
/// Longest time for one tree: four are measured while the client waits a minute.
const TIME_MAX: Duration = Duration::from_secs(8);
/// Deepest directory that is entered.
const DEPTH_MAX: usize = 64;

/// Counts what is below `path`, which is below a directory that the operator named.
pub(super) fn measure(base: &Path, path: &Path) -> Tally {
    let mut tally = Tally::default();
    let Ok(root) = SafeRoot::open_path(base) else { return tally };
    let Ok(tree) = root.below(path) else { return tally };
    tally.exists = true;
    let mut walk = Walk { tally, names: 0, deadline: Instant::now() + TIME_MAX, left: vec![PathBuf::new()] };
    while let Some(directory) = walk.left.pop() {
        if walk.is_over() || walk.enter(&tree, &directory).is_none() {
            walk.tally.error_count += 1;
        }
        if walk.is_over() {
            break;
        }
    }
    walk.tally
}

struct Walk {
    tally: Tally,
    names: u64,
    deadline: Instant,
    left: Vec<PathBuf>,
}

impl Walk {
    fn is_over(&self) -> bool {
        self.names >= NAMES_MAX || Instant::now() >= self.deadline
    }

    /// Looks at all names of a directory; nothing when that cannot be read to its end.
    fn enter(&mut self, tree: &SafeRoot, directory: &Path) -> Option<()> {
        let opened = tree.below(directory).ok()?;
        for entry in Dir::read_from(opened.directory().as_fd()).ok()? {
            let entry = entry.ok()?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            self.names += 1;
            if self.is_over() {
                return None;
            }
            let Ok(found) = statat(opened.directory(), name, AtFlags::SYMLINK_NOFOLLOW) else {
                self.tally.error_count += 1;
                continue;
            };
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory if directory.components().count() < DEPTH_MAX => {
                    let name = std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes());
                    self.left.push(directory.join::<&std::ffi::OsStr>(name));
                }
                FileType::Directory => self.tally.error_count += 1,
                FileType::RegularFile => {
                    self.tally.file_count += 1;
                    let size_bytes = u64::try_from(found.st_size).unwrap_or_default();
                    self.tally.size_bytes = self.tally.size_bytes.saturating_add(size_bytes);
                }
                _ => {}
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_and_links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        std::fs::create_dir_all(base.join("t/a/b")).unwrap();
        std::fs::write(base.join("secret"), [0; 1000]).unwrap();
        std::fs::write(base.join("t/one"), "123").unwrap();
        std::fs::write(base.join("t/a/b/two"), "12345").unwrap();
        std::os::unix::fs::symlink(base, base.join("t/up")).unwrap();
        std::os::unix::fs::symlink(base.join("secret"), base.join("t/file")).unwrap();
        let expected = Tally { exists: true, size_bytes: 8, file_count: 2, error_count: 0 };
        assert_eq!(measure(base, Path::new("t")), expected);
        assert_eq!(measure(base, Path::new("t/up")), Tally::default());
        assert_eq!(measure(base, Path::new("nothing")), Tally::default());
        assert_eq!(measure(&base.join("nothing"), Path::new("")), Tally::default());
    }

    #[test]
    fn very_deep_trees_are_not_followed_to_their_end() {
        let directory = tempfile::tempdir().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", DEPTH_MAX + 5).collect();
        std::fs::create_dir_all(directory.path().join(&deep)).unwrap();
        std::fs::write(directory.path().join(deep).join("file"), "x").unwrap();
        let tally = measure(directory.path(), Path::new(""));
        assert_eq!((tally.file_count, tally.error_count), (0, 1));
    }
}
