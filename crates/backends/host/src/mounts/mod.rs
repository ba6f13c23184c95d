//! Trees of the host that a box gets to see: detached mounts in which the workload owns what the tree's owner owns, and no other
//! user of the box owns anything.
//!
//! Nothing in a granted tree changes hands on the host. Where the host's root owns the tree, this mount alone shows root's files as
//! the workload's; the user namespace of the box never maps root. [`crate::seccomp::mode_guard`] keeps such a box from leaving files
//! that lend root's rights.
//!
//! A mount is made of the object on which [`box_core::MountPolicy`] decided, never of a path, and it stands nowhere until it is
//! handed over: to the agent of a box in its plan, or into a container that an engine made, by [`attach`].

mod attach;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use box_core::{Error, Grant, MountMode, Origin, Result};
use rustix::fs::{Mode, OFlags};
use rustix::mount::OpenTreeFlags;
use rustix::thread::{Gid, Uid};

use crate::ids::FIRST_ID;
use crate::sys;

pub use attach::{Attachment, attach};

/// Who boxes are that have no ids of their own, and who owns what boxes keep in trees of the service's own. Above every id that is
/// given to a box, and not negative as a 32-bit number.
pub const WORKSPACE_OWNER: u32 = box_core::mount_policy::WORKSPACE_OWNER;

/// Who owns, in a tree of the service's own, what root of a box makes there: no account of the host either.
pub const ROOTS_OWNER: u32 = WORKSPACE_OWNER + 1;

/// Who a box's users are in a mount, by the ids under which the host knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dwellers {
    /// Who is the owner of the tree: the workload, as user and group.
    pub workload: (u32, u32),
    /// Root of the box, where it may own something in trees of the service's own.
    pub root: Option<(u32, u32)>,
}

/// One line of an id map: the first id on disk, the first id of the host that stands for it, and how many follow.
type IdLine = (u32, u32, u32);

/// A detached mount of a granted tree, in which the workload is the tree's owner.
pub fn of_grant(grant: &Grant, origin: &Origin, mode: MountMode, dwellers: Dwellers) -> Result<OwnedFd> {
    let (users, groups) = match origin {
        Origin::Kept(_) => own_tree(grant, mode, dwellers)?,
        _ => granted_tree((grant.uid, grant.gid), dwellers.workload),
    };
    let mount =
        clone_mount(&grant.object).map_err(|error| Error::io(format!("taking {}", grant.path.display()), error))?;
    map_ids(&mount, &users, &groups).map_err(|error| unmappable(&grant.path, &error))?;
    Ok(mount)
}

/// The maps of a tree that belongs to a user of the host: its owner is the workload. Other owners are not mapped, so
/// the box reads what their files' modes allow and changes none of them. Other groups keep their ids, which are in no
/// group of the box: a file of the tree's owner can be changed whatever its group is.
fn granted_tree(owner: (u32, u32), workload: (u32, u32)) -> (Vec<IdLine>, Vec<IdLine>) {
    let taken = BTreeSet::from([owner.1, workload.1]);
    let mut groups = vec![(owner.1, workload.1, 1)];
    let mut first = 0;
    for end in taken.into_iter().filter(|&id| id < FIRST_ID).chain([FIRST_ID]) {
        if first < end {
            groups.push((first, first, end - first));
        }
        first = end + 1;
    }
    (vec![(owner.0, workload.0, 1)], groups)
}

/// The maps of a tree of the service's own: workload and root of the box own what they make, and neither is an account of the host.
fn own_tree(grant: &Grant, mode: MountMode, dwellers: Dwellers) -> Result<(Vec<IdLine>, Vec<IdLine>)> {
    let reserved = |id: u32| if id == 0 { WORKSPACE_OWNER } else { id };
    if grant.uid == 0 && mode == MountMode::Rw {
        reserve(grant)?;
    }
    let Dwellers { workload, root } = dwellers;
    // Where the workload is root, one id cannot be two.
    let root = root.filter(|root| root.0 != workload.0 && root.1 != workload.1);
    let lines = |owner: u32, workload: u32, root: Option<u32>| {
        [(reserved(owner), workload, 1)].into_iter().chain(root.map(|id| (ROOTS_OWNER, id, 1))).collect()
    };
    let users = lines(grant.uid, workload.0, root.map(|(user, _)| user));
    let groups = lines(grant.gid, workload.1, root.map(|(_, group)| group));
    Ok((users, groups))
}

/// A detached copy of what is mounted at an object, without what is mounted below it now or later.
pub fn clone_mount(object: &OwnedFd) -> std::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let mount = rustix::mount::open_tree(object, "", flags)?;
    sys::make_mount_private(&mount)?;
    Ok(mount)
}

/// Gives a directory that the service has just made to the id under which boxes keep their files.
fn reserve(grant: &Grant) -> Result<()> {
    let link = format!("/proc/self/fd/{}", grant.object.as_raw_fd());
    let gid = (grant.gid == 0).then(|| Gid::from_raw(WORKSPACE_OWNER));
    rustix::fs::chown(link, Some(Uid::from_raw(WORKSPACE_OWNER)), gid)
        .map_err(|error| Error::io(format!("giving {} to the boxes", grant.path.display()), error))
}

/// Shows a mount's files with other users and groups.
fn map_ids(mount: &OwnedFd, users: &[IdLine], groups: &[IdLine]) -> std::io::Result<()> {
    let holder = sys::NamespaceHolder::start()?;
    let line = |(disk, shown, count): &IdLine| format!("{disk} {shown} {count}");
    let lines = |lines: &[IdLine]| lines.iter().map(line).collect::<Vec<_>>().join("\n");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel refuses maps in which an id occurs twice on one side.
    fn is_free_of_overlaps(lines: &[IdLine]) -> bool {
        let meet = |a: u32, b: u32, m: u32, n: u32| a < b + n && b < a + m;
        lines.iter().enumerate().all(|(at, &(disk, shown, count))| {
            lines.iter().skip(at + 1).all(|&(d, s, n)| !meet(disk, d, count, n) && !meet(shown, s, count, n))
        })
    }

    #[test]
    fn the_owner_of_a_granted_tree_is_the_workload_and_no_other_user_is_anyone() {
        let workload = (FIRST_ID + 1000, FIRST_ID + 1001);
        let (users, groups) = granted_tree((0, 0), workload);
        assert_eq!(users, [(0, workload.0, 1)]);
        assert_eq!(groups, [(0, workload.1, 1), (1, 1, FIRST_ID - 1)]);
        let (users, groups) = granted_tree((1000, 50), workload);
        assert_eq!(users, [(1000, workload.0, 1)]);
        assert_eq!(groups, [(50, workload.1, 1), (0, 0, 50), (51, 51, FIRST_ID - 51)]);
        for owner in [0, 1, 1001, FIRST_ID - 1, FIRST_ID, WORKSPACE_OWNER] {
            for group in [1, 1001, FIRST_ID - 1, FIRST_ID, WORKSPACE_OWNER] {
                let (_, groups) = granted_tree((owner, owner), (7, group));
                assert!(is_free_of_overlaps(&groups), "{owner} {group}: {groups:?}");
            }
        }
    }
}
