//! A root below which nothing leads out, against trees that try.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use box_core::SafeRoot;

/// A scratch directory with an `inside` that is the root and an `outside` that must stay as it is.
fn scratch() -> (tempfile::TempDir, SafeRoot) {
    let scratch = tempfile::tempdir().unwrap();
    fs::create_dir(scratch.path().join("inside")).unwrap();
    fs::create_dir(scratch.path().join("outside")).unwrap();
    fs::write(scratch.path().join("outside/secret"), "secret").unwrap();
    let root = SafeRoot::open_path(&scratch.path().join("inside")).unwrap();
    (scratch, root)
}

#[test]
fn files_directories_links_and_renames_work_below_the_root() {
    let (scratch, root) = scratch();
    root.make_directory_all("a/b/c", 0o755).unwrap();
    root.make_directory_all("a/b/c", 0o755).unwrap();
    root.create_new_file("a/b/c/file", 0o644).unwrap().write_all(b"hello").unwrap();
    assert!(root.create_new_file("a/b/c/file", 0o644).is_err(), "it is there");
    root.hard_link("a/b/c/file", "a/second").unwrap();
    root.symlink(OsStr::new("/etc/passwd"), "a/link").unwrap();
    root.rename_new("a/second", "a/third").unwrap();
    assert!(root.rename_new("a/third", "a/link").is_err());
    assert_eq!(root.read_to_end("a/third", 5).unwrap(), b"hello");
    assert_eq!(root.read_to_end("a/third", 4).unwrap_err().code(), "invalid");
    root.write_atomic("a/third", b"new", 0o600).unwrap();
    assert_eq!(root.read_to_end("a/third", 100).unwrap(), b"new");
    let mut names = root.list("a").unwrap();
    names.sort();
    assert_eq!(names, ["b", "link", "third"], "no partial file is left");
    assert!(root.look("a/link").unwrap().is_some() && root.look("a/nothing").unwrap().is_none());
    assert_eq!(root.below("a").unwrap().real_path().unwrap(), scratch.path().canonicalize().unwrap().join("inside/a"));
    root.remove_file("a/link").unwrap();
    root.remove_tree("a").unwrap();
    root.remove_tree("a").unwrap();
    assert!(root.list("").unwrap().is_empty());
}

#[test]
fn paths_that_leave_are_refused() {
    let (_scratch, root) = scratch();
    for bad in ["../outside/secret", "/etc/passwd", "a/../../outside/secret", "..", "/"] {
        assert_eq!(root.open(bad).unwrap_err().code(), "invalid", "{bad}");
        assert_eq!(root.create_new_file(bad, 0o644).unwrap_err().code(), "invalid", "{bad}");
        assert_eq!(root.make_directory_all(bad, 0o755).unwrap_err().code(), "invalid", "{bad}");
        assert_eq!(root.remove_tree(bad).unwrap_err().code(), "invalid", "{bad}");
        assert_eq!(root.rename("real", bad).unwrap_err().code(), "invalid", "{bad}");
    }
    assert_eq!(root.remove_tree("").unwrap_err().code(), "invalid", "the root itself stays");
}

#[test]
fn links_are_never_followed() {
    let (scratch, root) = scratch();
    let inside = scratch.path().join("inside");
    symlink("../outside", inside.join("way-out")).unwrap();
    symlink("../outside/secret", inside.join("file-out")).unwrap();
    symlink("/proc/self/root", inside.join("magic")).unwrap();
    fs::create_dir(inside.join("real")).unwrap();
    symlink("real", inside.join("way-in")).unwrap();
    for link in ["way-out/secret", "file-out", "magic/etc/passwd", "way-in/x"] {
        assert!(root.open(link).is_err(), "{link}");
    }
    for link in ["way-out/new", "magic/tmp/new", "way-in/new"] {
        assert!(root.create_new_file(link, 0o644).is_err(), "{link}");
        assert!(root.make_directory(link, 0o755).is_err(), "{link}");
        assert!(root.make_directory_all(format!("{link}/deep"), 0o755).is_err(), "{link}");
        assert!(root.write_atomic(link, b"x", 0o644).is_err(), "{link}");
        assert!(root.symlink(OsStr::new("x"), link).is_err(), "{link}");
    }
    root.write_atomic("file-out", b"replaces the link", 0o644).unwrap();
    assert!(root.remove_tree("way-out/secret").is_err());
    root.remove_tree("way-out").unwrap();
    assert_eq!(fs::read(scratch.path().join("outside/secret")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(scratch.path().join("outside")).unwrap().count(), 1);
}

#[test]
fn a_pipe_in_place_of_a_file_does_not_make_us_wait() {
    let (scratch, root) = scratch();
    let status = std::process::Command::new("mkfifo").arg(scratch.path().join("inside/pipe")).status().unwrap();
    assert!(status.success());
    assert_eq!(root.read_to_end("pipe", 10).unwrap(), b"");
}

#[test]
fn a_tree_of_twenty_thousand_levels_is_removed() {
    const LEVELS: usize = 20_000;
    // In memory, because file systems on disk take milliseconds for each level whoever removes it.
    let scratch = tempfile::tempdir_in("/dev/shm").unwrap();
    let root = SafeRoot::open_path(scratch.path()).unwrap();
    root.make_directory("deep", 0o755).unwrap();
    let mut current = root.below("deep").unwrap();
    for _ in 0..LEVELS {
        current.make_directory("d", 0o755).unwrap();
        current.create_new_file("f", 0o644).unwrap();
        current = current.below("d").unwrap();
    }
    drop(current);
    root.remove_tree("deep").unwrap();
    assert!(root.list("").unwrap().is_empty());
}

#[test]
fn a_wide_tree_with_closed_directories_is_removed() {
    let (scratch, root) = scratch();
    for directory in 0..50 {
        for file in 0..50 {
            root.make_directory_all(format!("wide/{directory}"), 0o755).unwrap();
            root.create_new_file(format!("wide/{directory}/{file}"), 0o000).unwrap();
        }
        let closed = scratch.path().join(format!("inside/wide/{directory}"));
        fs::set_permissions(closed, fs::Permissions::from_mode(if directory % 2 == 0 { 0 } else { 0o555 })).unwrap();
    }
    symlink("../../outside", scratch.path().join("inside/wide/link")).unwrap();
    root.remove_tree("wide").unwrap();
    assert!(root.list("").unwrap().is_empty());
    assert_eq!(fs::read(scratch.path().join("outside/secret")).unwrap(), b"secret");
}

#[test]
fn swapping_a_directory_for_a_link_gains_nothing() {
    let (scratch, root) = scratch();
    let inside = scratch.path().join("inside");
    fs::create_dir(inside.join("real")).unwrap();
    symlink("../outside", inside.join("link")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, root) = (Arc::clone(&stop), SafeRoot::open_path(&inside).unwrap());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let _ = root.rename("real", "spare").and_then(|()| root.rename("link", "real"));
                let _ = root.rename("real", "link").and_then(|()| root.rename("spare", "real"));
            }
        })
    };
    let mut made = 0;
    // On a machine that is busy elsewhere the swapper can rest for a long time with the link in place.
    for number in 0..5_000_000 {
        if number >= 5000 && made > 0 {
            break;
        }
        made += usize::from(root.create_new_file(format!("real/{number}"), 0o644).is_ok());
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert_eq!(fs::read_dir(scratch.path().join("outside")).unwrap().count(), 1, "nothing was made outside");
    assert!(made > 0, "the control: some were made where they belong");
}
