//! Archives that nobody makes by mistake, and what becomes of them.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use tar::{Builder, Header};

use super::*;

/// An archive of entries: type, name as it is written, what a link says, content.
fn archive(entries: &[(EntryType, &str, &str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, target, content) in entries {
        let mut header = Header::new_gnu();
        // The crate refuses to write such names, but takes a head in which they are.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o7777);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// A directory to unpack into, and a secret one beside it.
struct Ground {
    place: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("in")).unwrap();
        std::fs::create_dir(place.path().join("out")).unwrap();
        std::fs::write(place.path().join("out/secret"), "untouched").unwrap();
        Self { place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn unpack(&self, mut bytes: &[u8]) -> Result<Unpacked, Fault> {
        unpack(&mut bytes, &SafeRoot::open_path(&self.path("in")).unwrap())
    }

    /// Nothing beside the directory may have changed.
    fn check(&self, what: &str) {
        assert_eq!(std::fs::read_to_string(self.path("out/secret")).unwrap(), "untouched", "{what}");
        for (directory, count) in [("out", 1), (".", 2)] {
            assert_eq!(std::fs::read_dir(self.path(directory)).unwrap().count(), count, "{what}");
        }
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in ["../evil", "a/../../evil", "/evil", "/../evil", "..", "./../evil", "//evil", "a/..", "out/../../evil"]
    {
        for kind in [EntryType::Regular, EntryType::Directory] {
            let ground = Ground::new();
            let refused = ground.unpack(&archive(&[(kind, name, "", b"")]));
            assert!(refused.is_err(), "{name} {kind:?}");
            ground.check(name);
        }
    }
}

#[test]
fn links_and_special_files_are_left_out_and_lead_nowhere() {
    let (regular, link, hard) = (EntryType::Regular, EntryType::Symlink, EntryType::Link);
    let ground = Ground::new();
    let bytes = archive(&[
        (link, "escape", "../out", b""),
        (regular, "escape/secret", "", b"evil"),
        (link, "file", "../out/secret", b""),
        (regular, "file", "", b"evil"),
        (hard, "hard", "../out/secret", b""),
        (regular, "hard", "", b"evil"),
        (EntryType::Char, "device", "", b""),
        (EntryType::Block, "disk", "", b""),
        (EntryType::Fifo, "pipe", "", b""),
    ]);
    let done = ground.unpack(&bytes).unwrap();
    assert_eq!(done, Unpacked { files: 3, bytes: 12, skipped: 6 });
    ground.check("links");
    for name in ["escape/secret", "file", "hard"] {
        let written = std::fs::symlink_metadata(ground.path("in").join(name)).unwrap();
        assert!(written.is_file() && written.nlink() == 1, "{name}");
    }
    assert!(!ground.path("in/device").exists() && !ground.path("in/pipe").exists());
}

#[test]
fn links_that_are_there_are_replaced_and_never_followed() {
    let ground = Ground::new();
    symlink("../out/secret", ground.path("in/file")).unwrap();
    symlink("../out", ground.path("in/directory")).unwrap();
    ground.unpack(&archive(&[(EntryType::Regular, "file", "", b"new")])).unwrap();
    assert_eq!(std::fs::read_to_string(ground.path("in/file")).unwrap(), "new");
    for (kind, name) in [(EntryType::Regular, "directory/secret"), (EntryType::Directory, "directory/new")] {
        let refused = ground.unpack(&archive(&[(kind, name, "", b"")])).unwrap_err();
        assert!(refused.message.contains("directory"), "{}", refused.message);
    }
    ground.check("links of before");
}

#[test]
fn nobodys_rights_are_lent_and_directories_stay_usable() {
    let ground = Ground::new();
    let mut header = Header::new_gnu();
    header.set_path("closed").unwrap();
    header.set_entry_type(EntryType::Directory);
    header.set_mode(0o000);
    header.set_size(0);
    header.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&header, io::empty()).unwrap();
    ground.unpack(&builder.into_inner().unwrap()).unwrap();
    ground.unpack(&archive(&[(EntryType::Regular, "closed/program", "", b"x")])).unwrap();
    let mode = |name: &str| ground.path(name).metadata().unwrap().permissions().mode();
    assert_eq!(mode("in/closed/program") & 0o7000, 0);
    assert_eq!(mode("in/closed") & 0o7700, 0o700);
}

#[test]
fn a_file_does_not_take_the_place_of_a_directory_nor_leave_anything_when_refused() {
    let ground = Ground::new();
    std::fs::create_dir_all(ground.path("in/directory/inner")).unwrap();
    assert!(ground.unpack(&archive(&[(EntryType::Regular, "directory", "", b"x")])).is_err());
    assert_eq!(std::fs::read_dir(ground.path("in")).unwrap().count(), 1);
    assert!(ground.path("in/directory/inner").is_dir());
}

#[test]
fn an_archive_that_breaks_off_is_an_error_and_what_was_there_stays() {
    let ground = Ground::new();
    std::fs::write(ground.path("in/file"), "old").unwrap();
    let bytes = archive(&[(EntryType::Regular, "file", "", &[b'x'; 4000])]);
    assert!(ground.unpack(&bytes[..2000]).is_err());
    assert_eq!(std::fs::read_to_string(ground.path("in/file")).unwrap(), "old");
    assert_eq!(std::fs::read_dir(ground.path("in")).unwrap().count(), 1);
    assert!(ground.unpack(b"this is no archive at all").is_err());
}

#[test]
fn a_name_without_end_costs_no_memory() {
    let mut header = Header::new_gnu();
    header.set_path("././@LongLink").unwrap();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(1 << 40);
    header.set_cksum();
    let mut endless = header.as_bytes().as_slice().chain(io::repeat(b'a'));
    let ground = Ground::new();
    let refused = unpack(&mut endless, &SafeRoot::open_path(&ground.path("in")).unwrap()).unwrap_err();
    assert!(refused.message.contains("head of more than"), "{}", refused.message);
}

#[test]
fn a_plain_archive_comes_out_as_it_was() {
    let source = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(source.path().join("a/b")).unwrap();
    let long = "n".repeat(200);
    std::fs::write(source.path().join("a/b").join(&long), "words").unwrap();
    std::fs::write(source.path().join("script"), "#!/bin/sh").unwrap();
    std::fs::set_permissions(source.path().join("script"), PermissionsExt::from_mode(0o755)).unwrap();
    let mut bytes = Vec::new();
    super::super::pack(source.path(), &mut bytes).unwrap();
    let ground = Ground::new();
    assert_eq!(ground.unpack(&bytes).unwrap(), Unpacked { files: 2, bytes: 14, skipped: 0 });
    assert_eq!(std::fs::read_to_string(ground.path("in/a/b").join(&long)).unwrap(), "words");
    assert_eq!(ground.path("in/script").metadata().unwrap().permissions().mode() & 0o100, 0o100);
}
