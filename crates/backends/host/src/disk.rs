//! A file system of a box's own, in one file on disk: bytes and files are hard limits because there are no more of them.
//!
//! The loop device of the file goes by itself with the last mount, even if this process dies.

mod loop_device;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use box_core::{Error, Result};
use box_wire::Invalid;
use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// Smallest image that has room for a journal and something to store.
pub const IMAGE_BYTES_MIN: u64 = 8 << 20;
/// Part of the disk that images leave free.
const LEFT_FREE_PART: u64 = 10;
/// Upper bound of that part.
const LEFT_FREE_BYTES: u64 = 1 << 30;
/// Where the program that formats images is looked for. The caller's own search path is not trusted.
const MKFS_PATHS: [&str; 3] = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/local/sbin/mkfs.ext4"];
/// How long an image may still be in use after its last mount was given up: the kernel cleans up behind our back.
const BUSY_MS_MAX: u64 = 2000;
/// Most of a failed program's words that are passed on.
const COMPLAINT_BYTES_MAX: usize = 500;

/// Makes a formatted image named `name`: a file that holds at most `bytes_max`, file system metadata included, and about
/// `inodes_max` files, rounded up to full blocks of them. All space is allocated at once, so that other boxes cannot use it
/// up. The image appears complete or not at all.
pub fn make_image(directory: BorrowedFd<'_>, name: &str, bytes_max: u64, inodes_max: u64) -> Result<()> {
    check_name(name)?;
    if bytes_max < IMAGE_BYTES_MIN {
        return Err(Invalid::new("disk image bytes", bytes_max, format!("at least {IMAGE_BYTES_MIN}")).into());
    }
    let mkfs = MKFS_PATHS.into_iter().find(|path| Path::new(path).exists()).ok_or_else(|| Error::MissingFacility {
        what: "a disk image".to_owned(),
        reason: "mkfs.ext4 is not installed".to_owned(),
        fix: "apt-get install e2fsprogs".to_owned(),
    })?;
    let partial = partial_name(name);
    let made = format_partial(directory, &partial, mkfs, bytes_max, inodes_max).and_then(|()| {
        rustix::fs::renameat_with(directory, &partial, directory, name, RenameFlags::NOREPLACE)
            .map_err(|errno| failed("naming", name, errno))
    });
    if made.is_err() {
        let _ = rustix::fs::unlinkat(directory, &partial, AtFlags::empty());
    }
    made
}

/// Removes the image of that name, and what an interrupted [`make_image`] left of it. Neither has to exist.
pub fn remove_image(directory: BorrowedFd<'_>, name: &str) -> Result<()> {
    for name in [name, &partial_name(name)] {
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(errno) => return Err(failed("removing", name, errno)),
        }
    }
    Ok(())
}

fn partial_name(name: &str) -> String {
    format!(".{name}.partial")
}

/// Mounts an image; the mount is not attached anywhere and goes with the descriptor. An image can be in use once.
pub fn mount_image(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd> {
    check_name(name)?;
    if !rustix::process::geteuid().is_root() {
        return Err(Error::MissingFacility {
            what: "a disk image".to_owned(),
            reason: "only root can mount one".to_owned(),
            fix: "run strongbox as root, or let the box keep its files in memory".to_owned(),
        });
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let image =
        rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(|errno| failed("opening", name, errno))?;
    let kind = rustix::fs::fstat(&image).map_err(|errno| failed("looking at", name, errno))?.st_mode;
    if FileType::from_raw_mode(kind) != FileType::RegularFile {
        return Err(failed("opening", name, Errno::INVAL));
    }
    lock(&image, name)?;
    let device = loop_device::attach(image.as_fd())?;
    mount_device(&device.path).map_err(|errno| failed("mounting", name, errno))
}

fn format_partial(directory: BorrowedFd<'_>, partial: &str, mkfs: &str, bytes_max: u64, inodes_max: u64) -> Result<()> {
    // A partial image is a leftover of a killed process: an image is only used under its final name.
    match rustix::fs::unlinkat(directory, partial, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(failed("replacing", partial, errno)),
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, partial, flags, Mode::from_raw_mode(0o600))
        .map_err(|errno| failed("making", partial, errno))?;
    take_room(directory, &file, bytes_max).map_err(|errno| failed("sizing", partial, errno))??;
    let file = File::from(file);
    run_mkfs(mkfs, &file, inodes_max)?;
    file.sync_all().map_err(|error| Error::io(format!("storing the disk image {partial}"), error))
}

/// Allocates all space of an image, and leaves some for other users. File systems without `fallocate` allocate on write.
fn take_room(directory: BorrowedFd<'_>, file: &OwnedFd, bytes_max: u64) -> rustix::io::Result<Result<()>> {
    let disk = rustix::fs::fstatvfs(directory)?;
    let [bytes, free] = [disk.f_blocks, disk.f_bavail].map(|blocks| blocks.saturating_mul(disk.f_frsize));
    let left = LEFT_FREE_BYTES.min(bytes / LEFT_FREE_PART);
    let full = || {
        let [bytes_max, free, left] = [bytes_max, free, left].map(|bytes| bytes >> 20);
        Err(Error::Unavailable {
            what: format!("a disk image of {bytes_max} MiB"),
            reason: format!("the disk of the state directory has {free} MiB free, of which {left} stay free"),
            fix: "free space there, or ask for a smaller disk_mb (workspace_quota_mb of a session)".to_owned(),
        })
    };
    if free < bytes_max.saturating_add(left) {
        return Ok(full());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes_max) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => rustix::fs::ftruncate(file, bytes_max).map(Ok),
        Err(Errno::NOSPC | Errno::FBIG) => Ok(full()),
        taken => taken.map(Ok),
    }
}

/// Formats a file that it gets as its input, so that no path is walked and no name can become an option.
fn run_mkfs(mkfs: &str, file: &File, inodes_max: u64) -> Result<()> {
    let input = file.try_clone().map_err(|error| Error::io("sharing the disk image", error))?;
    let output = Command::new(mkfs)
        .env_clear()
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-m", "0"])
        // A small journal, no lazy initialization in the background, and no discard.
        .args(["-J", "size=4", "-E", "root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0,nodiscard"])
        .args(["-N", &inodes_max.to_string(), "/proc/self/fd/0"])
        .stdin(input)
        .stdout(Stdio::null())
        .output()
        .map_err(|error| Error::io(format!("starting {mkfs}"), error))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = &output.stderr[..output.stderr.len().min(COMPLAINT_BYTES_MAX)];
    let reason = format!("{mkfs} ended with {}: {}", output.status, String::from_utf8_lossy(complaint).trim());
    Err(Error::Setup { step: "disk image".to_owned(), reason })
}

/// Takes the image for us. The lock belongs to the open file, which the loop device keeps open: it ends with the device, not
/// with this process, and two mounts of one image, which would destroy it, cannot happen.
fn lock(image: &OwnedFd, name: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_millis(BUSY_MS_MAX);
    loop {
        match rustix::fs::flock(image, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            Err(Errno::WOULDBLOCK) => {
                let reason = format!("{name} is in use by another box; destroy that one first");
                return Err(Error::Setup { step: "disk image".to_owned(), reason });
            }
            Err(errno) => return Err(failed("locking", name, errno)),
        }
    }
}

fn mount_device(path: &str) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "source", path)?;
    // The box writes what it likes into its file system: a damaged one must not take the machine with it.
    rustix::mount::fsconfig_set_string(&context, "errors", "remount-ro")?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(Invalid::new("disk image name", name, "one plain file name").into());
    }
    Ok(())
}

fn failed(doing: &str, name: &str, errno: Errno) -> Error {
    Error::io(format!("{doing} the disk image {name}"), errno)
}
