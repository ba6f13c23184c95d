//! Opens what a caller names, inside one tree of the box and nowhere else.
//!
//! Links are followed as far as they stay in the tree. The decision is made on the object that was opened, by where it really is,
//! so that nothing can be exchanged between looking and using.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use box_wire::{FileError, FileErrorCode, GuestPath, User};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use super::file_error;

/// Permission bits of a new directory, before the usual ones are taken away.
pub(super) const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);

/// The tree that may be touched.
pub(super) struct FileTree {
    /// The path as the caller knows it.
    named: GuestPath,
    /// Its real path.
    root: PathBuf,
    /// The owner of new files, if not the process itself.
    owner: Option<User>,
}

/// Something in the tree, opened as a path only.
pub(super) struct OpenedPath {
    pub(super) object: OwnedFd,
    /// Its real path.
    pub(super) real: PathBuf,
}

/// A name in an opened directory of the tree.
pub(super) struct Spot {
    pub(super) directory: OwnedFd,
    pub(super) name: OsString,
}

impl FileTree {
    pub(super) fn new(root: &GuestPath) -> Result<Self, FileError> {
        let found = locate(root, OFlags::DIRECTORY)?;
        Ok(Self { named: root.clone(), root: found.real, owner: None })
    }

    /// The same tree, in which new files and directories belong to `owner`.
    pub(super) fn on_behalf(&self, owner: User) -> Self {
        Self { named: self.named.clone(), root: self.root.clone(), owner: Some(owner) }
    }

    /// Gives something opened to whom it is to belong. Who may not do that keeps it, and so does who is
    /// alone in its box.
    pub(super) fn give(&self, thing: impl AsFd) -> rustix::io::Result<()> {
        let Some(User { uid, gid }) = self.owner else { return Ok(()) };
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        match rustix::fs::chownat(thing, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH) {
            Err(Errno::PERM | Errno::INVAL) => Ok(()),
            given => given,
        }
    }

    /// Opens a path with `O_PATH`, following links.
    pub(super) fn find(&self, path: &GuestPath) -> Result<OwnedFd, FileError> {
        self.look_up(path).map(|found| found.object)
    }

    /// Opens a path with `O_PATH`, without following a last link.
    pub(super) fn find_itself(&self, path: &GuestPath) -> Result<OwnedFd, FileError> {
        self.within(path, locate(path, OFlags::NOFOLLOW)?).map(|found| found.object)
    }

    /// Opens a path with `O_PATH`, following links, and returns its real path.
    pub(super) fn look_up(&self, path: &GuestPath) -> Result<OpenedPath, FileError> {
        self.within(path, locate(path, OFlags::empty())?)
    }

    /// Opens a regular file or a directory for use.
    pub(super) fn open(&self, path: &GuestPath, flags: OFlags) -> Result<File, FileError> {
        reopen(&self.find(path)?, path, flags)
    }

    /// The directory that a path lies in, and its name there. Not for the tree itself, which nothing lies above.
    pub(super) fn parent(&self, path: &GuestPath) -> Result<Spot, FileError> {
        self.check_below(path)?;
        let above = path.parent();
        let directory = self.within(&above, locate(&above, OFlags::DIRECTORY)?)?.object;
        Ok(Spot { directory, name: path.name().into() })
    }

    /// The same; what is missing of the directory is made.
    pub(super) fn parent_made(&self, path: &GuestPath) -> Result<Spot, FileError> {
        self.check_below(path)?;
        Ok(Spot { directory: self.directory_made(&path.parent())?, name: path.name().into() })
    }

    /// The directory in which something found really lies, and its real name there.
    pub(super) fn parent_of(&self, path: &GuestPath, found: &OpenedPath) -> Result<Spot, FileError> {
        let (Some(above), Some(name)) = (found.real.parent(), found.real.file_name()) else {
            return Err(file_error(path.as_str(), Errno::ISDIR));
        };
        let directory = self.within(path, locate_in(CWD, above, OFlags::DIRECTORY, path)?)?.object;
        Ok(Spot { directory, name: name.to_owned() })
    }

    /// A directory; what is missing on the way to it is made.
    pub(super) fn directory_made(&self, path: &GuestPath) -> Result<OwnedFd, FileError> {
        match locate(path, OFlags::DIRECTORY) {
            Ok(found) => self.within(path, found).map(|found| found.object),
            Err(error) if error.code == FileErrorCode::NotFound => self.make_directories(path),
            Err(error) => Err(error),
        }
    }

    /// Goes down name by name. Nothing is made in a directory that is not of the tree.
    fn make_directories(&self, path: &GuestPath) -> Result<OwnedFd, FileError> {
        let mut current = locate(&GuestPath::root(), OFlags::DIRECTORY)?;
        for name in path.relative().split('/') {
            let step = |from: &OpenedPath| locate_in(&from.object, Path::new(name), OFlags::DIRECTORY, path);
            current = match step(&current) {
                Err(missing) if missing.code == FileErrorCode::NotFound => {
                    let above = self.within(path, current)?;
                    let made = make_directory(&above, name, path)?;
                    let next = step(&above)?;
                    if made {
                        self.give(&next.object).map_err(|error| file_error(path.as_str(), error))?;
                    }
                    next
                }
                next => next?,
            };
        }
        self.within(path, current).map(|found| found.object)
    }

    fn check_below(&self, path: &GuestPath) -> Result<(), FileError> {
        if *path != self.named && path.as_str() != "/" {
            return Ok(());
        }
        Err(FileError::new(FileErrorCode::InvalidPath, format!("{path} is the tree itself; name something in it")))
    }

    fn within(&self, path: &GuestPath, found: OpenedPath) -> Result<OpenedPath, FileError> {
        if found.real.starts_with(&self.root) {
            return Ok(found);
        }
        let message = format!("{path} leads to {}, out of {}", found.real.display(), self.root.display());
        Err(FileError::new(FileErrorCode::PathEscapes, message))
    }
}

/// Opens something found for use. Only regular files and directories are: opening anything else can block or have effects.
pub(super) fn reopen(found: &OwnedFd, path: &GuestPath, flags: OFlags) -> Result<File, FileError> {
    let failed = |error: Errno| file_error(path.as_str(), error);
    let stat = rustix::fs::fstat(found).map_err(failed)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Directory => {}
        _ => return Err(FileError::new(FileErrorCode::NotRegular, format!("{path} is not a regular file"))),
    }
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(by_descriptor(found), flags, Mode::empty()).map(File::from).map_err(failed)
}

/// The name by which the system finds an opened object again, whatever has happened to its path.
pub(super) fn by_descriptor(object: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", object.as_fd().as_raw_fd())
}

/// Whether it was made here.
fn make_directory(above: &OpenedPath, name: &str, path: &GuestPath) -> Result<bool, FileError> {
    match rustix::fs::mkdirat(&above.object, name, DIRECTORY_MODE) {
        Ok(()) => Ok(true),
        // It was missing a moment ago: another process was faster, or a dangling link has that name.
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(file_error(path.as_str(), error)),
    }
}

fn locate(path: &GuestPath, flags: OFlags) -> Result<OpenedPath, FileError> {
    locate_in(CWD, Path::new(path.as_str()), flags, path)
}

/// Opens a name and returns where it really is. Magic links of `/proc` are not followed.
fn locate_in(directory: impl AsFd, name: &Path, flags: OFlags, path: &GuestPath) -> Result<OpenedPath, FileError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
    let found = rustix::fs::openat2(directory, name, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
    let object = found.map_err(|error| file_error(path.as_str(), error))?;
    let real = std::fs::read_link(by_descriptor(&object)).map_err(|error| file_error(path.as_str(), error))?;
    Ok(OpenedPath { object, real })
}

#[cfg(test)]
pub(super) mod ground {
    use super::*;

    /// A tree that may be touched, and something around it that may not.
    pub(in super::super) struct Ground {
        pub(in super::super) place: FileTree,
        pub(in super::super) tree: PathBuf,
        around: tempfile::TempDir,
    }

    impl Ground {
        pub(in super::super) fn new() -> Self {
            Self::around(tempfile::tempdir().unwrap())
        }

        /// In memory, for trees that would take long on a disk.
        pub(in super::super) fn in_memory() -> Self {
            Self::around(tempfile::tempdir_in("/dev/shm").unwrap())
        }

        fn around(around: tempfile::TempDir) -> Self {
            let tree = around.path().join("tree");
            std::fs::create_dir(&tree).unwrap();
            let place = FileTree::new(&tree.to_str().unwrap().parse().unwrap()).unwrap();
            Self { place, tree, around }
        }

        /// A path in the tree, as a caller names it.
        pub(in super::super) fn path(&self, name: &str) -> GuestPath {
            self.tree.join(name).to_str().unwrap().parse().unwrap()
        }

        /// A path beside the tree.
        pub(in super::super) fn outside(&self, name: &str) -> PathBuf {
            self.around.path().join(name)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::ground::Ground;
    use super::*;

    #[test]
    fn links_are_followed_as_far_as_they_stay_in_the_tree() {
        let ground = Ground::new();
        fs::create_dir(ground.tree.join("real")).unwrap();
        symlink("real", ground.tree.join("inside")).unwrap();
        symlink("..", ground.tree.join("above")).unwrap();
        symlink(ground.outside(""), ground.tree.join("absolute")).unwrap();
        symlink("/proc/self/root", ground.tree.join("magic")).unwrap();
        symlink("nothing", ground.tree.join("dangling")).unwrap();
        assert!(ground.place.parent_made(&ground.path("inside/a/b")).is_ok());
        assert!(ground.tree.join("real/a").is_dir());
        for (name, code) in [
            ("above/made/x", FileErrorCode::PathEscapes),
            ("absolute/made/x", FileErrorCode::PathEscapes),
            ("magic/tmp/x", FileErrorCode::SymlinkRefused),
            ("dangling/made/x", FileErrorCode::NotFound),
        ] {
            let error = ground.place.parent_made(&ground.path(name)).err().unwrap();
            assert_eq!(error.code, code, "{name}: {error}");
        }
        assert!(!ground.outside("made").exists(), "a directory was made outside of the tree");
    }

    #[test]
    fn the_tree_itself_lies_in_nothing() {
        let ground = Ground::new();
        for path in [ground.path(""), GuestPath::root()] {
            assert_eq!(ground.place.parent(&path).err().unwrap().code, FileErrorCode::InvalidPath, "{path}");
        }
        let beside = ground.outside("x").to_str().unwrap().parse().unwrap();
        assert_eq!(ground.place.parent(&beside).err().unwrap().code, FileErrorCode::PathEscapes);
    }

    #[test]
    fn only_files_and_directories_are_opened() {
        let ground = Ground::new();
        rustix::fs::mkfifoat(CWD, ground.tree.join("pipe"), Mode::RWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(ground.tree.join("socket")).unwrap();
        for name in ["pipe", "socket"] {
            let error = ground.place.open(&ground.path(name), OFlags::RDONLY).unwrap_err();
            assert_eq!(error.code, FileErrorCode::NotRegular, "{name}");
        }
    }
}
