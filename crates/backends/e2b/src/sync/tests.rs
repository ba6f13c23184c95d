//! Trees that are carried in and out, with an agent of paper on the other side: a directory, as the real one would leave it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use box_core::{MountMode, MountPolicy, MountSpec, Origin};
use tar::Builder;

use super::known::{BoxStamp, News};
use super::*;

struct Ground {
    source: tempfile::TempDir,
    state: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        Self { source: tempfile::tempdir().unwrap(), state: tempfile::tempdir().unwrap() }
    }

    fn tree(&self) -> Tree {
        Tree::of(grant(self.source.path()).1).unwrap()
    }

    fn staging(&self) -> SafeRoot {
        SafeRoot::open_path(self.state.path()).unwrap()
    }

    fn changes(&self, known: &Known) -> archive::Change {
        archive::changes(&self.tree(), &[], known, &self.staging()).unwrap()
    }
}

fn grant(path: &Path) -> (MountSpec, Grant) {
    let path = path.canonicalize().unwrap();
    let policy = MountPolicy { allowed_roots: vec![path.clone()], denied: Vec::new() };
    let target = "/workspace".parse().unwrap();
    let mount = MountSpec { source: path, target, mode: MountMode::Rw, origin: Origin::Caller };
    let grant = policy.grant(&mount).unwrap();
    (mount, grant)
}

fn names(change: archive::Change) -> Vec<String> {
    let Some(file) = change.archive else { return Vec::new() };
    let mut archive = tar::Archive::new(file);
    let entries = archive.entries().unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
    names.sort();
    names
}

/// An archive as an agent would make it.
fn archive_of(fill: impl FnOnce(&mut Builder<fs::File>)) -> fs::File {
    let mut builder = Builder::new(tempfile::tempfile().unwrap());
    fill(&mut builder);
    let mut archive = builder.into_inner().unwrap();
    std::io::Seek::rewind(&mut archive).unwrap();
    archive
}

fn add(builder: &mut Builder<fs::File>, path: &str, text: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o4755);
    // Written as it is: a builder would not take such names.
    let name = path.as_bytes();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_cksum();
    builder.append(&header, text.as_bytes()).unwrap();
}

fn add_link(builder: &mut Builder<fs::File>, path: &str, target: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, path, target).unwrap();
}

fn file() -> BoxStamp {
    BoxStamp::File { size: 1, mode: 0o755, modified_ns: 1 }
}

fn news(changed: &[(&str, BoxStamp)], removed: &[&str]) -> News {
    News {
        changed: changed.iter().map(|(path, stamp)| ((*path).to_owned(), stamp.clone())).collect(),
        removed: removed.iter().map(|path| (*path).to_owned()).collect(),
    }
}

#[test]
fn only_what_has_changed_is_carried_in() {
    let ground = Ground::new();
    fs::create_dir(ground.source.path().join("d")).unwrap();
    fs::write(ground.source.path().join("d/a"), "1").unwrap();
    symlink("/etc", ground.source.path().join("link")).unwrap();
    let mut known = Known::default();
    let first = ground.changes(&known);
    known.learn(first.carried.clone());
    assert_eq!(names(first), ["d/", "d/a", "link"]);
    assert_eq!(names(ground.changes(&known)), [""; 0]);
    fs::write(ground.source.path().join("d/a"), "2").unwrap();
    assert_eq!(names(ground.changes(&known)), ["d/a"]);
    fs::remove_dir_all(ground.source.path().join("d")).unwrap();
    let removed = ground.changes(&known).removed;
    assert_eq!(removed, ["d"], "what lies below goes with it");
}

#[test]
fn a_directory_that_became_a_file_is_removed_first() {
    let ground = Ground::new();
    fs::create_dir(ground.source.path().join("x")).unwrap();
    let mut known = Known::default();
    known.learn(ground.changes(&known).carried);
    fs::remove_dir(ground.source.path().join("x")).unwrap();
    fs::write(ground.source.path().join("x"), "").unwrap();
    let change = ground.changes(&known);
    assert_eq!(change.removed, ["x"]);
    assert_eq!(names(change), ["x"]);
}

#[test]
fn what_a_box_changed_comes_out_with_no_more_rights_than_files_have() {
    let ground = Ground::new();
    let archive = archive_of(|builder| {
        add(builder, "new/deep/file", "text");
        add_link(builder, "link", "/etc/shadow");
    });
    let told = news(&[("new/deep/file", file()), ("link", BoxStamp::Link("/etc/shadow".into()))], &[]);
    let known = take::apply(&ground.tree(), Known::default(), &told, Some(archive)).unwrap();
    let place = ground.source.path().join("new/deep/file");
    assert_eq!(fs::read_to_string(&place).unwrap(), "text");
    assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o7777, 0o755, "no bit that makes others of users");
    assert_eq!(fs::read_link(ground.source.path().join("link")).unwrap(), Path::new("/etc/shadow"));
    let staged: Vec<_> = fs::read_dir(place.parent().unwrap()).unwrap().collect();
    assert_eq!(staged.len(), 1, "nothing half is left");
    assert!(
        names(ground.changes(&known)).iter().all(|name| name == "new/" || name == "new/deep/"),
        "it is not carried back"
    );
}

#[test]
fn no_name_and_no_link_of_a_box_leads_out_of_the_tree() {
    let ground = Ground::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("kept"), "kept").unwrap();
    symlink(outside.path(), ground.source.path().join("way")).unwrap();
    for name in ["../escaped", "/tmp/strongbox-escaped", "way/kept"] {
        let archive = archive_of(|builder| add(builder, name, "evil"));
        let told = news(&[(name, file())], &[]);
        let taken = take::apply(&ground.tree(), Known::default(), &told, Some(archive));
        let kept = fs::read_to_string(outside.path().join("kept")).unwrap();
        assert_eq!(kept, "kept", "{name}: {taken:?}");
    }
    assert!(!ground.source.path().parent().unwrap().join("escaped").exists());
    assert!(!Path::new("/tmp/strongbox-escaped").exists());
}

#[test]
fn what_was_removed_in_a_box_is_removed_here_unless_somebody_changed_it() {
    let ground = Ground::new();
    fs::create_dir(ground.source.path().join("d")).unwrap();
    for name in ["d/a", "d/b", "c"] {
        fs::write(ground.source.path().join(name), "1").unwrap();
    }
    let mut known = Known::default();
    known.learn(ground.changes(&known).carried);
    fs::write(ground.source.path().join("d/b"), "changed here").unwrap();
    let told = news(&[], &["c", "d", "d/a", "d/b"]);
    take::apply(&ground.tree(), known, &told, None).unwrap();
    assert!(!ground.source.path().join("c").exists() && !ground.source.path().join("d/a").exists());
    assert_eq!(fs::read_to_string(ground.source.path().join("d/b")).unwrap(), "changed here");
}

#[test]
fn a_tree_with_too_many_files_or_levels_is_refused_by_name() {
    let ground = Ground::new();
    let deep = "d/".repeat(crate::limits::MOUNT_DEPTH_MAX as usize + 1);
    fs::create_dir_all(ground.source.path().join(deep)).unwrap();
    let error = ground.tree().scan(&[]).unwrap_err();
    assert!(error.code() == "mount_denied" && error.to_string().contains("levels"), "{error}");
}

#[test]
fn mounts_in_a_mount_are_carried_by_themselves() {
    let ground = Ground::new();
    fs::create_dir(ground.source.path().join("inner")).unwrap();
    fs::write(ground.source.path().join("inner/x"), "").unwrap();
    fs::write(ground.source.path().join("y"), "").unwrap();
    let found = ground.tree().scan(&["inner".to_owned()]).unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["y"]);
}
