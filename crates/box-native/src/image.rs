//! Root file systems: where the tree below a box comes from.
//!
//! A tar file is unpacked once into a cache, under the hash of its contents. Layout of the cache:
//!
//! ```text
//! lock          held while unpacking, so that `unpacking` is either ours or left by somebody who died
//! known/<file>  which hash a tar file had, by device, inode, size and times: a second look costs no reading
//! trees/<hash>  a whole tree
//! unpacking     a tree on its way
//! ```

mod archive;
mod unpack;

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use box_core::{Error, Image, Result, SafeRoot};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};

/// Length of a hash in text.
const HASH_CHARS: usize = 64;
/// At least one of these is at the top of every root file system that can run something.
const LANDMARKS: [&str; 3] = ["bin", "usr", "sbin"];
/// Where a tree is while it is not whole.
const UNPACKING: &str = "unpacking";

/// A root file system that can be put below a box.
#[derive(Debug)]
pub struct RootTree {
    /// The tree, opened as a path.
    pub directory: OwnedFd,
    /// Where it really is.
    pub path: PathBuf,
    /// Whether its top belongs to the host's root.
    pub owned_by_root: bool,
}

/// Finds the tree of an image, unpacking it into `cache` if need be; nothing for the host's own system.
pub fn resolve(image: &Image, cache: &SafeRoot) -> Result<Option<RootTree>> {
    match image {
        Image::Host => Ok(None),
        Image::Directory(path) => open_tree(path, path).map(Some),
        Image::Tar(path) => resolve_tar(path, cache).map(Some),
        Image::Named(name) => Err(bad(Path::new(name), "images by name are not kept here")),
    }
}

fn resolve_tar(path: &Path, cache: &SafeRoot) -> Result<RootTree> {
    let file = open_tar(path)?;
    let before = identity(&file, path)?;
    if let Some(tree) = find_known(&before, path, cache)? {
        return Ok(tree);
    }
    for directory in ["known", "trees"] {
        cache.make_directory_all(directory, 0o700)?;
    }
    let _lock = lock(cache)?;
    cache.remove_tree(UNPACKING)?;
    // Whoever held the lock before us may have been after the same image.
    if let Some(tree) = find_known(&before, path, cache)? {
        return Ok(tree);
    }
    let hash = match unpack_into_cache(&file, path, cache) {
        Ok(hash) => hash,
        Err(error) => {
            let _ = cache.remove_tree(UNPACKING);
            return Err(error);
        }
    };
    if identity(&file, path)? != before {
        return Err(bad(path, "it was changed while it was read; try again when it is complete"));
    }
    cache.write_atomic(Path::new("known").join(before), hash.as_bytes(), 0o600)?;
    open_cached(&hash, path, cache)
}

/// Unpacks and puts the whole tree under the hash of what was read; returns the hash.
fn unpack_into_cache(file: &File, path: &Path, cache: &SafeRoot) -> Result<String> {
    cache.make_directory(UNPACKING, 0o755)?;
    let tree = cache.below(UNPACKING)?;
    let hash = unpack::unpack(file, &tree).map_err(|error| match error {
        unpack::Failure::Archive(reason) => bad(path, reason),
        unpack::Failure::Host(error) => error,
    })?;
    check_landmarks(tree.directory(), path)?;
    // The name says that the tree is whole, so the tree has to be on disk before the name.
    rustix::fs::syncfs(tree.directory()).map_err(|errno| Error::io("storing an unpacked image", errno))?;
    let place = Path::new("trees").join(&hash);
    if cache.look(&place)?.is_some() {
        cache.remove_tree(UNPACKING)?;
    } else {
        cache.rename_new(UNPACKING, &place)?;
    }
    Ok(hash)
}

fn find_known(identity: &str, path: &Path, cache: &SafeRoot) -> Result<Option<RootTree>> {
    let known = Path::new("known").join(identity);
    if cache.look("known")?.is_none() || cache.look(&known)?.is_none() {
        return Ok(None);
    }
    let hash = String::from_utf8_lossy(&cache.read_to_end(&known, HASH_CHARS as u64)?).into_owned();
    let plain = hash.len() == HASH_CHARS && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    // A tree that the operator removed from the cache is unpacked again.
    if !plain || cache.look(Path::new("trees").join(&hash))?.is_none() {
        return Ok(None);
    }
    open_cached(&hash, path, cache).map(Some)
}

fn open_cached(hash: &str, image: &Path, cache: &SafeRoot) -> Result<RootTree> {
    let tree = cache.below(Path::new("trees").join(hash))?;
    open_tree(&tree.real_path()?, image)
}

fn open_tree(path: &Path, image: &Path) -> Result<RootTree> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| bad(image, errno.to_string()))?;
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let real = std::fs::read_link(link).map_err(|error| Error::io("asking for the path of an image", error))?;
    if real == Path::new("/") {
        return Err(bad(image, "it is the host's own root; leave the image out to use the host's programs read-only"));
    }
    let stat = stat(&directory, image)?;
    check_landmarks(directory.as_fd(), image)?;
    Ok(RootTree { directory, path: real, owned_by_root: stat.st_uid == 0 })
}

fn check_landmarks(tree: BorrowedFd<'_>, image: &Path) -> Result<()> {
    let there = |name: &&str| rustix::fs::statat(tree, *name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    if LANDMARKS.iter().any(there) {
        return Ok(());
    }
    let reason =
        "it is not a root file system: there is no bin, usr or sbin at its top; perhaps they are one directory below";
    Err(bad(image, reason))
}

fn open_tar(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| bad(path, errno.to_string()))?;
    if FileType::from_raw_mode(stat(&file, path)?.st_mode) != FileType::RegularFile {
        return Err(bad(path, "it is not a file; name a tar file or a directory"));
    }
    Ok(file.into())
}

/// What a file is recognised by without reading it.
fn identity(file: &File, path: &Path) -> Result<String> {
    let found = stat(file, path)?;
    Ok(format!(
        "{:x}-{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime,
        found.st_mtime_nsec,
        found.st_ctime,
        found.st_ctime_nsec
    ))
}

fn lock(cache: &SafeRoot) -> Result<File> {
    if cache.look("lock")?.is_none() {
        // Another process may be faster; then its file is as good.
        let _ = cache.create_new_file("lock", 0o600);
    }
    let lock = cache.open("lock")?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)
        .map_err(|errno| Error::io("waiting for another image to be unpacked", errno))?;
    Ok(lock)
}

fn stat(file: impl AsFd, path: &Path) -> Result<Stat> {
    rustix::fs::fstat(file).map_err(|errno| bad(path, errno.to_string()))
}

fn bad(image: &Path, reason: impl Into<String>) -> Error {
    Error::BadImage { image: image.display().to_string(), reason: reason.into() }
}
