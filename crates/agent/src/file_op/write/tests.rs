use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::super::place::ground::Ground;
use super::*;

fn write(ground: &Ground, name: &str, how: WriteHow, bytes: &str) -> Result<Entry, FileError> {
    let path = ground.path(name);
    Writing { place: &ground.place, path: &path, mode: None, bytes_max: 10, attributes: None }
        .run(how, &mut bytes.as_bytes())
}

fn names(ground: &Ground) -> usize {
    fs::read_dir(&ground.tree).unwrap().count()
}

#[test]
fn a_file_is_replaced_with_its_permissions() {
    let ground = Ground::new();
    let file = ground.tree.join("file");
    let entry = write(&ground, "file", WriteHow::Replace, "old").unwrap();
    assert_eq!((entry.size, entry.path.as_str()), (3, file.to_str().unwrap()));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o751)).unwrap();
    let entry = write(&ground, "file", WriteHow::Replace, "newer").unwrap();
    assert_eq!((entry.size, entry.mode), (5, 0o751));
    assert_eq!(fs::read_to_string(&file).unwrap(), "newer");
    assert_eq!(names(&ground), 1, "nothing else is left");
}

#[test]
fn directories_above_are_made_and_links_followed_inside() {
    let ground = Ground::new();
    write(&ground, "a/b/file", WriteHow::Create, "x").unwrap();
    symlink("a/b/file", ground.tree.join("link")).unwrap();
    write(&ground, "link", WriteHow::Replace, "through").unwrap();
    assert_eq!(fs::read_to_string(ground.tree.join("a/b/file")).unwrap(), "through");
    assert!(ground.tree.join("link").is_symlink(), "the link stays one");
}

#[test]
fn what_may_not_be_written_stays_as_it_is() {
    let ground = Ground::new();
    fs::write(ground.outside("secret"), "secret").unwrap();
    fs::create_dir(ground.tree.join("directory")).unwrap();
    symlink("../secret", ground.tree.join("out")).unwrap();
    symlink("../new", ground.tree.join("dangling")).unwrap();
    symlink("/dev/zero", ground.tree.join("zero")).unwrap();
    for how in [WriteHow::Replace, WriteHow::From(0)] {
        for (name, code) in [
            ("out", FileErrorCode::PathEscapes),
            ("zero", FileErrorCode::PathEscapes),
            ("dangling", FileErrorCode::SymlinkRefused),
            ("directory", FileErrorCode::IsDirectory),
            ("", FileErrorCode::IsDirectory),
        ] {
            let error = write(&ground, name, how, "x").unwrap_err();
            assert_eq!(error.code, code, "{name} {how:?}: {error}");
        }
    }
    for name in ["out", "dangling", "zero", "directory", ""] {
        assert_eq!(write(&ground, name, WriteHow::Create, "x").unwrap_err().code, FileErrorCode::Exists, "{name}");
    }
    assert_eq!(fs::read_to_string(ground.outside("secret")).unwrap(), "secret");
    assert!(!ground.outside("new").exists());
}

#[test]
fn too_much_leaves_what_was_there() {
    let ground = Ground::new();
    let long = "12345678901";
    for how in [WriteHow::Replace, WriteHow::Create, WriteHow::From(0)] {
        assert_eq!(write(&ground, "new", how, long).unwrap_err().code, FileErrorCode::TooLarge, "{how:?}");
        assert_eq!(names(&ground), 0, "{how:?}");
    }
    write(&ground, "old", WriteHow::Create, "old").unwrap();
    assert_eq!(write(&ground, "old", WriteHow::Replace, long).unwrap_err().code, FileErrorCode::TooLarge);
    assert_eq!(write(&ground, "old", WriteHow::From(3), long).unwrap_err().code, FileErrorCode::TooLarge);
    assert_eq!(fs::read_to_string(ground.tree.join("old")).unwrap(), "old");
}

#[test]
fn a_broken_upload_goes_on_where_it_stopped() {
    let ground = Ground::new();
    write(&ground, "file", WriteHow::From(0), "abc").unwrap();
    write(&ground, "file", WriteHow::From(3), "def").unwrap();
    assert_eq!(write(&ground, "file", WriteHow::From(2), "X").unwrap().size, 3);
    assert_eq!(fs::read_to_string(ground.tree.join("file")).unwrap(), "abX");
    assert_eq!(write(&ground, "file", WriteHow::From(4), "x").unwrap_err().code, FileErrorCode::TooLarge);
    assert_eq!(write(&ground, "none", WriteHow::From(4), "x").unwrap_err().code, FileErrorCode::NotFound);
}

#[test]
fn attributes_come_with_the_bytes_and_go_with_them() {
    let ground = Ground::new();
    let path = ground.path("a/file");
    let fill = |values: &[(&str, &str)]| {
        let values = values.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let attributes = Attributes { prefix: "user.test.".to_owned(), values };
        let attributes = Some(&attributes);
        let writing = Writing { place: &ground.place, path: &path, mode: None, bytes_max: 10, attributes };
        writing.run(WriteHow::From(0), &mut "text".as_bytes())
    };
    match fill(&[("a", "1")]) {
        Err(error) if error.code == FileErrorCode::Unsupported => {
            assert!(!ground.tree.join("a/file").exists(), "it was not made");
            assert_eq!(fill(&[]).unwrap().size, 4);
        }
        filled => {
            filled.unwrap();
            let told = || attributes::read(&ground.place.find(&path).unwrap(), "user.test.");
            assert_eq!(told(), [("a".to_owned(), "1".to_owned())]);
            fill(&[]).unwrap();
            assert_eq!(told(), []);
        }
    }
}
