//! Where a box can keep what it stores.

use box_core::backend::Finding;
use rustix::fs::{Access, Mode, mkdir};
use rustix::mount::{MountFlags, mount};
use rustix::thread::UnshareFlags;

use super::namespaces::in_new_root;
use super::{good, is_root, missing, weaker};
use crate::program;

/// Memory file systems with a limit of bytes and of files.
pub(super) fn tmpfs() -> Finding {
    const NAME: &str = "tmpfs";
    let attempt = in_new_root(UnshareFlags::NEWNS, || {
        mount(c"tmpfs", c"/tmp", c"tmpfs", MountFlags::empty(), Some(c"size=64k,nr_inodes=16"))
    });
    match attempt {
        Ok(()) => good(NAME, "with hard limits of bytes and files"),
        Err(error) => {
            let detail = format!("a limited tmpfs cannot be mounted in a user namespace ({error})");
            missing(NAME, detail, "see user_namespaces above; else boot a kernel with CONFIG_TMPFS=y")
        }
    }
}

/// Overlays, for a root that can be written without changing what lies below it.
pub(super) fn overlay() -> Finding {
    const NAME: &str = "overlay";
    let attempt = in_new_root(UnshareFlags::NEWNS, || {
        for directory in [c"/tmp/lower", c"/tmp/upper", c"/tmp/work", c"/tmp/merged"] {
            mkdir(directory, Mode::RWXU)?;
        }
        let options = c"lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work,userxattr";
        mount(c"overlay", c"/tmp/merged", c"overlay", MountFlags::empty(), Some(options))
    });
    match attempt {
        Ok(()) => good(NAME, "works in user namespaces: boxes can have a writable root"),
        Err(error) => weaker(
            NAME,
            format!("it cannot be mounted in a user namespace ({error}): no box with a writable root"),
            Some("sudo modprobe overlay; else boot Linux 5.19 or newer"),
        ),
    }
}

/// File system images, for boxes that keep what they store on disk.
pub(super) fn disk() -> Finding {
    const NAME: &str = "disk_images";
    if !is_root() {
        return weaker(
            NAME,
            "only root can mount them: boxes keep what they store in memory",
            Some("run strongbox as root"),
        );
    }
    if rustix::fs::access("/dev/loop-control", Access::READ_OK | Access::WRITE_OK).is_err() {
        let detail = "there are no loop devices: boxes keep what they store in memory";
        return weaker(NAME, detail, Some("sudo modprobe loop"));
    }
    match program::find("mkfs.ext4") {
        Some(program) => good(NAME, format!("loop devices and {}", program.display())),
        None => weaker(
            NAME,
            "mkfs.ext4 is not installed: boxes keep what they store in memory",
            Some("sudo apt-get install e2fsprogs"),
        ),
    }
}
