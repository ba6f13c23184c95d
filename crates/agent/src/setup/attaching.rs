//! Puts mounts of the host into a container that an engine made. Runs outside of it, as the host's root, and enters
//! only its mount namespace: files of the image are examined, but never executed and never followed.

use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};

use box_wire::plan::Attaching;
use box_wire::{GuestPath, User};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use rustix::thread::{Gid, ThreadNameSpaceType, Uid};

use super::{Descriptors, Failure, Step, mounts};
use crate::sys;

/// Most that is read of the list of a container's mounts.
const MOUNT_TABLE_BYTES_MAX: usize = 16 << 20;

/// Enters the container and puts every mount into its place.
pub(crate) fn attach(order: &Attaching, descriptors: Vec<OwnedFd>) -> Result<(), Failure> {
    let mut descriptors = Descriptors(descriptors.into_iter().map(Some).collect());
    let process = descriptors.take(order.process)?;
    let site =
        Site { root: descriptors.take(order.root)?, table: descriptors.take(order.mount_table)?, owner: order.owner };
    // What is made here has the mode that is written here.
    rustix::process::umask(Mode::empty());
    rustix::thread::move_into_thread_name_spaces(process.as_fd(), ThreadNameSpaceType::MOUNT).step("namespace")?;
    for placing in &order.places {
        let mount = descriptors.take(placing.mount)?;
        site.place(&mount, &placing.path).step("mount")?;
    }
    Ok(())
}

/// A container, seen from outside.
struct Site {
    /// Its root.
    root: OwnedFd,
    /// The list of its mounts.
    table: OwnedFd,
    /// To whom belongs what is made in it.
    owner: User,
}

/// The kind of a mount point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MountPoint {
    Directory,
    File,
}

impl Site {
    fn place(&self, mount: &OwnedFd, path: &GuestPath) -> Result<(), String> {
        let failed = |error: Errno| describe(path, &error);
        if path.as_str() == "/" {
            return Err(describe(path, &"the root of a container is never covered"));
        }
        let place = if mounts::is_directory(mount).map_err(failed)? { MountPoint::Directory } else { MountPoint::File };
        let target = self.open_or_make(path, place)?;
        match (place, mounts::is_directory(&target).map_err(failed)?) {
            (MountPoint::Directory, true) | (MountPoint::File, false) => {}
            (MountPoint::Directory, false) => {
                return Err(describe(path, &"it is a file, and the source is a directory"));
            }
            (MountPoint::File, true) => return Err(describe(path, &"it is a directory, and the source is a file")),
        }
        if self.is_shared(&target).map_err(failed)? {
            let reason =
                "the mount that it lies in is shared, so what is put here would appear in other places as well";
            return Err(describe(path, &reason));
        }
        mounts::attach(mount, target).map_err(failed)
    }

    /// Walks down by one name after the other, so that an error can name the one at which it stopped.
    fn open_or_make(&self, path: &GuestPath, last: MountPoint) -> Result<OwnedFd, String> {
        let mut here = self.root.try_clone().map_err(|error| describe(path, &error))?;
        let mut walked = String::new();
        let mut names = path.relative().split('/').peekable();
        while let Some(name) = names.next() {
            let kind = if names.peek().is_some() { MountPoint::Directory } else { last };
            walked = format!("{walked}/{name}");
            here = match open(&here, name) {
                Err(Errno::NOENT) => self.make(&here, name, kind).and_then(|()| open(&here, name)),
                opened => opened,
            }
            .map_err(|error| explain(path, &walked, error))?;
        }
        Ok(here)
    }

    /// Creates a mount point, with the workload's rights where they suffice: with mapped ids, files of other users do
    /// not exist in the tree.
    fn make(&self, parent: &OwnedFd, name: &str, place: MountPoint) -> rustix::io::Result<()> {
        match sys::with_files_of(self.owner, || make(parent, name, place)) {
            Err(Errno::ACCESS | Errno::PERM | Errno::OVERFLOW) => {
                make(parent, name, place)?;
                let (uid, gid) = (Uid::from_raw(self.owner.uid), Gid::from_raw(self.owner.gid));
                rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            }
            made => made,
        }
    }

    /// Whether what is mounted at this place would be mounted in other places too, the host's among them.
    fn is_shared(&self, target: &OwnedFd) -> rustix::io::Result<bool> {
        let stat = rustix::fs::statx(target, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        let table = self.read_table()?;
        let own = |line: &&str| line.split(' ').next().and_then(|id| id.parse().ok()) == Some(stat.stx_mnt_id);
        // The optional fields end at a lone dash.
        let shared = |line: &str| line.split(' ').skip(6).take_while(|field| *field != "-").any(is_peer_group);
        table.lines().find(own).map(shared).ok_or(Errno::STALE)
    }

    fn read_table(&self) -> rustix::io::Result<String> {
        rustix::fs::seek(&self.table, SeekFrom::Start(0))?;
        let mut bytes = Vec::new();
        while bytes.len() < MOUNT_TABLE_BYTES_MAX {
            bytes.reserve(4096);
            if rustix::io::read(&self.table, rustix::buffer::spare_capacity(&mut bytes))? == 0 {
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        Err(Errno::FBIG)
    }
}

fn is_peer_group(field: &str) -> bool {
    field.starts_with("shared:")
}

/// Opens one name. A link is refused, also at the end.
fn open(parent: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(parent, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), flags)
}

fn make(parent: &OwnedFd, name: &str, place: MountPoint) -> rustix::io::Result<()> {
    match place {
        MountPoint::Directory => rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)),
        MountPoint::File => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        }
    }
}

fn explain(path: &GuestPath, walked: &str, error: Errno) -> String {
    match error {
        Errno::LOOP => describe(path, &format!("{walked} is a symbolic link, and no link of an image is followed")),
        Errno::ROFS => {
            let fix = "make it in the image or in the tree around it, or choose a target in a writable place";
            describe(path, &format!("{walked} does not exist and lies where nothing can be made; {fix}"))
        }
        Errno::NOTDIR => describe(path, &format!("something on the way to {walked} is not a directory")),
        other => describe(path, &format!("{walked}: {other}")),
    }
}

fn describe(path: &GuestPath, reason: &dyn Display) -> String {
    format!("{path}: {reason}")
}
