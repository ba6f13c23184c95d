//! The parts that all boxes without an image share: made once, read-only for everybody, and one mount for each box instead of
//! dozens. Only root can make them.

use std::os::fd::{AsFd, OwnedFd};

use box_core::{Error, Result};
use box_host::host_root::HostRoot;
use box_wire::plan::Step;
use box_wire::{GuestPath, User};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::plan;

/// Room for the skeleton: names, links and a few small files.
const BYTES_MAX: &str = "4m";

/// The shared parts, as detached mounts of which each box gets a copy.
#[derive(Debug)]
pub(crate) struct Skeleton {
    /// The root: directories, links, and small files of `/etc`.
    pub(crate) root: OwnedFd,
    /// `/dev` with its harmless devices.
    pub(crate) devices: OwnedFd,
}

impl Skeleton {
    /// Makes the shared parts; nothing where the kernel cannot copy a mount that stands nowhere (before 6.15). Boxes then make
    /// the same for themselves, step by step.
    pub(crate) fn make() -> Result<Option<Self>> {
        let failed = |error: Errno| Error::io("making the skeleton of boxes", error);
        let root = tmpfs().map_err(failed)?;
        let host = HostRoot::get();
        // Only root has a line among the accounts that boxes share.
        let accounts = box_host::standard::accounts(User::ROOT, "/root", host.shell);
        for step in plan::skeleton(host, &[], accounts) {
            apply(&root, &step).map_err(failed)?;
        }
        if box_host::mounts::clone_mount(&root).is_err() {
            return Ok(None);
        }
        let devices = make_devices().map_err(failed)?;
        Ok(Some(Self { root, devices }))
    }
}

fn make_devices() -> rustix::io::Result<OwnedFd> {
    let devices = tmpfs()?;
    for name in box_host::standard::DEVICES {
        let host = rustix::fs::stat(format!("/dev/{name}"))?;
        rustix::fs::mknodat(&devices, name, FileType::CharacterDevice, Mode::from_raw_mode(0o666), host.st_rdev)?;
        // Once more without the mask of this process, which is not for us to change.
        let flags = rustix::fs::AtFlags::empty();
        rustix::fs::chmodat(&devices, name, Mode::from_raw_mode(0o666), flags)?;
    }
    for name in ["pts", "shm"] {
        directory(&devices, name)?;
    }
    for step in plan::device_links() {
        if let Step::Symlink { path, target } = step {
            rustix::fs::symlinkat(target, &devices, path.name())?;
        }
    }
    Ok(devices)
}

/// Does one step of the skeleton on a tree that nobody else can reach.
fn apply(root: &OwnedFd, step: &Step) -> rustix::io::Result<()> {
    match step {
        Step::Directory { path, .. } => make_path(root, path),
        Step::Symlink { path, target } => {
            make_path(root, &path.parent())?;
            rustix::fs::symlinkat(target.as_str(), root, path.relative())
        }
        Step::Provide { path, contents, .. } => {
            make_path(root, &path.parent())?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = rustix::fs::openat(root, path.relative(), flags, Mode::from_raw_mode(0o644))?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
            let mut rest = contents.as_slice();
            while !rest.is_empty() {
                let count = rustix::io::write(&file, rest)?;
                rest = &rest[count..];
            }
            Ok(())
        }
        _ => Err(Errno::INVAL),
    }
}

fn make_path(root: &OwnedFd, path: &GuestPath) -> rustix::io::Result<()> {
    if path.as_str() == "/" {
        return Ok(());
    }
    make_path(root, &path.parent())?;
    directory(root, path.relative())
}

fn directory(parent: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) => rustix::fs::chmodat(parent, name, Mode::from_raw_mode(0o755), rustix::fs::AtFlags::empty()),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

fn tmpfs() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "size", BYTES_MAX)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "mode", "755")?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID)
}
