//! Files of a skill.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use box_skills::{FileQuery, SkillStore, limits};

use crate::{TestStore, entries, snapshot};

#[test]
fn files_are_listed_by_name_with_their_sizes() {
    let place = TestStore::new();
    place.create("a");
    place.store.write_file("a", "data/b.txt", "four").unwrap();
    place.store.write_file("a", "data/.hidden", "").unwrap();
    symlink("/etc", place.root().join("a/link")).unwrap();
    let list = place.store.list_files("a", &FileQuery::default()).unwrap();
    let found: Vec<_> = list.entries.iter().map(|entry| (entry.path.as_str(), entry.is_dir)).collect();
    assert_eq!(found, [("SKILL.md", false), ("data", true), ("link", false)]);
    assert_eq!((list.base_path.as_str(), list.truncated, list.entries[1].size), (".", false, None));
    let json = serde_json::to_value(
        place.store.list_files("a", &FileQuery { path: "./data/".into(), ..FileQuery::default() }).unwrap(),
    );
    let expected = serde_json::json!({
        "skill": {"name": "a"},
        "base_path": "data",
        "entries": [{"path": "data/b.txt", "name": "b.txt", "is_dir": false, "size": 4}],
        "truncated": false,
    });
    assert_eq!(json.unwrap(), expected);
    let query = FileQuery { path: "data".into(), include_hidden: true, ..FileQuery::default() };
    assert_eq!(place.store.list_files("a", &query).unwrap().entries.len(), 2);
}

#[test]
fn the_number_of_listed_files_is_bounded() {
    let place = TestStore::new();
    place.create("a");
    for number in 0..=limits::LISTED_ENTRIES_MAX {
        std::fs::write(place.root().join("a").join(format!("{number:05}")), "").unwrap();
    }
    for (asked, given) in [(1, 1), (200, 200), (u64::MAX, 1000)] {
        let list = place.store.list_files("a", &FileQuery { max_entries: asked, ..FileQuery::default() }).unwrap();
        assert_eq!((list.entries.len(), list.truncated), (given, true));
    }
    let error = place.store.list_files("a", &FileQuery { max_entries: 0, ..FileQuery::default() }).unwrap_err();
    assert_eq!(error.to_string(), "max_entries must be 1 or more");
}

#[test]
fn what_is_written_is_read() {
    let place = TestStore::new();
    place.create("a");
    assert_eq!(place.store.write_file("a", "./x//y/z.py", "print('é')\n").unwrap(), 12);
    assert_eq!(place.store.read_file("a", "x/y/z.py").unwrap(), "print('é')\n");
    assert_eq!(SkillStore::normal_path("./x//y/z.py").unwrap(), "x/y/z.py");
    let path = place.root().join("a/x/y/z.py");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    place.store.write_file("a", "x/y/z.py", "").unwrap();
    assert_eq!(place.store.read_file("a", "x/y/z.py").unwrap(), "");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o755, "a program stays one");
    assert_eq!(entries(&place.root().join("a/x/y")), ["z.py"]);
    place.check_clean();
}

#[test]
fn no_path_leads_out_of_a_package() {
    let place = TestStore::new();
    place.create("a");
    place.create("b");
    let package = place.root().join("a");
    symlink(place.directory.path().join("canary"), package.join("file-link")).unwrap();
    symlink(place.directory.path(), package.join("directory-link")).unwrap();
    symlink("..", package.join("up")).unwrap();
    let before = snapshot(place.directory.path());
    let paths = [
        "../b/SKILL.md",
        "/etc/passwd",
        "file-link",
        "directory-link/canary",
        "directory-link/new/file",
        "up/b/SKILL.md",
        "up/new",
        "x/../../b/SKILL.md",
        "a\0b",
    ];
    for path in paths {
        for error in
            [place.store.read_file("a", path).unwrap_err(), place.store.write_file("a", path, "evil").unwrap_err()]
        {
            let text = error.to_string();
            let is_refusal = text.contains("path must stay within the skill package root")
                || text.contains("path must be relative to")
                || text.contains("control characters");
            assert!(is_refusal, "{path:?}: {text}");
        }
    }
    let query = FileQuery { path: "directory-link".into(), ..FileQuery::default() };
    assert_eq!(place.store.list_files("a", &query).unwrap_err().code(), "path_outside");
    assert_eq!(snapshot(place.directory.path()), before);
}

#[test]
fn what_is_no_text_file_is_not_read_and_not_replaced() {
    let place = TestStore::new();
    place.create("a");
    let package = place.root().join("a");
    std::fs::write(package.join("binary"), b"\xff").unwrap();
    std::fs::create_dir(package.join("directory")).unwrap();
    let large = vec![b'x'; usize::try_from(limits::TEXT_BYTES_MAX).unwrap() + 1];
    std::fs::write(package.join("large"), &large).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, package.join("pipe"), rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    let table = [
        ("binary", "not_text"),
        ("large", "too_large"),
        ("none", "file_not_found"),
        ("directory", "file_not_found"),
        ("pipe", "file_not_found"),
        (".", "file_not_found"),
    ];
    for (path, code) in table {
        let error = place.store.read_file("a", path).unwrap_err();
        assert_eq!(error.code(), code, "{path}: {error}");
    }
    for path in ["directory", "pipe", ".", "binary/below"] {
        assert!(place.store.write_file("a", path, "x").is_err(), "{path}");
    }
    let too_much = String::from_utf8(large).unwrap();
    assert_eq!(place.store.write_file("a", "new", &too_much).unwrap_err().code(), "too_large");
    assert_eq!(place.store.read_file("none", "x").unwrap_err().to_string(), "Skill \"none\" not found");
}

#[test]
fn whoever_swaps_directories_for_links_wins_nothing() {
    const ROUNDS: usize = 2000;
    let place = TestStore::new();
    place.create("a");
    let outside = place.directory.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "secret").unwrap();
    let package = place.root().join("a");
    std::fs::create_dir(package.join("real")).unwrap();
    std::fs::write(package.join("real/file"), "harmless").unwrap();
    symlink(&outside, package.join("link")).unwrap();
    let is_over = AtomicBool::new(false);
    let (mut reads, mut writes) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            while !is_over.load(Ordering::Relaxed) {
                let (real, link) = (package.join("real"), package.join("link"));
                rustix::fs::renameat_with(rustix::fs::CWD, real, rustix::fs::CWD, link, exchange).unwrap();
            }
        });
        for round in 0..ROUNDS {
            if let Ok(text) = place.store.read_file("a", "real/file") {
                assert_eq!(text, "harmless");
                reads += 1;
            }
            if round % 10 == 0 {
                writes += usize::from(place.store.write_file("a", "real/file", "harmless").is_ok());
                let _ = place.store.write_file("a", "real/new/file", "x");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(reads > 0 && writes > 0, "{reads} reads and {writes} writes got through; the race was none");
    assert_eq!(entries(&outside), ["file"]);
    assert_eq!(std::fs::read_to_string(outside.join("file")).unwrap(), "secret");
}
