//! Removes files and trees.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use box_wire::{FileError, FileErrorCode, GuestPath};
use rustix::fs::{AtFlags, FileType, OFlags};
use rustix::io::Errno;

use super::place::FileTree;
use super::tree::{Mounts, Resume, Step, Walk, open_below};
use super::{file_error, told_path};

/// How often to retry a directory into which other processes put new entries meanwhile.
const AGAIN_MAX: u32 = 64;

/// Removes what a path names; of a link, the link.
pub(super) fn remove(place: &FileTree, path: &GuestPath, recursive: bool) -> Result<(), FileError> {
    let spot = place.parent(path)?;
    let failed = |error: Errno| file_error(path.as_str(), error);
    let stat = rustix::fs::statat(&spot.directory, &spot.name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return rustix::fs::unlinkat(&spot.directory, &spot.name, AtFlags::empty()).map_err(failed);
    }
    if recursive {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        match open_below(&spot.directory, &spot.name, flags, Mounts::Refuse) {
            Ok(directory) => clear(directory, path)?,
            Err(Errno::XDEV) => return Err(mounted(path.as_str())),
            Err(error) => return Err(failed(error)),
        }
    }
    rustix::fs::unlinkat(&spot.directory, &spot.name, AtFlags::REMOVEDIR).map_err(failed)
}

/// Removes everything in a directory.
fn clear(directory: OwnedFd, path: &GuestPath) -> Result<(), FileError> {
    let failed = |error: std::io::Error| file_error(path.as_str(), error);
    let mut walk = Walk::new(directory, Mounts::Refuse, Resume::AtStart).map_err(failed)?;
    let mut again = 0;
    while let Some(step) = walk.next().map_err(failed)? {
        let (name, removed) = match step {
            Step::Item(item) => {
                let removed = if item.may_be_directory() {
                    enter_or_unlink(&mut walk, &item.name)
                } else {
                    unlink(&walk, &item.name, AtFlags::empty())
                };
                (item.name, removed)
            }
            Step::Left(name) => match unlink(&walk, &name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY) if again < AGAIN_MAX => {
                    again += 1;
                    let entered = enter_or_unlink(&mut walk, &name);
                    (name, entered)
                }
                removed => (name, removed),
            },
        };
        match removed {
            Ok(()) => {}
            Err(Errno::XDEV) => return Err(mounted(&told_path(path, &walk.path_to(&name)))),
            Err(error) => return Err(file_error(&told_path(path, &walk.path_to(&name)), error)),
        }
    }
    Ok(())
}

/// Goes into a directory, to be removed when it was gone through; anything else is removed at once.
fn enter_or_unlink(walk: &mut Walk, name: &CStr) -> rustix::io::Result<()> {
    match walk.enter(name) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => unlink(walk, name, AtFlags::empty()),
        // What cannot be read can still be removed when it is empty.
        Err(Errno::ACCESS) => match unlink(walk, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY) => Err(Errno::ACCESS),
            removed => removed,
        },
        Err(error) => Err(error),
    }
}

fn unlink(walk: &Walk, name: &CStr, flags: AtFlags) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(walk.directory(), name, flags) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

fn mounted(path: &str) -> FileError {
    FileError::new(FileErrorCode::Denied, format!("{path} is mounted in the box and stays"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::place::ground::Ground;
    use super::*;

    #[test]
    fn trees_of_any_depth_are_removed_and_links_are_not_followed() {
        let ground = Ground::in_memory();
        fs::create_dir(ground.outside("kept")).unwrap();
        fs::write(ground.outside("kept/file"), "").unwrap();
        let mut current = rustix::fs::open(&ground.tree, OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        for _ in 0..5000 {
            rustix::fs::mkdirat(&current, "d", rustix::fs::Mode::RWXU).unwrap();
            rustix::fs::symlinkat(ground.outside("kept"), &current, "link").unwrap();
            current = rustix::fs::openat(&current, "d", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        }
        remove(&ground.place, &ground.path("link"), false).unwrap();
        assert_eq!(remove(&ground.place, &ground.path("d"), false).unwrap_err().code, FileErrorCode::NotEmpty);
        remove(&ground.place, &ground.path("d"), true).unwrap();
        assert_eq!(fs::read_dir(&ground.tree).unwrap().count(), 0);
        assert!(ground.outside("kept/file").exists());
    }

    #[test]
    fn what_is_not_of_the_tree_is_not_removed() {
        let ground = Ground::new();
        fs::create_dir_all(ground.outside("kept/x")).unwrap();
        symlink("../kept", ground.tree.join("link")).unwrap();
        for (name, code) in [
            ("link/x", FileErrorCode::PathEscapes),
            ("", FileErrorCode::InvalidPath),
            ("none", FileErrorCode::NotFound),
        ] {
            assert_eq!(remove(&ground.place, &ground.path(name), true).unwrap_err().code, code, "{name}");
        }
        assert!(ground.outside("kept/x").exists());
    }

    #[test]
    fn a_directory_of_many_names_is_emptied() {
        let ground = Ground::new();
        for number in 0..1000 {
            fs::create_dir_all(ground.tree.join(format!("many/directory {number}/x"))).unwrap();
            fs::write(ground.tree.join(format!("many/file {number}")), "").unwrap();
        }
        remove(&ground.place, &ground.path("many"), true).unwrap();
        assert!(!ground.tree.join("many").exists());
    }
}
