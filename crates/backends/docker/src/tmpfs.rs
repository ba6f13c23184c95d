//! The memory in which a container stores files, looked at and set right from outside. Root only.
//!
//! Podman takes no number of files for a tmpfs, and a container that was started ahead has the size of a stranger. The kernel lets
//! root change both on a tmpfs that is mounted elsewhere: it is opened below the container's root, without following a link, and
//! picked by that descriptor.

use std::os::fd::{AsFd, OwnedFd};

use box_wire::GuestPath;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::FsPickFlags;

/// The kernel's number for tmpfs.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// How much a tmpfs holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// Hard limit of bytes.
    pub(crate) bytes_max: u64,
    /// Hard limit of files.
    pub(crate) inodes_max: u64,
}

/// Sets how much the tmpfs at a path of a container holds, and reads it back.
pub(crate) fn resize(pid: u32, path: &GuestPath, size: Size) -> Option<Size> {
    let place = open(pid, path).ok()?;
    let found = size_of(place.as_fd())?;
    if found == size {
        return Some(found);
    }
    let change = || -> rustix::io::Result<()> {
        let picked = rustix::mount::fspick(&place, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
        rustix::mount::fsconfig_set_string(picked.as_fd(), "size", size.bytes_max.to_string())?;
        rustix::mount::fsconfig_set_string(picked.as_fd(), "nr_inodes", size.inodes_max.to_string())?;
        rustix::mount::fsconfig_reconfigure(picked.as_fd())
    };
    if let Err(error) = change() {
        tracing::debug!(r#box.path = %path, error = %error, "a tmpfs of a container cannot be resized");
    }
    size_of(place.as_fd())
}

fn open(pid: u32, path: &GuestPath) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(&root, path.as_str(), flags, Mode::empty(), resolve)
}

fn size_of(place: std::os::fd::BorrowedFd<'_>) -> Option<Size> {
    let stat = rustix::fs::fstatfs(place).ok()?;
    let is_tmpfs = stat.f_type == TMPFS_MAGIC;
    let bytes_max = stat.f_blocks.checked_mul(u64::try_from(stat.f_bsize).ok()?)?;
    is_tmpfs.then_some(Size { bytes_max, inodes_max: stat.f_files })
}
