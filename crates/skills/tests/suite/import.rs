//! Skills from host directories outside the store.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use box_skills::{HostDirectory, NewSkill};

use crate::{TestStore, snapshot};

/// A directory as a box leaves it, below another one.
fn prepared() -> (tempfile::TempDir, PathBuf) {
    let work = tempfile::tempdir().unwrap();
    let package = work.path().canonicalize().unwrap().join("repo/mine");
    std::fs::create_dir_all(package.join("scripts")).unwrap();
    std::fs::write(package.join("SKILL.md"), "---\nname: prepared\nlicense: MIT\n---\nDo it.\n").unwrap();
    std::fs::write(package.join("scripts/run.sh"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(package.join("scripts/run.sh"), PermissionsExt::from_mode(0o4755)).unwrap();
    (work, package)
}

fn directory(path: &Path) -> HostDirectory {
    HostDirectory::new(std::fs::File::open(path).unwrap().into(), path.to_owned())
}

fn named(name: &str) -> NewSkill {
    NewSkill { name: name.into(), description: Some("made in a box".into()), ..NewSkill::default() }
}

#[test]
fn a_directory_is_scanned_and_copied() {
    let (place, (_work, package)) = (TestStore::new(), prepared());
    let above = directory(package.parent().unwrap());
    let found = above.scan().unwrap();
    assert_eq!((found.name.as_str(), found.package_root.as_str()), ("prepared", package.to_str().unwrap()));
    let made = place.store.import(&named("renamed"), &above).unwrap();
    let copy = place.root().canonicalize().unwrap().join("renamed");
    assert_eq!((made.name.as_str(), made.package_root.as_str()), ("renamed", copy.to_str().unwrap()));
    assert_eq!((made.description.as_str(), made.instructions.as_str()), ("made in a box", "Do it.\n"));
    let text = std::fs::read_to_string(copy.join("SKILL.md")).unwrap();
    assert!(text.contains("name: renamed") && text.contains("license: MIT"), "{text}");
    let bits = std::fs::metadata(copy.join("scripts/run.sh")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(bits, 0o755, "no bit that lends rights comes along");
    std::fs::write(package.join("SKILL.md"), "changed later").unwrap();
    assert_eq!(place.store.get("renamed").unwrap(), Some(made), "it is a copy");
    place.check_clean();
}

#[test]
fn what_cannot_be_copied_is_refused_and_leaves_nothing() {
    let (place, (work, package)) = (TestStore::new(), prepared());
    place.create("taken");
    let before = snapshot(&place.root());
    let refused = |name: &str, from: &Path, says: &str| {
        let error = place.store.import(&named(name), &directory(from)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(snapshot(&place.root()), before);
    };
    refused("taken", &package, "already exists");
    refused("../x", &package, "can only contain");
    refused("new", &package.join("scripts"), "No SKILL.md found");
    let second = work.path().join("repo/second");
    std::fs::create_dir(&second).unwrap();
    std::fs::write(second.join("SKILL.md"), "another").unwrap();
    refused("new", &work.path().join("repo"), "Multiple skills found");
    symlink("/etc/passwd", package.join("link")).unwrap();
    refused("new", &package, "the directory contains a symbolic link: link");
    std::fs::remove_file(package.join("link")).unwrap();
    std::fs::remove_file(package.join("SKILL.md")).unwrap();
    symlink("/etc/passwd", package.join("SKILL.md")).unwrap();
    refused("new", &package, "No SKILL.md found");
    place.check_clean();
}
