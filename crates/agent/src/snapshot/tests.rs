use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use box_wire::User;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};

fn save(top: &Path) -> Vec<u8> {
    let overlays = ["over".to_owned()];
    crate::file_op::save::write_archive(File::open(top).unwrap().into(), &overlays, Vec::new()).unwrap()
}

fn restore(archive: &[u8]) -> tempfile::TempDir {
    let storage = tempfile::tempdir().unwrap();
    let user = User { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() };
    crate::setup::fill(&File::open(storage.path()).unwrap().into(), archive, user).unwrap();
    storage
}

/// A storage with a bit of everything.
fn storage() -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    for name in ["root/etc", "places/over/upper/opaque", "places/over/lower/x", "places/over/work/work"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    for name in ["places/plain/upper", "places/plain/lower/kept", "places/plain/work", "empty", "lost+found"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    fs::write(at("root/etc/file"), "text").unwrap();
    fs::set_permissions(at("root/etc/file"), Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(at("root/etc/file"), at("root/second")).unwrap();
    symlink("..//x", at("root/link")).unwrap();
    fs::write(at(&format!("root/{}", "n".repeat(250))), "").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("root/socket")).unwrap();
    let sparse = File::create(at("root/sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    sparse.write_all_at(b"middle", 1 << 30).unwrap();
    rustix::fs::mknodat(CWD, at("places/over/upper/gone"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    rustix::fs::mknodat(CWD, at("root/pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    top
}

#[test]
fn what_was_saved_is_seeded() {
    let top = storage();
    let mark = |name: &str, value: &[u8]| {
        let path = top.path().join("places/over/upper/opaque");
        rustix::fs::setxattr(path, name, value, XattrFlags::empty())
    };
    let has_attributes = mark("user.overlay.opaque", b"y").is_ok();
    if has_attributes {
        mark("user.overlay.origin", b"x").unwrap();
        mark("user.e2b.a=b\n", b"\n\0\xff").unwrap();
    }
    let archive = save(top.path());
    assert!(archive.len() < 1 << 20, "holes are not saved");
    let again = restore(&archive);
    let at = |name: &str| again.path().join(name);
    let stat = |name: &str| fs::symlink_metadata(at(name)).unwrap();
    assert_eq!(
        (stat("root/etc/file").mode() & 0o7777, fs::read(at("root/second")).unwrap()),
        (0o4751, b"text".to_vec())
    );
    assert_eq!(stat("root/etc/file").ino(), stat("root/second").ino());
    assert_eq!(fs::read_link(at("root/link")).unwrap(), Path::new("..//x"));
    assert!(at(&format!("root/{}", "n".repeat(250))).exists());
    let mut middle = [0; 8];
    File::open(at("root/sparse")).unwrap().read_exact_at(&mut middle, (1 << 30) - 1).unwrap();
    assert_eq!((&middle, stat("root/sparse").size()), (b"\0middle\0", 1 << 40));
    assert_eq!((stat("places/over/upper/gone").rdev(), stat("root/pipe").mode() & 0o777), (0, 0o400));
    for name in ["places/over/lower", "places/over/work", "empty", "lost+found", "root/socket"] {
        assert!(!at(name).exists(), "{name}");
    }
    assert!(at("places/plain/lower/kept").exists() && at("places/plain/work").exists());
    let told = |name: &str| {
        let mut value = [0; 16];
        rustix::fs::getxattr(at("places/over/upper/opaque"), name, &mut value).map(|length| value[..length].to_vec())
    };
    if has_attributes {
        assert_eq!(told("user.overlay.opaque").unwrap(), b"y");
        assert_eq!(told("user.e2b.a=b\n").unwrap(), b"\n\0\xff");
        assert!(told("user.overlay.origin").is_err(), "it points to a file of the layer below");
    }
    assert_eq!(save(again.path()).len(), archive.len(), "and once more");
}

#[test]
fn a_file_of_many_holes_is_whole() {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir(top.path().join("root")).unwrap();
    let file = File::create(top.path().join("root/comb")).unwrap();
    let teeth = 5000_u64;
    file.set_len(teeth << 17).unwrap();
    for tooth in 0..teeth {
        file.write_all_at(&tooth.to_ne_bytes(), tooth << 17).unwrap();
    }
    let again = restore(&save(top.path()));
    let file = File::open(again.path().join("root/comb")).unwrap();
    for tooth in 0..teeth {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, tooth << 17).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), tooth);
    }
}
