//! The tree of a tar file that the operator named. It is unpacked once, under the hash of the file's bytes.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use box_core::{Error, Result};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use tokio_util::sync::CancellationToken;

use crate::ImageLimits;
use crate::digest::{DigestingReader, is_digits};
use crate::failure::Failure;
use crate::layer::Layer;
use crate::store::{Store, Turn};
use crate::tree::check_landmarks;
use crate::unpack::{Marks, Unpacker};

/// Longest note on which hash a file had: the hash and the path.
const KNOWN_BYTES_MAX: u64 = 8 << 10;
/// The directory of an incomplete tree.
const PARTIAL: &str = "tree";

/// The name of the tree of a tar file, unpacking it if need be.
pub(crate) fn tree_of(store: &Arc<Store>, path: &Path, limits: &ImageLimits) -> Result<String> {
    let told = |failure: Failure| failure.of(path.display());
    let file = open(path).map_err(told)?;
    let before = identity(&file).map_err(told)?;
    if let Some(key) = known(store, &before)? {
        return Ok(key);
    }
    let _busy = store.busy_now()?;
    let _turn = store.turn_now(Turn::Tree, &before)?;
    // The previous holder of the lock may have made the same tree.
    if let Some(key) = known(store, &before)? {
        return Ok(key);
    }
    let key = unpack(store, &file, limits).map_err(told)?;
    if identity(&file).map_err(told)? != before {
        return Err(told("it was changed while it was read; try again when it is complete".into()));
    }
    let note = format!("{key}\n{}", path.display());
    store.root.write_atomic(Path::new("known").join(before), note.as_bytes(), 0o600)?;
    Ok(key)
}

/// Unpacks the archive, stores the tree under the hash of what was read, and returns that hash.
fn unpack(store: &Arc<Store>, file: &File, limits: &ImageLimits) -> Result<String, Failure> {
    let work = store.work()?;
    store.root.make_directory(work.join(PARTIAL), 0o755)?;
    let tree = store.root.below(work.join(PARTIAL))?;
    let mut unpacker = Unpacker::new(&tree, Marks::Names, limits.entries_max, limits.unpacked_bytes_max)?;
    let mut digesting = DigestingReader::new(file);
    let mut contents = Layer::open(&mut digesting, limits.decoded_bytes_max(), CancellationToken::new())
        .map_err(|error| error.to_string())?;
    unpacker.unpack(&mut contents)?;
    let digest = digesting.finish().map_err(|error| Error::io("reading an image", error))?;
    check_landmarks(tree.directory())?;
    // The name says that the tree is whole, so the tree has to be on disk before the name.
    rustix::fs::syncfs(tree.directory()).map_err(|errno| Error::io("storing an unpacked image", errno))?;
    work.keep(PARTIAL, &Path::new("trees").join(digest.digits()))?;
    Ok(digest.digits().to_owned())
}

fn known(store: &Store, identity: &str) -> Result<Option<String>> {
    let note = Path::new("known").join(identity);
    if !store.has(&note)? {
        return Ok(None);
    }
    let (key, _) = read_note(store, &note)?;
    // A tree that the operator removed from the cache is unpacked again.
    Ok(if is_digits(&key) && store.has(Path::new("trees").join(&key))? { Some(key) } else { None })
}

/// The hash and the path of a file that was seen.
fn read_note(store: &Store, note: &Path) -> Result<(String, String)> {
    let text = String::from_utf8_lossy(&store.root.read_to_end(note, KNOWN_BYTES_MAX)?).into_owned();
    let (key, path) = text.split_once('\n').unwrap_or((&text, ""));
    Ok((key.to_owned(), path.to_owned()))
}

/// The trees of tar files that are as they were when they were unpacked. The notes on others are removed.
pub(crate) fn trees_in_place(store: &Store) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    for name in store.root.list("known")? {
        let note = Path::new("known").join(&name);
        let (key, path) = read_note(store, &note)?;
        let found = open(Path::new(&path)).and_then(|file| identity(&file)).ok();
        if found.as_deref() == name.to_str() {
            keys.push(key);
        } else {
            store.root.remove_file(&note)?;
        }
    }
    Ok(keys)
}

fn open(path: &Path) -> Result<File, Failure> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| errno.to_string())?);
    if FileType::from_raw_mode(stat(&file)?.st_mode) != FileType::RegularFile {
        return Err("it is not a file; name a tar file or a directory".into());
    }
    Ok(file)
}

/// The identity of a file, without reading it.
fn identity(file: &File) -> Result<String, Failure> {
    let found = stat(file)?;
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

fn stat(file: &File) -> Result<Stat, Failure> {
    Ok(rustix::fs::fstat(file).map_err(|errno| errno.to_string())?)
}
