//! The one way in which host code touches trees that strangers can change.
//!
//! A directory that was opened once, and names below it. No link is followed on the way, whoever made it and whenever: the
//! kernel refuses while it walks, so there is nothing to win by being quick.

mod remove;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use box_wire::Invalid;
use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;

use crate::{Error, Result};

/// How often a walk may be disturbed by renames before we give up.
const DISTURBANCES_MAX: usize = 128;
/// No link, no way out, no detour through `/proc`.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// A directory below which nothing leads out. Paths are relative, without `..`; the empty path is the directory itself.
#[derive(Debug)]
pub struct SafeRoot {
    directory: OwnedFd,
}

impl SafeRoot {
    /// Opens a directory that the operator named; links in *this* path are followed.
    pub fn open_path(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty());
        let directory = directory.map_err(|errno| Error::io(format!("opening {}", path.display()), errno))?;
        Ok(Self { directory })
    }

    /// Takes a directory that is open already.
    pub fn from_directory(directory: OwnedFd) -> Self {
        Self { directory }
    }

    /// The directory.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Where the directory is at this moment, for showing and for the kernel's old interfaces.
    pub fn real_path(&self) -> Result<PathBuf> {
        let link = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        std::fs::read_link(&link).map_err(|error| Error::io("asking for the path of a directory", error))
    }

    /// A directory below, as a root of its own.
    pub fn below(&self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let directory =
            self.walk(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(|errno| failed("opening", path, errno))?;
        Ok(Self { directory })
    }

    /// Opens a file for reading. A pipe in its place does not make us wait.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let opened = self.walk(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY);
        opened.map(File::from).map_err(|errno| failed("opening", path, errno))
    }

    /// What is at a path, links not followed; nothing when nothing is there.
    pub fn look(&self, path: impl AsRef<Path>) -> Result<Option<Stat>> {
        let path = path.as_ref();
        let looked = self.parent_of(path, |parent, name| rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW));
        match looked {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("looking at", path, errno)),
        }
    }

    /// Names in a directory, unsorted.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<std::ffi::OsString>> {
        use std::os::unix::ffi::OsStrExt;
        let path = path.as_ref();
        let below = self.below(path)?;
        let entries = Dir::read_from(&below.directory).map_err(|errno| failed("listing", path, errno))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|errno| failed("listing", path, errno))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// Makes a file that was not there and opens it for reading and writing.
    pub fn create_new_file(&self, path: impl AsRef<Path>, mode: u32) -> Result<File> {
        let path = path.as_ref();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let outcome =
            self.parent_of(path, |parent, name| rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode)));
        outcome.map(File::from).map_err(|errno| failed("making", path, errno))
    }

    /// Makes a directory that was not there.
    pub fn make_directory(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        let outcome = self.parent_of(path, |parent, name| rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)));
        outcome.map_err(|errno| failed("making", path, errno))
    }

    /// Makes a directory and its parents where they are missing.
    pub fn make_directory_all(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        check(path).map_err(|_| invalid(path))?;
        let mut current = self
            .walk(Path::new(""), OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|errno| failed("opening", path, errno))?;
        for name in path {
            match rustix::fs::mkdirat(&current, name, Mode::from_raw_mode(mode)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed("making", path, errno)),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            current = rustix::fs::openat(&current, name, flags, Mode::empty())
                .map_err(|errno| failed("making", path, errno))?;
        }
        Ok(())
    }

    /// Makes a symbolic link. What it says is data; nobody here follows it.
    pub fn symlink(&self, target: &OsStr, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let made = self.parent_of(path, |parent, name| rustix::fs::symlinkat(target, parent, name));
        made.map_err(|errno| failed("linking", path, errno))
    }

    /// Gives an existing file a second name. A symbolic link gets the second name itself.
    pub fn hard_link(&self, original: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let (original, path) = (original.as_ref(), path.as_ref());
        let made = self.parent_of(original, |from, old| {
            self.parent_of(path, |to, new| rustix::fs::linkat(&from, old, to, new, AtFlags::empty()))
        });
        made.map_err(|errno| failed("linking", path, errno))
    }

    /// Renames, replacing what is at `to` as the system does.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from.as_ref(), to.as_ref(), RenameFlags::empty())
    }

    /// Renames to a name that nothing has.
    pub fn rename_new(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from.as_ref(), to.as_ref(), RenameFlags::NOREPLACE)
    }

    fn rename_with(&self, from: &Path, to: &Path, flags: RenameFlags) -> Result<()> {
        check(to).map_err(|_| invalid(to))?;
        let renamed = self.parent_of(from, |old_parent, old| {
            self.parent_of(to, |new_parent, new| rustix::fs::renameat_with(&old_parent, old, new_parent, new, flags))
        });
        renamed.map_err(|errno| failed("renaming", from, errno))
    }

    /// Sets the owner of whatever is at a path, links included.
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: u32, gid: u32) -> Result<()> {
        let path = path.as_ref();
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        let set =
            self.parent_of(path, |parent, name| rustix::fs::chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW));
        set.map_err(|errno| failed("giving away", path, errno))
    }

    /// Sets the permission bits of a directory.
    pub fn set_directory_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        let set = self
            .walk(path, OFlags::RDONLY | OFlags::DIRECTORY)
            .and_then(|directory| rustix::fs::fchmod(directory, Mode::from_raw_mode(mode)));
        set.map_err(|errno| failed("setting the mode of", path, errno))
    }

    /// Removes a file or link. What is not there is fine; a directory is not removed.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match self.parent_of(path, |parent, name| rustix::fs::unlinkat(parent, name, AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("removing", path, errno)),
        }
    }

    /// Removes whatever is at a path with everything below it. Mounts in it are not entered but end it with an error. What
    /// is not there is fine.
    pub fn remove_tree(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match self.parent_of(path, |parent, name| remove::remove_tree(&parent, name)) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("removing", path, errno)),
        }
    }

    /// Reads a whole file; one of more than `bytes_max` is refused.
    pub fn read_to_end(&self, path: impl AsRef<Path>, bytes_max: u64) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        let mut file = self.open(path)?.take(bytes_max.saturating_add(1));
        file.read_to_end(&mut bytes).map_err(|error| Error::io(format!("reading {}", path.display()), error))?;
        if bytes.len() as u64 > bytes_max {
            return Err(Invalid::new("file", path, format!("a file of at most {bytes_max} bytes")).into());
        }
        Ok(bytes)
    }

    /// Writes a file so that readers, now and after a loss of power, see all of it or what was there before.
    pub fn write_atomic(&self, path: impl AsRef<Path>, bytes: &[u8], mode: u32) -> Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let path = path.as_ref();
        let name = path.file_name().ok_or_else(|| invalid(path))?.to_string_lossy();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let partial = path.with_file_name(format!(".{name}.{}.{number}.partial", std::process::id()));
        // A name of ours that exists is from a process that had our id before and died.
        self.remove_file(&partial)?;
        let written = self.write_and_rename(&partial, path, bytes, mode);
        if written.is_err() {
            let _ = self.remove_file(&partial);
        }
        written
    }

    fn write_and_rename(&self, partial: &Path, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
        let told = |error| Error::io(format!("writing {}", path.display()), error);
        let mut file = self.create_new_file(partial, mode)?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(told)?;
        self.rename(partial, path)?;
        let parent = self.below(path.parent().unwrap_or(Path::new("")))?;
        File::from(parent.directory).sync_all().map_err(told)
    }

    /// Opens the directory that holds a path and does something with the last name in it.
    fn parent_of<T>(
        &self,
        path: &Path,
        work: impl FnOnce(OwnedFd, &OsStr) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = self.walk(path.parent().unwrap_or(Path::new("")), OFlags::PATH | OFlags::DIRECTORY)?;
        work(parent, name)
    }

    fn walk(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        check(path)?;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        for _ in 0..DISTURBANCES_MAX {
            match rustix::fs::openat2(&self.directory, path, flags | OFlags::CLOEXEC, Mode::empty(), RESOLVE) {
                // The kernel could not rule out that a rename led the walk outside.
                Err(Errno::AGAIN | Errno::INTR) => {}
                outcome => return outcome,
            }
        }
        Err(Errno::AGAIN)
    }
}

fn check(path: &Path) -> rustix::io::Result<()> {
    let plain = path.components().all(|component| matches!(component, Component::Normal(_)));
    if plain { Ok(()) } else { Err(Errno::INVAL) }
}

fn invalid(path: &Path) -> Error {
    Invalid::new("path", path, "a relative path without . and ..").into()
}

fn failed(doing: &str, path: &Path, errno: Errno) -> Error {
    match errno {
        Errno::INVAL if check(path).is_err() || path.file_name().is_none() => invalid(path),
        Errno::LOOP => {
            Error::io(format!("{doing} {}: a link is in the way and is not followed", path.display()), errno)
        }
        errno => Error::io(format!("{doing} {}", path.display()), errno),
    }
}
