//! Root file systems from directories and from tar files, good and hostile.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use box_core::{Error, Image};
use box_images::{Images, ImagesConfig, RootTree};
use tar::{Builder, EntryType};

use crate::support::tar::{Tar, header};

/// A tar file, a cache, and a place outside that must stay as it is.
struct Scratch {
    directory: tempfile::TempDir,
    cache: Images,
}

impl Scratch {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("cache")).unwrap();
        fs::create_dir(directory.path().join("outside")).unwrap();
        let cache = Images::open(&directory.path().join("cache"), ImagesConfig::default()).unwrap();
        Self { directory, cache }
    }

    fn write(&self, archive: &[u8]) -> Image {
        let path = self.directory.path().join("image.tar");
        fs::write(&path, archive).unwrap();
        Image::Tar(path)
    }

    fn resolve(&self, archive: &[u8]) -> box_core::Result<RootTree> {
        self.cache.resolve(&self.write(archive), "box").map(Option::unwrap)
    }

    /// Unpacks something hostile; it must be refused, leaving nothing inside and nothing outside. Returns the reason.
    fn refused(&self, archive: &[u8]) -> String {
        let error = self.resolve(archive).unwrap_err();
        assert_eq!(error.code(), "bad_image", "{error}");
        assert_eq!(fs::read_dir(self.directory.path().join("outside")).unwrap().count(), 0);
        let trees = fs::read_dir(self.directory.path().join("cache/trees")).unwrap().count();
        assert_eq!(trees, 0, "no tree of it is kept");
        assert_eq!(fs::read_dir(self.directory.path().join("cache/work")).unwrap().count(), 0);
        error.to_string()
    }
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
    let again = scratch.cache.resolve(&Image::Tar(scratch.directory.path().join("image.tar")), "box").unwrap().unwrap();
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
fn compressed_tars_are_unpacked_or_name_the_tool() {
    let scratch = Scratch::new();
    assert!(scratch.refused(&[0x1f, 0x8b, 8, 0, 0]).contains("not a whole tar"));
    assert!(scratch.refused(b"\xfd7zXZ\0").contains("unxz it first"));
    let plain = Tar::new().file("bin/sh", b"x").bytes();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
    for archive in [gzip.finish().unwrap(), zstd] {
        let tree = scratch.resolve(&archive).unwrap();
        assert_eq!(fs::read(tree.path.join("bin/sh")).unwrap(), b"x");
    }
}

#[test]
fn names_that_take_away_in_layers_are_names_in_a_root() {
    let scratch = Scratch::new();
    let tree = scratch.resolve(&Tar::new().file("bin/sh", b"x").file("bin/.wh.sh", b"y").bytes()).unwrap();
    assert!(tree.path.join("bin/sh").exists() && tree.path.join("bin/.wh.sh").exists());
}

#[test]
fn what_an_interrupted_unpacking_left_is_removed() {
    let scratch = Scratch::new();
    let cache = scratch.directory.path().join("cache");
    for left in ["unpacking/bin", "work/0123/tree/bin"] {
        fs::create_dir_all(cache.join(left)).unwrap();
        fs::write(cache.join(left).join("half"), "half").unwrap();
    }
    Images::open(&cache, ImagesConfig::default()).unwrap();
    assert!(!cache.join("unpacking").exists() && !cache.join("work/0123").exists());
    let tree = scratch.resolve(&Tar::new().file("bin/whole", b"whole").bytes()).unwrap();
    assert!(tree.path.join("bin/whole").exists() && !tree.path.join("bin/half").exists());
}

#[test]
fn many_at_once_get_the_same_tree() {
    let scratch = Scratch::new();
    let image = scratch.write(&Tar::new().file("bin/sh", &vec![1; 1 << 20]).bytes());
    let cache = scratch.directory.path().join("cache");
    let open = || Images::open(&cache, ImagesConfig::default()).unwrap();
    let resolve = &|number: u32| open().resolve(&image, &format!("box-{number}")).unwrap().unwrap().path;
    let paths: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || resolve(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(paths.iter().all(|path| *path == paths[0]));
}

#[test]
fn directories_are_taken_when_they_look_like_a_root() {
    let scratch = Scratch::new();
    let resolve = |path: &Path| scratch.cache.resolve(&Image::Directory(path.to_owned()), "box");
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
    assert!(scratch.cache.resolve(&Image::Host, "box").unwrap().is_none());
    let directory_as_tar = scratch.cache.resolve(&Image::Tar(root), "box").unwrap_err();
    assert!(directory_as_tar.to_string().contains("not a file"), "{directory_as_tar}");
}
