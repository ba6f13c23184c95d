use std::fs;
use std::io;
use std::path::Path;

use tar::{Builder, Header};

use super::*;

/// An archive of entries with these types, names, link names and bytes.
fn archive(entries: &[(EntryType, &str, &str, &str)]) -> Vec<u8> {
    ended(part(entries))
}

fn part(entries: &[(EntryType, &str, &str, &str)]) -> Builder<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for (kind, name, target, bytes) in entries {
        add(&mut archive, *kind, name, target, bytes, |_| {});
    }
    archive
}

fn add(
    archive: &mut Builder<Vec<u8>>,
    kind: EntryType,
    name: &str,
    target: &str,
    bytes: &str,
    change: impl FnOnce(&mut Header),
) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(bytes.len() as u64);
    header.set_mode(0o750);
    header.set_mtime(1_000_000_000);
    header.set_device_major(0).unwrap();
    header.set_device_minor(0).unwrap();
    // By hand, because the library makes no bad archives.
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    change(&mut header);
    header.set_cksum();
    archive.append(&header, bytes.as_bytes()).unwrap();
}

fn ended(mut archive: Builder<Vec<u8>>) -> Vec<u8> {
    let mut end = Header::new_ustar();
    end.set_entry_type(EntryType::XGlobalHeader);
    end.set_size(END.len() as u64);
    archive.append_data(&mut end, "end", END).unwrap();
    archive.into_inner().unwrap()
}

/// A storage next to a file that must stay unchanged.
struct Ground {
    outer: tempfile::TempDir,
    storage: OwnedFd,
}

impl Ground {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        fs::write(outer.path().join("secret"), "old").unwrap();
        fs::create_dir(outer.path().join("storage")).unwrap();
        let storage = File::open(outer.path().join("storage")).unwrap().into();
        Self { outer, storage }
    }

    fn fill(&self, archive: impl Read) -> Done<()> {
        let fallback = User { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() };
        fill(&self.storage, archive, fallback)
    }

    fn refuses(&self, archive: &[u8]) -> String {
        match self.fill(archive) {
            Err(refusal @ Refusal::Bad(_)) => refusal.to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.outer.path().join("storage").join(name)
    }

    fn is_untouched_outside(&self) -> bool {
        let mut names: Vec<_> =
            fs::read_dir(self.outer.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names == ["secret", "storage"] && fs::read(self.outer.path().join("secret")).unwrap() == b"old"
    }
}

const DIRECTORY: EntryType = EntryType::Directory;
const FILE: EntryType = EntryType::Regular;
const LINK: EntryType = EntryType::Symlink;
const NAME: EntryType = EntryType::Link;

#[test]
fn what_a_box_can_make_comes_out_as_it_went_in() {
    let ground = Ground::new();
    let bytes = archive(&[
        (DIRECTORY, "root/", "", ""),
        (DIRECTORY, "root/etc/", "", ""),
        (FILE, "root/etc/file", "", "text"),
        (NAME, "root/etc/second", "root/etc/file", ""),
        (LINK, "root/out", "/etc", ""),
        (EntryType::Fifo, "root/pipe", "", ""),
        (DIRECTORY, "places/", "", ""),
        (DIRECTORY, "places/%2Fusr/", "", ""),
        (EntryType::Char, "places/%2Fusr/gone", "", ""),
    ]);
    ground.fill(&bytes[..]).unwrap();
    assert_eq!(fs::read_to_string(ground.path("root/etc/second")).unwrap(), "text");
    assert_eq!(fs::read_link(ground.path("root/out")).unwrap(), Path::new("/etc"));
    let seconds = |name: &str| {
        let changed = fs::symlink_metadata(ground.path(name)).unwrap().modified().unwrap();
        changed.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    };
    for name in ["root", "root/etc", "root/etc/file", "root/out", "places/%2Fusr"] {
        assert_eq!(seconds(name), 1_000_000_000, "{name}");
    }
    let stat = |name: &str| rustix::fs::lstat(ground.path(name)).unwrap();
    assert_eq!((stat("places/%2Fusr/gone").st_rdev, stat("root/etc").st_mode & 0o7777), (0, 0o750));
    assert_eq!(stat("root/etc/file").st_ino, stat("root/etc/second").st_ino);
    assert!(ground.is_untouched_outside());
}

#[test]
fn an_archive_cannot_leave_the_storage() {
    let (root, places) = ((DIRECTORY, "root", "", ""), (DIRECTORY, "places", "", ""));
    for entries in [
        vec![(FILE, "../x", "", "x")],
        vec![(FILE, "root/../../x", "", "x")],
        vec![(FILE, "/x", "", "x")],
        vec![(FILE, "/root/x", "", "x")],
        vec![(FILE, "x", "", "x")],
        vec![(DIRECTORY, "empty", "", "")],
        vec![(FILE, "root", "", "x")],
        vec![(LINK, "root", "..", "")],
        vec![(LINK, "places", "/", "")],
        vec![(FILE, "root/x", "", "x")],
        vec![root, (LINK, "root/l", "..", ""), (FILE, "root/l/x", "", "x")],
        vec![root, (LINK, "root/l", "../..", ""), (DIRECTORY, "root/l/x", "", "")],
        vec![root, (LINK, "root/l", "../../secret", ""), (FILE, "root/l", "", "new")],
        vec![root, (LINK, "root/l", "..", ""), (DIRECTORY, "root/l", "", "")],
        vec![root, (FILE, "root/x", "", "x"), (FILE, "root/x", "", "y")],
        vec![root, (FILE, "root/x", "", "x"), (FILE, "root/x/y", "", "y")],
        vec![root, (NAME, "root/x", "../secret", "")],
        vec![root, (NAME, "root/x", "/etc/passwd", "")],
        vec![root, (NAME, "root/x", "root/x", "")],
        vec![root, (LINK, "root/l", "../../secret", ""), (NAME, "root/x", "root/l", "")],
        vec![root, (LINK, "root/l", "../..", ""), (NAME, "root/x", "root/l/secret", "")],
        vec![root, places, (FILE, "root/x", "", "x"), (NAME, "places/x", "root/x", "")],
        vec![root, (LINK, "root/x", "", "")],
        vec![root, (EntryType::Block, "root/x", "", "")],
        vec![root, (EntryType::GNUSparse, "root/x", "", "")],
        vec![root, (EntryType::new(b'Z'), "root/x", "", "")],
    ] {
        let ground = Ground::new();
        ground.refuses(&archive(&entries));
        assert!(ground.is_untouched_outside(), "{entries:?}");
    }
}

#[test]
fn the_one_device_is_that_of_overlays() {
    for (major, minor) in [(8, 0), (1, 3), (0, 1)] {
        let mut entries = part(&[(DIRECTORY, "root", "", "")]);
        add(&mut entries, EntryType::Char, "root/x", "", "", |header| {
            header.set_device_major(major).unwrap();
            header.set_device_minor(minor).unwrap();
        });
        let ground = Ground::new();
        ground.refuses(&ended(entries));
        assert!(!ground.path("root/x").exists());
    }
}

#[test]
fn what_is_no_archive_or_not_all_of_it_is_refused() {
    let entries = [(DIRECTORY, "root", "", ""), (FILE, "root/a", "", "12345")];
    let whole = archive(&entries);
    for length in [0, 1, 100, 511, 512, 514, 1024, 1030, 1536, 2048, 2050] {
        Ground::new().refuses(&whole[..length]);
    }
    assert!(Ground::new().refuses(&part(&entries).into_inner().unwrap()).contains("its end is missing"));
    Ground::new().refuses(&vec![0x1f; 4096]);
    Ground::new().refuses(&vec![0; 4096]);
    let mut more = part(&entries);
    let mut end = Header::new_ustar();
    end.set_entry_type(EntryType::XGlobalHeader);
    end.set_size(END.len() as u64);
    more.append_data(&mut end, "end", END).unwrap();
    add(&mut more, FILE, "root/b", "", "x", |_| {});
    assert!(Ground::new().refuses(&ended(more)).contains("follows its end"));
}

#[test]
fn claims_cost_nothing() {
    let huge = |kind, name: &str| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(1 << 60);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        header
    };
    let root = part(&[(DIRECTORY, "root", "", "")]);
    let root = &root.into_inner().unwrap()[..512];
    let file = [root, huge(FILE, "root/x").as_bytes(), b"short"].concat();
    assert!(Ground::new().refuses(&file).contains("in the middle of a file"));
    for kind in [EntryType::GNULongName, EntryType::XHeader] {
        let header = huge(kind, "root/x");
        let endless = root.chain(&header.as_bytes()[..]).chain(io::repeat(b'x'));
        assert!(matches!(Ground::new().fill(endless), Err(Refusal::Bad(_))), "{kind:?}");
    }
}

/// An archive of one file with these records.
fn with_records(records: &[(&str, &str)], bytes: &str) -> Vec<u8> {
    let mut archive = part(&[(DIRECTORY, "root", "", "")]);
    archive.append_pax_extensions(records.iter().map(|(key, text)| (*key, text.as_bytes()))).unwrap();
    add(&mut archive, FILE, "root/x", "", bytes, |_| {});
    ended(archive)
}

#[test]
fn parts_of_a_file_are_those_of_a_file() {
    for text in ["", "x", "5,0", "5,0,6", "5,6,5", "9,4,3,0,2", "9,0,4", "18446744073709551615,18446744073709551614,5"]
    {
        Ground::new().refuses(&with_records(&[(EXTENTS, text)], "12345"));
    }
    let ground = Ground::new();
    ground.fill(&with_records(&[(EXTENTS, "1099511627776,4096,2,8192,3")], "12345")[..]).unwrap();
    let stat = rustix::fs::stat(ground.path("root/x")).unwrap();
    assert_eq!(stat.st_size, 1 << 40);
    assert!(stat.st_blocks * 512 < 1 << 20, "a hole takes no room");
    let too_long = with_records(&[(EXTENTS, "18446744073709551615,0,5")], "12345");
    assert!(matches!(Ground::new().fill(&too_long[..]), Err(Refusal::Failed(..))));
}

#[test]
fn attributes_are_those_of_users() {
    let record = |name: &str| crate::snapshot::attribute_text(name.as_bytes(), b"y");
    for name in ["security.capability", "trusted.overlay.opaque", "user.overlay.redirect", "user.overlay.origin", ""] {
        Ground::new().refuses(&with_records(&[(ATTRIBUTE, &record(name))], "12345"));
    }
    Ground::new().refuses(&with_records(&[(ATTRIBUTE, "zz:00")], "12345"));
    Ground::new().refuses(&with_records(&[(ATTRIBUTE, "0:0")], "12345"));
}
