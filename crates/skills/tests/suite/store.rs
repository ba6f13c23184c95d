//! List, get, create, update, delete, scan.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use box_skills::{NewSkill, Skill, SkillChange, SkillStore, limits};

use crate::{TestStore, entries, snapshot};

fn changed(place: &TestStore, name: &str, change: &SkillChange) -> Skill {
    place.store.update(name, change).unwrap()
}

#[test]
fn a_new_skill_is_found_with_everything_that_was_said() {
    let place = TestStore::new();
    let new = NewSkill {
        name: " writer ".into(),
        display_name: Some("The writer: 1".into()),
        description: Some("Writes\nthings".into()),
        instructions: Some("\n\n# Do it\n".into()),
        package_root: None,
    };
    let skill = place.store.create(&new).unwrap();
    assert_eq!((skill.name.as_str(), skill.display_name.as_str()), ("writer", "The writer: 1"));
    assert_eq!((skill.description.as_str(), skill.instructions.as_str()), ("Writes\nthings", "# Do it\n"));
    assert_eq!(skill.package_root, place.root().canonicalize().unwrap().join("writer").to_str().unwrap());
    assert!(!skill.python_project);
    assert_eq!(place.store.get("writer").unwrap(), Some(skill.clone()));
    assert_eq!(place.store.list().unwrap(), [skill]);
    assert_eq!(place.store.get("another").unwrap(), None);
    place.check_clean();
}

#[test]
fn the_store_is_private_and_packages_can_be_read_in_boxes() {
    let place = TestStore::new();
    place.create("a");
    let mode = |path: &str| place.root().join(path).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(""), mode("a"), mode("a/SKILL.md")), (0o700, 0o755, 0o644));
}

#[test]
fn bad_and_taken_names_are_refused() {
    let place = TestStore::new();
    place.create("a");
    place.create("directory");
    std::fs::write(place.root().join("directory/SKILL.md"), "---\nname: inside\n---\n").unwrap();
    let before = snapshot(&place.root());
    let long = "x".repeat(65);
    let table = [
        ("", "required"),
        ("../x", "can only contain"),
        (long.as_str(), "64 characters"),
        ("a", "already exists"),
        ("inside", "Skill with name \"inside\" already exists"),
        ("directory", "Skill directory already exists: directory"),
        ("tenants", "already exists"),
    ];
    for (name, expected) in table {
        let error = place.store.create(&NewSkill { name: name.into(), ..NewSkill::default() }).unwrap_err();
        assert!(error.to_string().contains(expected), "{name}: {error}");
        assert!(!error.to_string().contains(place.root().to_str().unwrap()), "a path of the host: {error}");
    }
    assert_eq!(snapshot(&place.root()), before);
}

#[test]
fn the_skill_that_changed_last_comes_first() {
    let place = TestStore::new();
    for (name, hours) in [("old", 3), ("older", 4), ("new", 1)] {
        place.create(name);
        let file = std::fs::File::options().write(true).open(place.root().join(name).join("SKILL.md")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
    }
    let names: Vec<String> = place.store.list().unwrap().into_iter().map(|skill| skill.name).collect();
    assert_eq!(names, ["new", "old", "older"]);
}

#[test]
fn what_is_broken_is_left_out_and_hides_nobody() {
    let place = TestStore::new();
    place.create("good");
    let make = |path: &str, text: &[u8]| {
        let path = place.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    make("broken-yaml/SKILL.md", b"---\nname: [\n---\n");
    make("broken-name/SKILL.md", b"---\nname: ../x\n---\n");
    make("broken-text/SKILL.md", b"\xff\xfe");
    make("broken-size/SKILL.md", &vec![b'x'; usize::try_from(limits::TEXT_BYTES_MAX).unwrap() + 1]);
    make("bad directory name/SKILL.md", b"no name\n");
    make("tenants/ws-1/theirs/SKILL.md", b"another tenant's\n");
    make("nested/1/2/3/4/5/SKILL.md", b"---\nname: deep\n---\n");
    make("nested/1/2/3/4/x/6/SKILL.md", b"---\nname: too-deep\n---\n");
    make("odd/SKILL.md/inner/SKILL.md", b"its directory is named like an entry file\n");
    make("SKILL.md", b"the root is not a package\n");
    for number in 0..=limits::SCAN_ENTRIES_MAX {
        std::fs::create_dir_all(place.root().join("crowded").join(number.to_string())).unwrap();
    }
    std::fs::create_dir(place.root().join("linked")).unwrap();
    symlink(place.directory.path().join("canary"), place.root().join("linked/SKILL.md")).unwrap();
    symlink(place.root().join("good"), place.root().join("link")).unwrap();
    assert_eq!(place.names(), ["deep", "good", "inner"]);
}

#[test]
fn a_broken_package_is_deleted_by_the_name_of_its_directory() {
    let place = TestStore::new();
    place.create("good");
    std::fs::write(place.root().join("good/SKILL.md"), "---\nname: [\n---\n").unwrap();
    assert!(place.store.delete("tenants").is_err());
    place.store.delete("good").unwrap();
    assert_eq!(entries(&place.root()), [".strongbox"]);
}

#[test]
fn an_update_changes_what_it_says_and_nothing_else() {
    let place = TestStore::new();
    place.create("a");
    let path = place.root().join("a/SKILL.md");
    std::fs::write(&path, "---\nname: a\nlicense: MIT # really\ndescription: old\n---\nkeep me\n").unwrap();
    let change = SkillChange { description: Some("new".into()), name: Some("a".into()), ..SkillChange::default() };
    let skill = changed(&place, "a", &change);
    assert_eq!((skill.description.as_str(), skill.instructions.as_str()), ("new", "keep me\n"));
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, "---\nname: a\ndescription: new\nlicense: MIT # really\n---\n\nkeep me\n");
    let skill = changed(&place, "a", &SkillChange { instructions: Some("other".into()), ..SkillChange::default() });
    assert_eq!((skill.description.as_str(), skill.instructions.as_str()), ("new", "other"));
    let same_place = Some(skill.package_root);
    changed(&place, "a", &SkillChange { package_root: same_place, ..SkillChange::default() });
    place.check_clean();
}

#[test]
fn an_update_of_a_lower_case_entry_file_stays_in_it() {
    let place = TestStore::new();
    std::fs::create_dir(place.root().join("a")).unwrap();
    std::fs::write(place.root().join("a/skill.md"), "text").unwrap();
    let skill = changed(&place, "a", &SkillChange { description: Some("d".into()), ..SkillChange::default() });
    assert_eq!((skill.entry_file.as_str(), skill.description.as_str()), ("skill.md", "d"));
    assert_eq!(entries(&place.root().join("a")), ["skill.md"]);
}

#[test]
fn renaming_moving_and_oversized_updates_are_refused() {
    let place = TestStore::new();
    place.create("a");
    let before = snapshot(&place.root());
    let large = "x".repeat(usize::try_from(limits::TEXT_BYTES_MAX).unwrap());
    let table = [
        (SkillChange { name: Some("b".into()), ..SkillChange::default() }, "Renaming skills is not supported"),
        (SkillChange { package_root: Some("/etc".into()), ..SkillChange::default() }, "cannot change"),
        (SkillChange { instructions: Some(large.clone()), ..SkillChange::default() }, "exceeds the limit"),
        (SkillChange { description: Some(large), ..SkillChange::default() }, "more than 65536 bytes"),
    ];
    for (change, expected) in table {
        let error = place.store.update("a", &change).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(place.store.update("b", &SkillChange::default()).unwrap_err().to_string(), "Skill \"b\" not found");
    assert_eq!(snapshot(&place.root()), before);
}

#[test]
fn deleting_removes_the_whole_directory_and_follows_no_link() {
    let place = TestStore::new();
    place.create("a");
    place.create("b");
    symlink(place.directory.path(), place.root().join("a/out")).unwrap();
    std::fs::create_dir_all(place.root().join("a/deep/er")).unwrap();
    std::fs::set_permissions(place.root().join("a/deep"), std::fs::Permissions::from_mode(0o000)).unwrap();
    place.store.delete("a").unwrap();
    assert_eq!(place.names(), ["b"]);
    assert_eq!(entries(&place.root()), [".strongbox", "b"]);
    place.check_clean();
    assert_eq!(place.store.delete("a").unwrap_err().code(), "skill_not_found");
}

#[test]
fn a_package_in_the_store_can_become_a_skill() {
    let place = TestStore::new();
    let package = place.root().join("found/inner");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::write(package.join("SKILL.md"), "---\ndescription: the old one\n---\ntext\n").unwrap();
    let package_root = Some(package.to_str().unwrap().to_owned());
    let new = NewSkill { name: "mine".into(), description: Some(" ".into()), package_root, ..NewSkill::default() };
    let skill = place.store.create(&new).unwrap();
    assert_eq!((skill.name.as_str(), skill.description.as_str()), ("mine", "the old one"));
    assert_eq!(skill.package_root, package.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(place.names(), ["mine"]);
}

#[test]
fn host_paths_outside_the_store_are_refused() {
    let place = TestStore::new();
    place.create("a");
    let root = place.root().to_str().unwrap().to_owned();
    symlink("/etc", place.root().join("etc")).unwrap();
    let paths =
        ["/etc".to_owned(), String::new(), format!("{root}/../"), format!("{root}/.strongbox"), format!("{root}/etc")];
    for path in paths {
        let error = place.store.scan(&path).unwrap_err();
        assert!(error.to_string().starts_with("scan path must lie in"), "{path}: {error}");
        if !path.is_empty() {
            let new = NewSkill { name: "b".into(), package_root: Some(path.clone()), ..NewSkill::default() };
            let error = place.store.create(&new).unwrap_err();
            assert!(error.to_string().starts_with("package_root must lie in"), "{path}: {error}");
        }
    }
    assert_eq!(place.store.scan(&format!("{root}/none")).unwrap_err().code(), "file_not_found");
}

#[test]
fn a_scan_finds_the_one_skill_of_a_directory() {
    let place = TestStore::new();
    let root = place.root();
    place.create("one");
    assert_eq!(place.store.scan(root.to_str().unwrap()).unwrap().name, "one");
    for name in ["set/a/b/c", "set/a/x", "set/y"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::fs::write(root.join("set/a/b/c/SKILL.md"), "too deep").unwrap();
    let error = place.store.scan(root.join("set").to_str().unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("No SKILL.md found in"), "{error}");
    for name in ["set/a/x", "set/y"] {
        std::fs::write(root.join(name).join("SKILL.md"), "text").unwrap();
    }
    assert_eq!(place.store.scan(root.join("set/a/x").to_str().unwrap()).unwrap().name, "x");
    let error = place.store.scan(root.join("set").to_str().unwrap()).unwrap_err();
    assert!(error.to_string().contains("Multiple skills found"), "{error}");
}

#[test]
fn python_projects_are_recognised() {
    let place = TestStore::new();
    for name in ["requirements.txt", "pyproject.toml", "setup.py", "setup.cfg"] {
        place.create("a");
        std::fs::write(place.root().join("a").join(name), "").unwrap();
        assert!(place.store.get("a").unwrap().unwrap().python_project, "{name}");
        place.store.delete("a").unwrap();
    }
    place.create("a");
    std::fs::create_dir(place.root().join("a/setup.py")).unwrap();
    assert!(!place.store.get("a").unwrap().unwrap().python_project, "a directory of that name is none");
    std::fs::create_dir(place.root().join("a/.venv")).unwrap();
    assert!(place.store.get("a").unwrap().unwrap().python_project);
}

#[test]
fn of_many_that_create_one_name_one_wins() {
    let place = TestStore::new();
    let outcomes: Vec<Result<Skill, String>> = std::thread::scope(|scope| {
        let create = || {
            let store = SkillStore::open(&place.root()).unwrap();
            store.create(&NewSkill { name: "a".into(), ..NewSkill::default() }).map_err(|error| error.to_string())
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    assert!(outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).all(|text| text.contains("already exists")));
    place.check_clean();
}
