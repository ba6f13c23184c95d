//! Root file systems from directories and from tar files, good and hostile.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use box_core::{Error, Image, SafeRoot};
use box_native::image::{self, RootTree};
use tar::{Builder, EntryType, Header};

/// A tar file, a cache, and a place outside that must stay as it is.
struct Scratch {
    directory: tempfile::TempDir,
    cache: SafeRoot,
}

impl Scratch {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("cache")).unwrap();
        fs::create_dir(directory.path().join("outside")).unwrap();
        let cache = SafeRoot::open_path(&directory.path().join("cache")).unwrap();
        Self { directory, cache }
    }

    fn write(&self, archive: &[u8]) -> Image {
        let path = self.directory.path().join("image.tar");
        fs::write(&path, archive).unwrap();
        Image::Tar(path)
    }

    fn resolve(&self, archive: &[u8]) -> box_core::Result<RootTree> {
        image::resolve(&self.write(archive), &self.cache).map(Option::unwrap)
    }

    /// Unpacks something hostile; it must be refused, leaving nothing inside and nothing outside. Returns the reason.
    fn refused(&self, archive: &[u8]) -> String {
        let error = self.resolve(archive).unwrap_err();
        assert_eq!(error.code(), "bad_image", "{error}");
        assert_eq!(fs::read_dir(self.directory.path().join("outside")).unwrap().count(), 0);
        let trees = fs::read_dir(self.directory.path().join("cache/trees")).unwrap().count();
        assert_eq!(trees, 0, "no tree of it is kept");
        assert!(!self.directory.path().join("cache/unpacking").exists());
        error.to_string()
    }
}

/// A tar file in the making. Names go in as they are, however bad.
struct Tar(Builder<Vec<u8>>);

impl Tar {
    /// With the one directory that every root file system has.
    fn new() -> Self {
        Self(Builder::new(Vec::new())).directory("./bin/", 0o755)
    }

    fn add(mut self, kind: EntryType, name: &str, link: &str, mode: u32, contents: &[u8]) -> Self {
        self.0.append(&header(kind, name, link, mode, contents.len() as u64), contents).unwrap();
        self
    }

    fn directory(self, name: &str, mode: u32) -> Self {
        self.add(EntryType::Directory, name, "", mode, b"")
    }

    fn file(self, name: &str, contents: &[u8]) -> Self {
        self.add(EntryType::Regular, name, "", 0o644, contents)
    }

    fn symlink(self, name: &str, target: &str) -> Self {
        self.add(EntryType::Symlink, name, target, 0o777, b"")
    }

    fn hard_link(self, name: &str, target: &str) -> Self {
        self.add(EntryType::Link, name, target, 0o644, b"")
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

fn header(kind: EntryType, name: &str, link: &str, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(1000);
    header.set_gid(70_000);
    header.set_mtime(1_600_000_000);
    header.set_size(size);
    header.set_cksum();
    header
}

#[test]
fn a_good_tar_becomes_a_tree_once() {
    let scratch = Scratch::new();
    let long = format!("usr/{}/file", "long/".repeat(60));
    let mut tar = Tar::new()
        .add(EntryType::Regular, "bin/sh", "", 0o6755, b"#!")
        .hard_link("bin/ash", "./bin/sh")
        .symlink("lib", "../../outside")
        .directory("tmp", 0o1777)
        .file("etc/deep/unmentioned", b"x")
        .add(EntryType::Block, "dev-sda", "", 0o666, b"")
        .add(EntryType::Fifo, "pipe", "", 0o666, b"")
        .file("twice", b"first")
        .file("twice", b"second");
    let mut plain = header(EntryType::Regular, "", "", 0o600, 4);
    tar.0.append_data(&mut plain, &long, &b"long"[..]).unwrap();
    let archive = tar.bytes();
    let tree = scratch.resolve(&archive).unwrap();
    let at = |name: &str| tree.path.join(name);
    let mode = |name: &str| fs::symlink_metadata(at(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("bin/sh"), mode("tmp"), mode(""), mode("etc/deep")), (0o755, 0o1777, 0o755, 0o755));
    assert_eq!(fs::metadata(at("bin/sh")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(at("bin/sh")).unwrap().mtime(), 1_600_000_000);
    assert_eq!(fs::read_link(at("lib")).unwrap(), Path::new("../../outside"));
    assert_eq!(fs::read(at(&long)).unwrap(), b"long");
    assert_eq!(fs::read(at("twice")).unwrap(), b"second");
    assert!(!at("dev-sda").exists() && !at("pipe").exists());
    if rustix::process::geteuid().is_root() {
        let owner = fs::metadata(at("bin/sh")).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (1000, 0), "an id that no box has becomes root's");
        assert!(tree.owned_by_root);
    }
    let inode = fs::metadata(&tree.path).unwrap().ino();
    let again =
        image::resolve(&Image::Tar(scratch.directory.path().join("image.tar")), &scratch.cache).unwrap().unwrap();
    assert_eq!(fs::metadata(&again.path).unwrap().ino(), inode, "known by its identity");
    let copy = scratch.resolve(&archive).unwrap();
    assert_eq!(fs::metadata(&copy.path).unwrap().ino(), inode, "known by its hash");
    assert_ne!(scratch.resolve(&Tar::new().file("other", b"").bytes()).unwrap().path, tree.path);
}

#[test]
fn hostile_tars_are_refused_and_touch_nothing() {
    let scratch = Scratch::new();
    let outside = scratch.directory.path().join("outside").display().to_string();
    let cases = [
        ("below", Tar::new().symlink("way", &outside).file("way/in", b"x")),
        ("a link is in the way", Tar::new().symlink("way", "../../../outside").directory("way/deep/er", 0o755)),
        ("below", Tar::new().symlink("a", &outside).hard_link("a/b", "bin/sh")),
        ("upwards", Tar::new().file("../outside/file", b"x")),
        ("upwards", Tar::new().file("bin/../../../outside/file", b"x")),
        ("absolute", Tar::new().file(&format!("{outside}/file"), b"x")),
        ("upwards", Tar::new().hard_link("passwd", "../../../etc/passwd")),
        ("absolute", Tar::new().hard_link("passwd", "/etc/passwd")),
        ("no earlier file", Tar::new().hard_link("passwd", "etc/passwd")),
        ("cannot be unpacked", Tar::new().symlink("etc", "/etc").hard_link("passwd", "etc/passwd")),
        ("cannot be unpacked", Tar::new().file("bin", b"a file in place of a directory")),
        ("below", Tar::new().file("f", b"").file("f/g", b"")),
        ("top", Tar::new().file("./", b"x")),
        ("says nothing", Tar::new().symlink("empty", "")),
        ("not known", Tar::new().add(EntryType::new(b'Z'), "z", "", 0o644, b"")),
        ("sparse", Tar::new().add(EntryType::GNUSparse, "s", "", 0o644, b"")),
        ("sparse", Tar::new().add(EntryType::XHeader, "x", "", 0o644, b"22 GNU.sparse.major=1\n").file("f", b"")),
        ("upwards", Tar::new().add(EntryType::XHeader, "x", "", 0o644, b"13 path=../x\n").file("f", b"")),
        ("8 GiB", Tar::new().add(EntryType::XHeader, "x", "", 0o644, b"12 size=999\n").file("f", b"")),
        ("damaged", Tar::new().add(EntryType::XHeader, "x", "", 0o644, b"99 path=x\n").file("f", b"")),
        ("upwards", Tar::new().add(EntryType::GNULongName, "L", "", 0o644, b"../outside/x\0").file("f", b"")),
        ("longer", Tar::new().add(EntryType::GNULongName, "L", "", 0o644, &vec![b'a'; 2 << 20]).file("f", b"")),
    ];
    for (expected, tar) in cases {
        let reason = scratch.refused(&tar.bytes());
        assert!(reason.contains(expected), "expected {expected}: {reason}");
    }
}

#[test]
fn sizes_that_lie_are_refused() {
    let scratch = Scratch::new();
    let with = |size: u64, contents: &[u8]| {
        let mut archive = Tar::new().bytes();
        archive.truncate(512);
        archive.write_all(header(EntryType::Regular, "big", "", 0o644, size).as_bytes()).unwrap();
        archive.write_all(contents).unwrap();
        archive
    };
    assert!(scratch.refused(&with(1 << 50, b"little")).contains("larger than"), "a size beyond the limit");
    assert!(scratch.refused(&with(1 << 20, b"little")).contains("middle of big"), "a size beyond the end");
    assert!(scratch.refused(&[b'x'; 2048]).contains("not a whole tar"), "not a tar file");
    assert!(scratch.refused(b"").contains("no bin"), "nothing at all");
    assert!(scratch.refused(&Builder::new(Vec::new()).into_inner().unwrap()).contains("no bin"), "an empty archive");
}

#[test]
fn compressed_tars_name_the_tool() {
    let scratch = Scratch::new();
    assert!(scratch.refused(&[0x1f, 0x8b, 8, 0, 0]).contains("gunzip it first"));
    assert!(scratch.refused(&[0x28, 0xb5, 0x2f, 0xfd, 0]).contains("unzstd it first"));
}

#[test]
fn what_an_interrupted_unpacking_left_is_removed() {
    let scratch = Scratch::new();
    let left = scratch.directory.path().join("cache/unpacking/bin");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("half"), "half").unwrap();
    let tree = scratch.resolve(&Tar::new().file("bin/whole", b"whole").bytes()).unwrap();
    assert!(tree.path.join("bin/whole").exists() && !tree.path.join("bin/half").exists());
    assert!(!scratch.directory.path().join("cache/unpacking").exists());
}

#[test]
fn many_at_once_get_the_same_tree() {
    let scratch = Scratch::new();
    let image = scratch.write(&Tar::new().file("bin/sh", &vec![1; 1 << 20]).bytes());
    let cache = scratch.directory.path().join("cache");
    let paths: Vec<_> = std::thread::scope(|scope| {
        let resolve = || image::resolve(&image, &SafeRoot::open_path(&cache).unwrap()).unwrap().unwrap().path;
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(resolve)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(paths.iter().all(|path| *path == paths[0]));
}

#[test]
fn directories_are_taken_when_they_look_like_a_root() {
    let scratch = Scratch::new();
    let resolve = |path: &Path| image::resolve(&Image::Directory(path.to_owned()), &scratch.cache);
    let reason = |path: &Path| match resolve(path).unwrap_err() {
        Error::BadImage { reason, .. } => reason,
        other => other.to_string(),
    };
    let root = scratch.directory.path().join("root");
    fs::create_dir_all(root.join("usr")).unwrap();
    symlink(&root, scratch.directory.path().join("link")).unwrap();
    let tree = resolve(&scratch.directory.path().join("link")).unwrap().unwrap();
    assert_eq!(tree.path, root.canonicalize().unwrap());
    assert!(reason(Path::new("/")).contains("host's own root"));
    assert!(reason(Path::new("/proc/self/root")).contains("host's own root"));
    assert!(reason(&scratch.directory.path().join("outside")).contains("no bin, usr or sbin"));
    assert!(reason(&scratch.directory.path().join("missing")).contains("No such file"));
    assert!(image::resolve(&Image::Host, &scratch.cache).unwrap().is_none());
    let directory_as_tar = image::resolve(&Image::Tar(root), &scratch.cache).unwrap_err();
    assert!(directory_as_tar.to_string().contains("not a file"), "{directory_as_tar}");
}
