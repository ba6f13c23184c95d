//! Disk images that really limit. Needs root and loop devices; an ordinary user sees the reason for the skip.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod skip;

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use box_host::disk;
use skip::skip;

const BYTES_MAX: u64 = 32 << 20;
const INODES_MAX: u64 = 256;

fn open(path: &Path) -> OwnedFd {
    std::fs::File::open(path).unwrap().into()
}

/// Where the files of a detached mount can be reached.
fn inside(mount: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", mount.as_raw_fd()).into()
}

/// A fresh image, to be mounted by root. The tests of an ordinary user are skipped.
fn root_with_image(name: &str) -> Option<(tempfile::TempDir, OwnedFd)> {
    let scratch = tempfile::tempdir().unwrap();
    let directory = open(scratch.path());
    disk::make_image(directory.as_fd(), name, BYTES_MAX, INODES_MAX).unwrap();
    if rustix::process::geteuid().is_root() {
        return Some((scratch, directory));
    }
    assert_eq!(disk::mount_image(directory.as_fd(), name).unwrap_err().code(), "unavailable");
    skip("only root can mount an image; run as root");
    None
}

/// Loop devices that carry this file.
fn devices_of(image: &Path) -> usize {
    let backing = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(entry.unwrap().path().join("loop/backing_file")).unwrap_or_default()
    };
    let wanted = image.to_str().unwrap();
    std::fs::read_dir("/sys/block").unwrap().map(backing).filter(|path| path.trim() == wanted).count()
}

#[test]
fn bytes_and_files_are_hard_limits() {
    let Some((_scratch, directory)) = root_with_image("limits.img") else { return };
    let mount = disk::mount_image(directory.as_fd(), "limits.img").unwrap();
    let mut file = std::fs::File::create(inside(&mount).join("big")).unwrap();
    let chunk = vec![1; 1 << 20];
    let mut written = 0_u64;
    let refused = loop {
        match file.write_all(&chunk).and_then(|()| file.sync_data()) {
            Ok(()) => written += 1 << 20,
            Err(error) => break error,
        }
        assert!(written <= BYTES_MAX);
    };
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
    assert!(written >= BYTES_MAX / 2, "{written} is too little of {BYTES_MAX}");
    drop(file);
    std::fs::remove_file(inside(&mount).join("big")).unwrap();
    let make = |number: u64| std::fs::File::create(inside(&mount).join(number.to_string()));
    let count = (0..INODES_MAX * 4).take_while(|&number| make(number).is_ok()).count() as u64;
    assert!((INODES_MAX / 2..INODES_MAX * 2).contains(&count), "{count}");
    assert_eq!(make(u64::MAX).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn files_stay_and_the_device_goes_with_the_last_mount() {
    let Some((scratch, directory)) = root_with_image("stay.img") else { return };
    let image = scratch.path().join("stay.img");
    let mount = disk::mount_image(directory.as_fd(), "stay.img").unwrap();
    assert_eq!(devices_of(&image), 1);
    std::fs::write(inside(&mount).join("note"), "kept").unwrap();
    let busy = disk::mount_image(directory.as_fd(), "stay.img").unwrap_err();
    assert!(busy.to_string().contains("in use"), "{busy}");
    drop(mount);
    let deadline = Instant::now() + Duration::from_secs(30);
    while devices_of(&image) > 0 {
        assert!(Instant::now() < deadline, "the loop device stayed");
        std::thread::sleep(Duration::from_millis(5));
    }
    let again = disk::mount_image(directory.as_fd(), "stay.img").unwrap();
    assert_eq!(std::fs::read_to_string(inside(&again).join("note")).unwrap(), "kept");
}

#[test]
fn an_image_has_all_its_room_and_is_never_replaced() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = open(scratch.path());
    std::fs::write(scratch.path().join(".a.img.partial"), "left by a killed process").unwrap();
    disk::make_image(directory.as_fd(), "a.img", 64 << 20, 10_000).unwrap();
    let made = std::fs::metadata(scratch.path().join("a.img")).unwrap();
    assert_eq!(made.len(), 64 << 20);
    assert!(made.blocks() * 512 >= 64 << 20, "{} blocks", made.blocks());
    assert_eq!(made.mode() & 0o777, 0o600);
    assert!(disk::make_image(directory.as_fd(), "a.img", 64 << 20, 10_000).is_err());
    assert!(disk::make_image(directory.as_fd(), "b.img", 8 << 20, u64::MAX).is_err(), "mkfs refuses");
    let names: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a.img"], "nothing half-made is left");
    for bad in ["", ".", "..", "a/b", "../x"] {
        assert_eq!(disk::make_image(directory.as_fd(), bad, 1 << 30, 100).unwrap_err().code(), "invalid");
        assert_eq!(disk::mount_image(directory.as_fd(), bad).unwrap_err().code(), "invalid");
    }
}

#[test]
fn a_link_in_place_of_an_image_is_refused() {
    let Some((scratch, directory)) = root_with_image("real.img") else { return };
    std::os::unix::fs::symlink("real.img", scratch.path().join("link.img")).unwrap();
    assert!(disk::mount_image(directory.as_fd(), "link.img").is_err());
    std::fs::create_dir(scratch.path().join("directory.img")).unwrap();
    assert!(disk::mount_image(directory.as_fd(), "directory.img").is_err());
}
