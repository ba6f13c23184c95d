//! Preview and installation of archives, and all that is refused.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use box_skills::{Error, Selection, Skill, SkillStore, ZipRequest, limits};

use crate::archive::{Entry, archive, archive_with, plain, skill};
use crate::{TestStore, entries, request, snapshot};

fn install(place: &TestStore, bytes: &[u8], filename: &str) -> Result<Vec<Skill>, Error> {
    place.store.install_zip(bytes, &request(filename), &Selection::default())
}

fn chosen(paths: &[&str]) -> Selection {
    Selection { source_paths: paths.iter().map(ToString::to_string).collect(), ..Selection::default() }
}

fn several() -> Vec<u8> {
    archive(&[
        Entry::stored("repo/a/SKILL.md", skill("a")),
        Entry::stored("repo/b/c/SKILL.md", skill("c")),
        Entry::stored("repo/README.md", "about"),
        Entry::stored("repo/b/c/data", "x"),
    ])
}

#[test]
fn a_preview_shows_what_an_installation_makes() {
    let place = TestStore::new();
    let before = snapshot(place.directory.path());
    let previews = place.store.preview_zip(&plain("zipped"), &request("my skill.zip")).unwrap();
    assert_eq!(snapshot(place.directory.path()), before, "a preview writes nothing");
    assert_eq!(previews.len(), 1);
    assert_eq!(previews[0].source_path, "");
    let installed = install(&place, &plain("zipped"), "my skill.zip").unwrap();
    let times_aside = |mut skill: Skill| {
        (skill.created_at, skill.updated_at) = (jiff::Timestamp::UNIX_EPOCH, jiff::Timestamp::UNIX_EPOCH);
        skill
    };
    assert_eq!(times_aside(previews[0].skill.clone()), times_aside(installed[0].clone()));
    assert_eq!(installed, place.store.list().unwrap());
    let skill = &installed[0];
    assert_eq!((skill.name.as_str(), skill.instructions.as_str()), ("zipped", "Do zipped.\n"));
    assert!(skill.python_project && skill.package_root.ends_with("/skills/my-skill-upload"), "{skill:?}");
    place.check_clean();
}

#[test]
fn files_arrive_whole_with_plain_modes() {
    let place = TestStore::new();
    install(&place, &plain("zipped"), "z.zip").unwrap();
    let package = place.root().join("z-upload");
    assert_eq!(entries(&package), ["SKILL.md", "data", "requirements.txt", "scripts"]);
    assert_eq!(std::fs::read_to_string(package.join("requirements.txt")).unwrap(), "requests\n");
    let mode = |path: &str| package.join(path).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(""), mode("scripts"), mode("data")), (0o755, 0o755, 0o755));
    assert_eq!((mode("SKILL.md"), mode("scripts/run.sh"), mode("data/empty")), (0o644, 0o755, 0o644));
}

#[test]
fn archives_of_common_programs_are_read() {
    let place = TestStore::new();
    let table = [
        ("comment", archive_with(&[Entry::stored("SKILL.md", skill("comment"))], b"", &[b'c'; 40])),
        ("backslash", archive(&[Entry::stored("top\\SKILL.md", skill("backslash")).with(|entry| entry.mode = 0)])),
        ("nameless", archive(&[Entry::stored("SKILL.md", "just text")])),
        (
            "mac",
            archive(&[
                Entry::deflated("mac/SKILL.md", skill("mac")).streamed(),
                Entry::deflated("__MACOSX/mac/._SKILL.md", "finder").streamed(),
            ]),
        ),
        (
            "flagged",
            archive(&[
                Entry::directory("d/").with(|entry| entry.flags = 8),
                Entry::stored("d/SKILL.md", skill("flagged")).streamed(),
            ]),
        ),
    ];
    for (name, bytes) in table {
        let installed =
            install(&place, &bytes, &format!("{name}.zip")).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = if name == "nameless" { "nameless-upload" } else { name };
        assert_eq!(installed[0].name, expected);
    }
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.add_directory("lib/", zip::write::SimpleFileOptions::default()).unwrap();
    writer.start_file("lib/SKILL.md", zip::write::SimpleFileOptions::default()).unwrap();
    writer.write_all(skill("library").as_bytes()).unwrap();
    let bytes = writer.finish().unwrap().into_inner();
    assert_eq!(install(&place, &bytes, "library.zip").unwrap()[0].name, "library");
}

#[test]
fn of_several_skills_those_that_were_chosen_are_installed() {
    let place = TestStore::new();
    let previews = place.store.preview_zip(&several(), &request("r.zip")).unwrap();
    let paths: Vec<&str> = previews.iter().map(|preview| preview.source_path.as_str()).collect();
    assert_eq!(paths, ["a", "b/c"]);
    let error = install(&place, &several(), "r.zip").unwrap_err().to_string();
    assert_eq!(error, "Multiple skills found; choose source_paths from: a, b/c");
    for path in ["../..", "b", "none", "/etc"] {
        let error = place.store.install_zip(&several(), &request("r.zip"), &chosen(&["a", path])).unwrap_err();
        assert!(error.to_string().starts_with("Invalid source_path"), "{path}: {error}");
    }
    assert_eq!(place.names(), [""; 0]);
    let selection = Selection {
        source_paths: vec!["/b\\c/".into(), "b/c".into()],
        source_path: "a".into(),
        ..Selection::default()
    };
    let installed = place.store.install_zip(&several(), &request("r.zip"), &selection).unwrap();
    let names: Vec<&str> = installed.iter().map(|skill| skill.name.as_str()).collect();
    assert_eq!(names, ["c", "a"]);
    assert_eq!(entries(&place.root()), [".strongbox", "r-a-upload", "r-c-upload"]);
    assert_eq!(entries(&place.root().join("r-c-upload")), ["SKILL.md", "data"]);
}

#[test]
fn a_directory_of_the_archive_can_be_named() {
    let place = TestStore::new();
    let within = |subdir: &str| ZipRequest { source_subdir: subdir.into(), ..request("r.zip") };
    let previews = place.store.preview_zip(&several(), &within("/b\\c/")).unwrap();
    assert_eq!((previews.len(), previews[0].source_path.as_str()), (1, ""));
    assert!(previews[0].skill.package_root.ends_with("/r-upload"));
    let table = [
        ("a/../../..", "source_subdir must stay inside the archive"),
        ("/etc", "source_subdir is not a directory of the archive"),
        ("README.md", "source_subdir is not a directory of the archive"),
    ];
    for (subdir, expected) in table {
        let error = place.store.preview_zip(&several(), &within(subdir)).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{subdir}: {error}");
    }
}

#[test]
fn installation_is_all_or_nothing() {
    let place = TestStore::new();
    place.create("c");
    let before = snapshot(&place.root());
    let error = place.store.install_zip(&several(), &request("r.zip"), &chosen(&["a", "b/c"])).unwrap_err();
    assert_eq!(error.to_string(), "Skill with name \"c\" already exists");
    assert_eq!(snapshot(&place.root()), before);
    place.store.delete("c").unwrap();
    std::fs::create_dir(place.root().join("r-c-upload")).unwrap();
    let before = snapshot(&place.root());
    let error = place.store.install_zip(&several(), &request("r.zip"), &chosen(&["a", "b/c"])).unwrap_err();
    assert_eq!(error.to_string(), "Skill directory already exists: r-c-upload");
    assert_eq!(snapshot(&place.root()), before);
    let twins =
        archive(&[Entry::stored("repo/a/x/SKILL.md", skill("one")), Entry::stored("repo/b/x/SKILL.md", skill("two"))]);
    let error = place.store.install_zip(&twins, &request("r.zip"), &chosen(&["a/x", "b/x"])).unwrap_err();
    assert!(error.to_string().starts_with("two of the chosen skills"), "{error}");
    assert_eq!(snapshot(&place.root()), before);
}

#[test]
fn of_many_that_install_one_archive_one_wins() {
    let place = TestStore::new();
    let outcomes: Vec<Result<usize, String>> = std::thread::scope(|scope| {
        let place = &place;
        let work = |number: usize| {
            let store = SkillStore::open(&place.root()).unwrap();
            // Half of them under another file name: then it is the skill's name that is taken.
            let request = request(&format!("z{}.zip", number % 2));
            let installed = store.install_zip(&plain("zipped"), &request, &Selection::default());
            installed.map(|skills| skills.len()).map_err(|error| error.to_string())
        };
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Ok(1)).count(), 1, "{outcomes:?}");
    assert!(outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).all(|text| text.contains("already exists")));
    assert_eq!(place.names(), ["zipped"]);
    place.check_clean();
}

/// Archives that are refused, with a part of the reason.
fn refused() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let good = || Entry::stored("SKILL.md", skill("good"));
    let one = |entry: Entry| archive(&[good(), entry]);
    let named = |name: &str| one(Entry::stored(name, "x"));
    let kind = |mode: u32| one(Entry::stored("d", "/etc").with(|entry| entry.mode = mode));
    let whole = archive(&[good()]);
    let zeros = vec![0; 17 << 20];
    let mut cases = vec![
        ("empty", Vec::new(), "Uploaded file is empty"),
        ("no archive", b"hello".to_vec(), "Uploaded file must be a valid .zip archive"),
        ("cut off", whole[..whole.len() - 1].to_vec(), "Uploaded file must be a valid .zip archive"),
        ("too large", vec![0; limits::ZIP_BYTES_MAX + 1], "larger than"),
        ("no skill", archive(&[Entry::stored("README.md", "x")]), "No SKILL.md found"),
        ("no entries", archive(&[]), "No SKILL.md found"),
        ("parent", named("../evil"), "Archive contains an unsafe path: ../evil"),
        ("hidden parent", named("a/../../evil"), "Archive contains an unsafe path"),
        ("backslash parent", named("..\\evil"), "Archive contains an unsafe path"),
        ("absolute", named("/tmp/evil"), "Archive contains an unsafe path"),
        ("drive", named("C:\\evil"), "Archive contains an unsafe path"),
        ("zero byte", named("a\0b"), "Archive contains an unsafe path"),
        ("symbolic link", kind(0o120_777), "Archive contains a symbolic link"),
        ("link as directory", one(Entry::stored("d/", "").with(|entry| entry.mode = 0o120_777)), "symbolic link"),
        ("pipe", kind(0o010_644), "neither file nor directory"),
        ("device", kind(0o060_644), "neither file nor directory"),
        ("socket", kind(0o140_644), "neither file nor directory"),
        ("directory like a file", kind(0o040_755), "a directory that is named like a file"),
        ("directory with content", one(Entry::stored("d/", "content")), "a directory with content"),
        ("twice", archive(&[good(), good()]), "two entries that are one path"),
        ("other case", named("skill.MD"), "two entries that are one path"),
        (
            "file and directory",
            archive(&[good(), Entry::stored("a", "x"), Entry::stored("a/b", "x")]),
            "two entries that are one path",
        ),
        (
            "encrypted",
            one(Entry::stored("x", "x").with(|entry| entry.flags = 1)),
            "Archive contains an encrypted entry",
        ),
        ("unknown method", one(Entry::stored("x", "x").with(|entry| entry.method = 14)), "neither stored nor deflated"),
        ("wrong checksum", one(Entry::stored("x", "x").with(|entry| entry.checksum ^= 1)), "valid .zip archive"),
        ("says too little", one(Entry::deflated("x", "xyz").with(|entry| entry.size = 1)), "valid .zip archive"),
        ("says too much", one(Entry::stored("x", "x").with(|entry| entry.size = 99)), "valid .zip archive"),
        ("says everything", one(Entry::deflated("x", "x").with(|entry| entry.size = u32::MAX)), "a file of more than"),
        (
            "deflated as stored",
            one(Entry::deflated("x", "x".repeat(99)).with(|entry| entry.method = 0)),
            "valid .zip archive",
        ),
        ("one too large", one(Entry::stored("x", &zeros)), "a file of more than"),
        ("bomb", one(Entry::deflated("x", &zeros[..1 << 20])), "more than 100 times its size"),
        ("lying bomb", one(Entry::deflated("x", &zeros).with(|entry| entry.size = 10)), "valid .zip archive"),
        (
            "two names",
            one(Entry::stored("x", "x").with(|entry| entry.local_name = Some(b"y".to_vec()))),
            "valid .zip archive",
        ),
        ("something before", [b"#!/bin/sh\n".as_slice(), &whole].concat(), "valid .zip archive"),
        ("two archives", [whole.as_slice(), &whole].concat(), "valid .zip archive"),
        ("two ends", [whole.as_slice(), &whole[whole.len() - 22..]].concat(), "valid .zip archive"),
        ("something behind", [whole.as_slice(), b"x"].concat(), "valid .zip archive"),
        ("something between", archive_with(&[good()], b"hidden", b""), "valid .zip archive"),
        ("hidden entry", archive_with(&[good()], &whole[..whole.len() - 76], b""), "valid .zip archive"),
        ("long comment", archive_with(&[good()], b"", &[b'c'; 65_535]), "valid .zip archive"),
        (
            "end in comment",
            archive_with(&[good()], b"", b"PK\x05\x06and more than twenty-two bytes"),
            "valid .zip archive",
        ),
        ("overlapping", one(Entry::stored("x", "x").with(|entry| entry.offset = Some(0))), "valid .zip archive"),
        ("nowhere", one(Entry::stored("x", "x").with(|entry| entry.offset = Some(u32::MAX))), "valid .zip archive"),
        (
            "wrong descriptor",
            one(Entry::stored("x", "x").streamed().with(|entry| entry.behind[4] ^= 1)),
            "valid .zip archive",
        ),
        ("large text", archive(&[Entry::stored("SKILL.md", "x".repeat(1 << 21))]), "exceeds the limit"),
        ("no text", archive(&[Entry::stored("SKILL.md", b"\xff\xfe")]), "not UTF-8 text"),
        ("bad name", archive(&[Entry::stored("SKILL.md", "---\nname: ../x\n---\n")]), "can only contain"),
        ("bad front matter", archive(&[Entry::stored("SKILL.md", "---\nname: [\n---\n")]), "cannot be read"),
    ];
    let many: Vec<Entry> = (0..limits::ZIP_ENTRIES_MAX).map(|number| Entry::stored(&number.to_string(), "")).collect();
    cases.push(("too many", archive(&[many.as_slice(), &[good()]].concat()), "more than 512 entries"));
    let deep = |number: usize| Entry::stored(&format!("{number}/{}x", "d/".repeat(20)), "");
    cases.push(("too many directories", archive(&(0..200).map(deep).collect::<Vec<_>>()), "more than 512 entries"));
    // Shrinks, but not a hundred times.
    let text: Vec<u8> =
        (0..16_u32 << 20).map(|at| if at % 1000 < 16 { at.wrapping_mul(at).to_be_bytes()[1] } else { 0 }).collect();
    let large = Entry::deflated("large", text);
    let copies: Vec<Entry> =
        (0..5).map(|number| large.clone().with(|entry| entry.name = format!("n{number}").into_bytes())).collect();
    cases.push(("too much together", archive(&[&[good()], copies.as_slice()].concat()), "inflates to more than"));
    cases
}

#[test]
fn hostile_archives_are_refused_and_leave_nothing() {
    let place = TestStore::new();
    place.create("there");
    let before = snapshot(place.directory.path());
    for (case, bytes, expected) in refused() {
        for error in [
            place.store.preview_zip(&bytes, &request("x.zip")).map(drop).expect_err(case),
            install(&place, &bytes, "x.zip").map(drop).expect_err(case),
        ] {
            assert!(error.to_string().contains(expected), "{case}: {error}");
        }
    }
    assert_eq!(snapshot(place.directory.path()), before);
}

#[test]
fn parameters_are_no_paths() {
    let place = TestStore::new();
    let before = snapshot(place.directory.path());
    let table = [
        ZipRequest { target_suffix: "x/../../../../tmp/evil".into(), ..request("x.zip") },
        ZipRequest { target_suffix: "..".into(), ..request("x.zip") },
    ];
    for request in table {
        let error = place.store.install_zip(&plain("a"), &request, &Selection::default()).unwrap_err();
        assert_eq!(error.code(), "invalid", "{request:?}: {error}");
    }
    assert_eq!(snapshot(place.directory.path()), before);
}

#[test]
fn only_the_last_part_of_a_file_name_counts() {
    for (filename, directory) in
        [("../../x.zip", "x-upload"), ("/etc/y.zip", "y-upload"), ("C:\\z z.zip", "C--z-z-upload")]
    {
        let place = TestStore::new();
        let skills = place.store.install_zip(&plain("a"), &request(filename), &Selection::default()).unwrap();
        assert!(
            skills[0].package_root.ends_with(&format!("/skills/{directory}")),
            "{filename}: {}",
            skills[0].package_root
        );
    }
}

#[test]
fn only_the_archive_that_was_previewed_is_installed() {
    let place = TestStore::new();
    let (seen, other) = (plain("zipped"), plain("other"));
    let selection = Selection { digest: Some(box_skills::digest(&seen)), ..Selection::default() };
    let error = place.store.install_zip(&other, &request("z.zip"), &selection).unwrap_err();
    assert_eq!(error.code(), "digest_differs");
    assert!(place.store.list().unwrap().is_empty());
    place.store.install_zip(&seen, &request("z.zip"), &selection).unwrap();
    assert_eq!(place.store.list().unwrap().len(), 1);
}
