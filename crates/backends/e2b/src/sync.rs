//! Trees of the host in a box that shares no file with us: carried in before a command, and what it changed carried out after it.
//!
//! The last synchronized state of both sides is recorded. So only changes are carried, in either direction; a file
//! removed on one side is removed on the other; and a file that the box left alone is never overwritten on the host.

mod archive;
mod boxed;
mod host;
mod known;
mod take;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use box_core::{Error, Grant, MountMode, MountSpec, Result, SafeRoot};
use box_host::blocking;
use box_wire::GuestPath;
use rustix::fs::{AtFlags, Mode, OFlags};
use tokio::sync::Mutex;

use crate::limits::MOUNT_BYTES_MAX;
use crate::parcel::Parcel;
use boxed::Agent;
use host::Tree;
use known::Known;

pub(crate) use boxed::Dial;

/// What a box sees of the host.
#[derive(Debug)]
pub(crate) struct Sync {
    mounts: Vec<Arc<Mount>>,
    /// One carries at a time: two would not know what the other has changed.
    turn: Mutex<Vec<Known>>,
    /// Where files are that are on their way.
    staging: Arc<SafeRoot>,
    /// Whether the last synchronized state is unknown, because the box is older than this process.
    is_adopted: AtomicBool,
}

/// What is known of a box's past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// There is none: it was made just now, and nothing was carried.
    None,
    /// Files may have been carried by an earlier process.
    Unknown,
}

/// One directory of the host in the box.
#[derive(Debug)]
struct Mount {
    tree: Tree,
    target: GuestPath,
    mode: MountMode,
    /// Places below that are mounts of their own, from the target.
    inner: Vec<String>,
}

/// One file of the host that the box may read.
#[derive(Debug)]
pub(crate) struct SingleFile {
    /// Where it goes.
    pub(crate) target: GuestPath,
    /// What is in it.
    pub(crate) content: Parcel,
}

/// Everything that is mounted, sorted by how it is carried.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Directories, parents first.
    directories: Vec<(MountSpec, Grant)>,
    /// Files, which are carried once.
    pub(crate) files: Vec<SingleFile>,
}

impl Sources {
    /// Sorts mounts that were granted.
    pub(crate) fn of(granted: Vec<(MountSpec, Grant)>) -> Result<Self> {
        let (mut directories, singles): (Vec<_>, Vec<_>) =
            granted.into_iter().partition(|(_, grant)| grant.is_directory);
        directories.sort_by(|(one, _), (other, _)| one.target.cmp(&other.target));
        let files = singles.iter().map(|(mount, grant)| single(mount, grant)).collect::<Result<_>>()?;
        Ok(Self { directories, files })
    }

    /// Where directories go.
    pub(crate) fn targets(&self) -> Vec<GuestPath> {
        self.directories.iter().map(|(mount, _)| mount.target.clone()).collect()
    }
}

/// A single mounted file. It belongs to root in the box, so commands cannot change it.
fn single(mount: &MountSpec, grant: &Grant) -> Result<SingleFile> {
    if mount.mode == MountMode::Rw {
        return Err(Error::MountDenied {
            path: mount.source.display().to_string(),
            reason: "a single file can only be mounted read-only on E2B; mount the directory that it is in".to_owned(),
        });
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&grant.object));
    let opened = rustix::fs::open(link, flags, Mode::empty());
    let file = std::fs::File::from(opened.map_err(|error| Error::io(host::reading(&grant.path), error))?);
    let mut bytes = Vec::new();
    let read = std::io::Read::read_to_end(&mut std::io::Read::take(file, MOUNT_BYTES_MAX + 1), &mut bytes);
    read.map_err(|error| Error::io(host::reading(&grant.path), error))?;
    if bytes.len() as u64 > MOUNT_BYTES_MAX {
        return Err(host::too_large(&grant.path));
    }
    Ok(SingleFile { target: mount.target.clone(), content: Parcel::new(bytes.into()) })
}

impl Sync {
    /// What a box with these mounts needs; nothing where it has none that has to be carried again.
    pub(crate) fn new(sources: Sources, staging: Arc<SafeRoot>, past: Past) -> Result<Option<Self>> {
        let targets = sources.targets();
        let mut mounts = Vec::new();
        for (spec, grant) in sources.directories {
            let below = |other: &GuestPath| {
                Some(other.as_str().strip_prefix(spec.target.as_str())?.strip_prefix('/')?.to_owned())
            };
            let inner = targets.iter().filter_map(below).collect();
            mounts.push(Arc::new(Mount { tree: Tree::of(grant)?, target: spec.target, mode: spec.mode, inner }));
        }
        let known = mounts.iter().map(|_| Known::default()).collect();
        let is_adopted = AtomicBool::new(past == Past::Unknown);
        Ok((!mounts.is_empty()).then_some(Self { mounts, turn: Mutex::new(known), staging, is_adopted }))
    }

    /// Carries what has changed on the host into the box.
    pub(crate) async fn carry_in(&self, dial: &dyn Dial) -> Result<()> {
        let mut all = self.turn.lock().await;
        self.recall(dial, &mut all).await?;
        for (mount, known) in self.mounts.iter().zip(all.iter_mut()) {
            let (tree, before, staging) = (Arc::clone(mount), known.clone(), Arc::clone(&self.staging));
            let change = blocking(move || archive::changes(&tree.tree, &tree.inner, &before, &staging)).await?;
            let agent = Agent { dial, root: &mount.target };
            for path in &change.removed {
                agent.remove(path).await?;
                known.forget(path);
            }
            if let Some(archive) = change.archive {
                agent.unpack(archive).await?;
            }
            known.learn(change.carried);
        }
        Ok(())
    }

    /// Carries what has changed in the box out to the host.
    pub(crate) async fn carry_out(&self, dial: &dyn Dial) -> Result<()> {
        let mut all = self.turn.lock().await;
        self.recall(dial, &mut all).await?;
        for (mount, known) in self.mounts.iter().zip(all.iter_mut()) {
            if mount.mode == MountMode::Ro {
                continue;
            }
            let agent = Agent { dial, root: &mount.target };
            let Some(listed) = agent.list(&mount.inner).await? else {
                // This means that the mount point is gone, not that all files were removed. The next command gets them
                // again.
                tracing::warn!(mount = %mount.target, "a box removed its own mount point");
                *known = Known::default();
                continue;
            };
            let news = known.compare(listed);
            if news.is_empty() {
                continue;
            }
            let staging = Arc::clone(&self.staging);
            let archive = if news.has_content() { Some(agent.pack(staging).await?) } else { None };
            let (tree, before) = (Arc::clone(mount), known.clone());
            *known = blocking(move || take::apply(&tree.tree, before, &news, archive)).await?;
        }
        Ok(())
    }

    /// Compares both sides if the last synchronized state is unknown.
    async fn recall(&self, dial: &dyn Dial, all: &mut [Known]) -> Result<()> {
        if !self.is_adopted.load(Ordering::Relaxed) {
            return Ok(());
        }
        for (mount, known) in self.mounts.iter().zip(all) {
            let tree = Arc::clone(mount);
            let host = blocking(move || tree.tree.scan(&tree.inner)).await?;
            let listed = Agent { dial, root: &mount.target }.list(&mount.inner).await?;
            *known = Known::guess(host, &listed.unwrap_or_default());
        }
        self.is_adopted.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// Whether an open directory is the object that was decided on.
fn is_same_object(directory: &SafeRoot, device: u64, inode: u64) -> bool {
    let found = rustix::fs::statat(directory.directory(), "", AtFlags::EMPTY_PATH);
    found.is_ok_and(|found| (found.st_dev, found.st_ino) == (device, inode))
}

#[cfg(test)]
mod tests;
