//! Mounts by descriptor: every source is an opened object, every target is opened without following a link.

use std::os::fd::{AsFd, OwnedFd};

use box_wire::plan::{Access, Tree};
use box_wire::{GuestPath, User};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use rustix::thread::{Gid, Uid};

use crate::sys;

/// How targets are resolved: below the new root, and through nothing but real directories.
const TARGET: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// A detached copy of a tree of the host.
pub(super) fn gather(tree: &Tree, take: impl FnOnce(u32) -> Option<OwnedFd>) -> Result<OwnedFd> {
    match tree {
        Tree::Mount(index) => take(*index).ok_or(Errno::BADF),
        Tree::Path { path, device, inode } => {
            let object = rustix::fs::openat2(
                CWD,
                path.as_str(),
                OFlags::PATH | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
            )?;
            let stat = rustix::fs::fstat(&object)?;
            if (stat.st_dev, stat.st_ino) != (*device, *inode) {
                // Another process replaced it after the host had decided.
                return Err(Errno::STALE);
            }
            clone_tree(&object)
        }
    }
}

/// A detached copy of what is mounted at `object`: alone where possible, else with everything below it, which an unprivileged
/// copy may not uncover.
fn clone_tree(object: impl AsFd) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    match open_tree(&object, "", flags) {
        Err(Errno::INVAL) => open_tree(&object, "", flags | OpenTreeFlags::AT_RECURSIVE),
        cloned => cloned,
    }
}

/// A detached copy of one place of the new root.
pub(super) fn clone_at(root: impl AsFd, path: &str) -> Result<OwnedFd> {
    let place = open_target(root, path)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(&place, "", flags)
}

/// Opens a place below the new root without following a link.
pub(super) fn open_target(root: impl AsFd, path: &str) -> Result<OwnedFd> {
    let path = if path.is_empty() { "." } else { path };
    rustix::fs::openat2(root, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), TARGET)
}

/// Mounts `mount` on an opened target.
pub(super) fn attach(mount: impl AsFd, target: impl AsFd) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", target, "", flags)
}

/// Sets what may be done with a mount and all below it.
pub(super) fn restrict(mount: impl AsFd, access: Access) -> Result<()> {
    let flags = match access {
        Access::ReadOnly => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_RDONLY,
        Access::ReadWrite => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        Access::Device => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
    };
    sys::mount_restrict(mount, flags).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Makes a directory and its missing parents below the root; the last one gets mode and owner.
pub(super) fn make_directory(root: &OwnedFd, path: &GuestPath, mode: u32, owner: User) -> Result<()> {
    match open_target(root, path.relative()) {
        Ok(there) if is_directory(&there)? => return Ok(()),
        Ok(_) => return Err(Errno::NOTDIR),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error),
    }
    let (parent, name) = (path.parent(), path.name());
    let parent = match open_target(root, parent.relative()) {
        Err(Errno::NOENT) => {
            make_directory(root, &parent, 0o755, User::ROOT)?;
            open_target(root, parent.relative())?
        }
        opened => opened?,
    };
    rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
    if (mode, owner) == (0o755, User::ROOT) {
        return Ok(());
    }
    set_owner_and_mode(open_target(root, path.relative())?, mode, owner)
}

/// Gives an object opened as a path its owner and mode.
pub(super) fn set_owner_and_mode(object: impl AsFd, mode: u32, owner: User) -> Result<()> {
    if owner != User::ROOT {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        rustix::fs::chownat(&object, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    let real = rustix::fs::openat(&object, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fchmod(real, Mode::from_raw_mode(mode))
}

/// Makes an empty place on which a mount can stand: a directory or a file, as the mount is.
pub(super) fn make_place(root: &OwnedFd, path: &GuestPath, mount: impl AsFd) -> Result<OwnedFd> {
    match open_target(root, path.relative()) {
        Err(Errno::NOENT) => {}
        opened => return opened,
    }
    if is_directory(&mount)? {
        make_directory(root, path, 0o755, User::ROOT)?;
    } else {
        make_directory(root, &path.parent(), 0o755, User::ROOT)?;
        let parent = open_target(root, path.parent().relative())?;
        let name = path.name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)) {
            Ok(_) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    open_target(root, path.relative())
}

/// A detached tmpfs with hard limits.
pub(super) fn tmpfs(bytes_max: u64, inodes_max: u64, mode: u32) -> Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "size", bytes_max.to_string())?;
    fsconfig_set_string(context.as_fd(), "nr_inodes", inodes_max.to_string())?;
    fsconfig_set_string(context.as_fd(), "mode", format!("{mode:o}"))?;
    finish(&context, MountAttrFlags::empty())
}

/// A detached overlay. The layers are named by path because kernels before 6.13 take nothing else.
pub(super) fn overlay(lower: &str, upper: &str, work: &str) -> Result<OwnedFd> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "lowerdir", lower)?;
    fsconfig_set_string(context.as_fd(), "upperdir", upper)?;
    fsconfig_set_string(context.as_fd(), "workdir", work)?;
    fsconfig_set_flag(context.as_fd(), "userxattr")?;
    finish(&context, MountAttrFlags::empty())
}

/// A detached file system of this box's own, such as `proc`, with these options.
pub(super) fn pseudo(kind: &str, options: &[(&str, String)]) -> Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        fsconfig_set_string(context.as_fd(), *name, value.as_str())?;
    }
    finish(&context, MountAttrFlags::MOUNT_ATTR_NOEXEC)
}

fn finish(context: &OwnedFd, extra: MountAttrFlags) -> Result<OwnedFd> {
    fsconfig_create(context.as_fd())?;
    // devpts is the one file system whose files must work as devices.
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | extra;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// Whether an opened object is a directory.
pub(super) fn is_directory(object: impl AsFd) -> Result<bool> {
    let stat = rustix::fs::fstat(object)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Whether the mount behind an opened place is read-only.
pub(super) fn is_read_only(place: impl AsFd) -> Result<bool> {
    Ok(rustix::fs::fstatvfs(place)?.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// Makes one mount read-only and leaves what is mounted below it as it is.
pub(super) fn seal(mount: impl AsFd) -> Result<()> {
    sys::mount_seal(mount).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
