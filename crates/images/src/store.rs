//! The layout of the store on disk, and its locks.
//!
//! ```text
//! lock               held for moments: shared while a tree is found and held, alone while something comes or goes
//! busy               held shared while an image is made, so that nothing is taken for unused that is only not yet named
//! turn-<kind>-<n>    held while one thing is made, so that others who want the same wait and find it
//! known/<file>       which hash a tar file had, by device, inode, size and times: a second look costs no reading
//! blobs/<digest>     layers as they came, verified; images share them
//! trees/<key>        whole trees: by the hash of a tar file, or by the chain of an image's layers
//! manifests/<digest> what is known of an image
//! references.json    which name means which manifest
//! holds/<box>        which tree a box stands on
//! work/<random>/     what is on its way; its maker holds a lock on the directory
//! ```
//!
//! Everything is written elsewhere and renamed, in this order: blob, tree, manifest, name. So a process that is killed
//! leaves only data that nothing refers to. Each image's tree is unpacked whole rather than linked together from
//! layers: a box then needs one mount of one directory, no two images share a file that a mistake could change, and
//! removing a tree needs no reference counts. The price is disk; layers are downloaded once all the same.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use box_core::{Error, Result, SafeRoot, random};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::digest::Digest;
use crate::limits::LOCK_PAUSE;

/// Directories of the store.
const DIRECTORIES: [&str; 6] = ["known", "blobs", "trees", "manifests", "holds", "work"];
/// Locks of one kind. Two things may share one; then one waits for the other without need.
const TURNS: u8 = 16;

/// The directory in which everything is.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) root: SafeRoot,
}

/// How a lock is held.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LockMode {
    /// With others who do the same.
    Shared,
    /// Alone.
    Alone,
}

/// Work that one process does at a time. The holder of one kind may wait for a later one, never for an earlier one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Turn {
    Name,
    Blob,
    Tree,
}

impl Store {
    /// Opens the store, and removes what others left who died while they made something.
    pub(crate) fn open(path: &Path) -> Result<Arc<Self>> {
        let store = Arc::new(Self { root: SafeRoot::open_path(path)? });
        for directory in DIRECTORIES {
            store.root.make_directory_all(directory, 0o700)?;
        }
        store.sweep()?;
        Ok(store)
    }

    /// Removes work directories whose makers are gone.
    fn sweep(&self) -> Result<()> {
        let _lock = self.lock(LockMode::Alone)?;
        // What versions before this one left.
        self.root.remove_tree("unpacking")?;
        for name in self.root.list("work")? {
            let path = Path::new("work").join(name);
            let Ok(directory) = self.root.below(&path) else { continue };
            if rustix::fs::flock(directory.directory(), FlockOperation::NonBlockingLockExclusive).is_ok() {
                self.root.remove_tree(&path)?;
            }
        }
        Ok(())
    }

    /// Takes the lock under which things come and go.
    pub(crate) fn lock(&self, held: LockMode) -> Result<File> {
        self.wait_for("lock", held)
    }

    /// Says that an image is being made.
    pub(crate) fn busy_now(&self) -> Result<File> {
        self.wait_for("busy", LockMode::Shared)
    }

    /// The same, where others must not be kept waiting.
    pub(crate) async fn busy(&self) -> Result<File> {
        loop {
            if let Some(file) = self.try_held("busy", FlockOperation::NonBlockingLockShared)? {
                return Ok(file);
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
    }

    /// The lock under which nothing is being made; nothing while something is.
    pub(crate) fn try_quiet(&self) -> Result<Option<File>> {
        self.try_alone("busy")
    }

    /// Waits for the exclusive right to make one thing.
    pub(crate) async fn turn(&self, turn: Turn, key: &str) -> Result<File> {
        let name = turn_name(turn, key);
        loop {
            if let Some(file) = self.try_alone(&name)? {
                return Ok(file);
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
    }

    /// The same, on a blocking thread.
    pub(crate) fn turn_now(&self, turn: Turn, key: &str) -> Result<File> {
        self.wait_for(&turn_name(turn, key), LockMode::Alone)
    }

    fn wait_for(&self, name: &str, held: LockMode) -> Result<File> {
        let file = self.lock_file(name)?;
        let operation = match held {
            LockMode::Shared => FlockOperation::LockShared,
            LockMode::Alone => FlockOperation::LockExclusive,
        };
        loop {
            match rustix::fs::flock(&file, operation) {
                Ok(()) => return Ok(file),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::io("waiting for another user of the images", errno)),
            }
        }
    }

    fn try_alone(&self, name: &str) -> Result<Option<File>> {
        self.try_held(name, FlockOperation::NonBlockingLockExclusive)
    }

    fn try_held(&self, name: &str, operation: FlockOperation) -> Result<Option<File>> {
        let file = self.lock_file(name)?;
        match rustix::fs::flock(&file, operation) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
            Err(errno) => Err(Error::io("locking the images", errno)),
        }
    }

    fn lock_file(&self, name: &str) -> Result<File> {
        if self.root.look(name)?.is_none() {
            // Another process may be faster; then its file is as good.
            let _ = self.root.create_new_file(name, 0o600);
        }
        self.root.open(name)
    }

    /// The path of a blob.
    pub(crate) fn blob(digest: &Digest) -> PathBuf {
        Path::new("blobs").join(digest.digits())
    }

    /// Whether something is there.
    pub(crate) fn has(&self, path: impl AsRef<Path>) -> Result<bool> {
        Ok(self.root.look(path)?.is_some())
    }

    /// A place for something on its way, which goes when it is dropped.
    pub(crate) fn work(self: &Arc<Self>) -> Result<Work> {
        let _lock = self.lock(LockMode::Alone)?;
        let random = random::bytes().map_err(|error| Error::io("choosing a name", error))?;
        let path = Path::new("work").join(format!("{:016x}", u64::from_ne_bytes(random)));
        self.root.make_directory(&path, 0o700)?;
        let directory = self.root.below(&path)?;
        let lock = rustix::io::fcntl_dupfd_cloexec(directory.directory(), 0)
            .and_then(|lock| rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map(|()| lock))
            .map_err(|errno| Error::io("locking a place for an image", errno))?;
        Ok(Work { store: Arc::clone(self), path, _lock: lock })
    }
}

fn turn_name(turn: Turn, key: &str) -> String {
    // Every process has to come to the same number, so the hash must not be a random one.
    let number = key.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % TURNS;
    let kind = match turn {
        Turn::Name => "name",
        Turn::Blob => "blob",
        Turn::Tree => "tree",
    };
    format!("turn-{kind}-{number}")
}

/// A place for something on its way, which goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Work {
    store: Arc<Store>,
    path: PathBuf,
    _lock: OwnedFd,
}

impl Work {
    /// A path in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Puts what is whole where it belongs. Who finds it there already is content.
    pub(crate) fn keep(&self, name: &str, place: &Path) -> Result<()> {
        let root = &self.store.root;
        let _lock = self.store.lock(LockMode::Alone)?;
        if root.look(place)?.is_some() {
            return Ok(());
        }
        root.rename_new(self.join(name), place)?;
        let parent = root.below(place.parent().unwrap_or(Path::new("")))?;
        rustix::fs::fsync(parent.directory()).map_err(|errno| Error::io(format!("keeping {}", place.display()), errno))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Err(error) = self.store.root.remove_tree(&self.path) {
            tracing::warn!(%error, "what is left of an image could not be removed; the next start will try again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_goes_with_its_maker_and_what_the_dead_left_goes_too() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let work = store.work().unwrap();
        std::fs::create_dir_all(directory.path().join("work/left/deep")).unwrap();
        std::fs::create_dir_all(directory.path().join("unpacking/bin")).unwrap();
        Store::open(directory.path()).unwrap();
        let left = || store.root.list("work").unwrap();
        assert_eq!(left(), [work.path.file_name().unwrap()], "that of the living stays");
        assert!(!directory.path().join("unpacking").exists());
        drop(work);
        assert!(left().is_empty());
    }

    #[tokio::test]
    async fn a_turn_is_waited_for_and_its_neighbours_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let first = store.turn(Turn::Blob, "a").await.unwrap();
        let _other = store.turn(Turn::Tree, "a").await.unwrap();
        let _neighbour = store.turn(Turn::Blob, "b").await.unwrap();
        let (second, ()) = tokio::join!(store.turn(Turn::Blob, "a"), async { drop(first) });
        second.unwrap();
    }
}
