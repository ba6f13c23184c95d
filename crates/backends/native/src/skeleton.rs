//! The parts that all boxes without an image share: made once, read-only for everybody, and one mount for each box instead of
//! dozens. Only root can make them.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use box_core::{Error, Result};
use box_host::host_root::HostRoot;
use box_wire::plan::{Own, Step};
use box_wire::{GuestPath, User};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
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
    /// The layer above the host's `/usr`, for boxes with a writable root.
    programs: OnceLock<OwnedFd>,
    /// The copy that showed that copies can be made. The kernel takes its time to end a mount, so it stays until all of this ends.
    _trial: OwnedFd,
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
        let mut site = Site { root, made: HashSet::new(), is_masked: true };
        for step in plan::skeleton(host, &[], accounts) {
            site.apply(&step).map_err(failed)?;
        }
        let root = site.root;
        let Ok(trial) = box_host::mounts::clone_mount(&root) else { return Ok(None) };
        let devices = make_devices().map_err(failed)?;
        Ok(Some(Self { root, devices, programs: OnceLock::new(), _trial: trial }))
    }

    /// The layer above the host's `/usr`. Made on first use: it has one directory for each of the host's, about ten thousand.
    pub(crate) fn programs(&self) -> Result<&OwnedFd> {
        if let Some(made) = self.programs.get() {
            return Ok(made);
        }
        let made = make_programs(HostRoot::get().writable().shared());
        let made = made.map_err(|error| Error::io("making the shared layer above /usr", error))?;
        Ok(self.programs.get_or_init(|| made))
    }
}

fn make_programs(own: &Own) -> rustix::io::Result<OwnedFd> {
    let mut site = Site { root: tmpfs()?, made: HashSet::new(), is_masked: true };
    for name in &own.directories {
        site.directory(name)?;
        site.made.extend(below_root(name));
    }
    for name in &own.hidden {
        site.make_path_above(name)?;
        // An overlay treats this device as a whiteout.
        rustix::fs::mknodat(&site.root, name, FileType::CharacterDevice, Mode::empty(), 0)?;
    }
    for (name, target) in &own.links {
        site.make_path_above(name)?;
        rustix::fs::symlinkat(target.as_str(), &site.root, name)?;
    }
    Ok(site.root)
}

fn below_root(name: &str) -> Option<GuestPath> {
    GuestPath::parse("path", &format!("/{name}")).ok()
}

fn make_devices() -> rustix::io::Result<OwnedFd> {
    let devices = tmpfs()?;
    for name in box_host::standard::DEVICES {
        let host = rustix::fs::stat(format!("/dev/{name}"))?;
        rustix::fs::mknodat(&devices, name, FileType::CharacterDevice, Mode::from_raw_mode(0o666), host.st_rdev)?;
        // Once more without the mask of this process, which is not for us to change.
        rustix::fs::chmodat(&devices, name, Mode::from_raw_mode(0o666), AtFlags::empty())?;
    }
    let mut site = Site { root: devices, made: HashSet::new(), is_masked: true };
    for name in ["pts", "shm"] {
        site.directory(name)?;
    }
    for step in plan::device_links() {
        if let Step::Symlink { path, target } = step {
            rustix::fs::symlinkat(target, &site.root, path.name())?;
        }
    }
    Ok(site.root)
}

/// A tree under construction that no other process can reach.
struct Site {
    root: OwnedFd,
    /// Directories that are there.
    made: HashSet<GuestPath>,
    /// Whether modes have to be set once more, without the mask of this process, which is not for us to change.
    is_masked: bool,
}

impl Site {
    fn apply(&mut self, step: &Step) -> rustix::io::Result<()> {
        match step {
            Step::Directory { path, .. } => self.make_path(path),
            Step::Symlink { path, target } => {
                self.make_path(&path.parent())?;
                rustix::fs::symlinkat(target.as_str(), &self.root, path.relative())
            }
            Step::Provide { path, contents, .. } => {
                self.make_path(&path.parent())?;
                self.file(path, contents)
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn file(&self, path: &GuestPath, contents: &[u8]) -> rustix::io::Result<()> {
        let mode = Mode::from_raw_mode(0o644);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.root, path.relative(), flags, mode)?;
        if self.is_masked {
            rustix::fs::fchmod(&file, mode)?;
        }
        let mut rest = contents;
        while !rest.is_empty() {
            let count = rustix::io::write(&file, rest)?;
            rest = &rest[count..];
        }
        Ok(())
    }

    fn make_path_above(&mut self, name: &str) -> rustix::io::Result<()> {
        below_root(name).map_or(Err(Errno::INVAL), |path| self.make_path(&path.parent()))
    }

    fn make_path(&mut self, path: &GuestPath) -> rustix::io::Result<()> {
        if path.as_str() == "/" || self.made.contains(path) {
            return Ok(());
        }
        self.make_path(&path.parent())?;
        self.directory(path.relative())?;
        self.made.insert(path.clone());
        Ok(())
    }

    fn directory(&mut self, name: &str) -> rustix::io::Result<()> {
        let mode = Mode::from_raw_mode(0o755);
        rustix::fs::mkdirat(&self.root, name, mode)?;
        if self.is_masked {
            let found = rustix::fs::statat(&self.root, name, AtFlags::SYMLINK_NOFOLLOW)?;
            self.is_masked = Mode::from_raw_mode(found.st_mode) != mode;
        }
        if self.is_masked {
            rustix::fs::chmodat(&self.root, name, mode, AtFlags::empty())?;
        }
        Ok(())
    }
}

fn tmpfs() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "size", BYTES_MAX)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "mode", "755")?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID)
}
