//! Trees of the host that a box gets to see: detached mounts in which the workload owns what the tree's owner owns, and nobody
//! else owns anything.
//!
//! A mount is made of the object on which [`box_core::MountPolicy`] decided, never of a path, and it stands nowhere until it is
//! handed over: to the agent of a box in its plan, or into a container that an engine made, by [`attach`].

mod attach;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use box_core::{Error, Grant, MountMode, Result};
use rustix::fs::{Mode, OFlags};
use rustix::mount::OpenTreeFlags;
use rustix::thread::{Gid, Uid};

use crate::sys;

pub use attach::{Attachment, attach};

/// Who owns files that boxes make in a workspace that belongs to the host's root, and who boxes are that have no ids of their own.
/// Above every id that is given to a box, and not negative as a 32-bit number.
pub const WORKSPACE_OWNER: u32 = 0x7FFF_0000;

/// Who owns, in a tree of the service's own, what root of a box makes there: nobody else either.
pub const ROOTS_OWNER: u32 = WORKSPACE_OWNER + 1;

/// Who a box's users are in a mount, by the ids under which the host knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dwellers {
    /// Who is the owner of the tree: the workload, as user and group.
    pub workload: (u32, u32),
    /// Root of the box, where it may own something there too: only in trees of the service's own, where that is nobody of the host.
    pub root: Option<(u32, u32)>,
}

/// A detached mount of a granted tree. The workload is the owner of the tree, root of the box is [`ROOTS_OWNER`] where it is to be
/// anybody, and nobody else is.
pub fn of_grant(grant: &Grant, mode: MountMode, dwellers: Dwellers) -> Result<OwnedFd> {
    let mut owner = (grant.uid, grant.gid);
    if owner.0 == 0 {
        // What a box writes must never belong to the host's root, so the tree itself is handed to an owner that is nobody.
        owner.0 = WORKSPACE_OWNER;
        if mode == MountMode::Rw {
            hand_over(grant)?;
        }
    }
    if owner.1 == 0 {
        owner.1 = WORKSPACE_OWNER;
    }
    let mount =
        clone_mount(&grant.object).map_err(|error| Error::io(format!("taking {}", grant.path.display()), error))?;
    let Dwellers { workload, root } = dwellers;
    // Where the workload is root, one id cannot be two.
    let root = root.filter(|root| root.0 != workload.0 && root.1 != workload.1);
    let users: Vec<_> = [(owner.0, workload.0)].into_iter().chain(root.map(|(user, _)| (ROOTS_OWNER, user))).collect();
    let groups: Vec<_> =
        [(owner.1, workload.1)].into_iter().chain(root.map(|(_, group)| (ROOTS_OWNER, group))).collect();
    map_ids(&mount, &users, &groups).map_err(|error| unmappable(&grant.path, &error))?;
    Ok(mount)
}

/// A detached copy of what is mounted at an object, without what is mounted below it now or later.
pub fn clone_mount(object: &OwnedFd) -> std::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let mount = rustix::mount::open_tree(object, "", flags)?;
    sys::make_mount_private(&mount)?;
    Ok(mount)
}

/// Gives a tree of the host's root to nobody, so that a box can write into it.
fn hand_over(grant: &Grant) -> Result<()> {
    let link = format!("/proc/self/fd/{}", grant.object.as_raw_fd());
    let gid = (grant.gid == 0).then(|| Gid::from_raw(WORKSPACE_OWNER));
    rustix::fs::chown(link, Some(Uid::from_raw(WORKSPACE_OWNER)), gid)
        .map_err(|error| Error::io(format!("giving {} to the boxes", grant.path.display()), error))
}

/// Shows a mount's files with other users and groups: each pair is the id on disk and the id of the host that stands for it.
fn map_ids(mount: &OwnedFd, users: &[(u32, u32)], groups: &[(u32, u32)]) -> std::io::Result<()> {
    let holder = sys::NamespaceHolder::start()?;
    let line = |(disk, shown): &(u32, u32)| format!("{disk} {shown} 1");
    let lines = |pairs: &[(u32, u32)]| pairs.iter().map(line).collect::<Vec<_>>().join("\n");
    write_file(&format!("/proc/{}/uid_map", holder.pid), &lines(users)).map_err(std::io::Error::other)?;
    write_file(&format!("/proc/{}/gid_map", holder.pid), &lines(groups)).map_err(std::io::Error::other)?;
    let namespace = open_user_namespace(holder.pid)?;
    sys::map_mount_ids(mount, namespace.as_fd())
}

/// The user namespace of a process.
pub fn open_user_namespace(pid: u32) -> std::io::Result<OwnedFd> {
    let path = format!("/proc/{pid}/ns/user");
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Writes a file of `/proc` in one call, as those files want it.
pub fn write_file(path: &str, text: &str) -> Result<()> {
    let failed = |error: rustix::io::Errno| Error::io(format!("writing {path}"), error);
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    rustix::io::write(&file, text.as_bytes()).map(drop).map_err(failed)
}

/// What is said of a tree whose file system cannot show its files with other ids.
pub fn unmappable(path: &Path, error: &std::io::Error) -> Error {
    Error::Unavailable {
        what: format!("mounting {}", path.display()),
        reason: format!("its file system cannot show files with other ids ({error})"),
        fix: "move it to ext4, xfs, btrfs or tmpfs".to_owned(),
    }
}
