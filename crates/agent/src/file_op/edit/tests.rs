use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

struct Ground {
    _directory: tempfile::TempDir,
    root: PathBuf,
    place: FileTree,
}

impl Ground {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let place = FileTree::new(&root.to_str().unwrap().parse().unwrap()).unwrap();
        Self { _directory: directory, root, place }
    }

    fn edit(&self, name: &str, old: &str, new: &str, all: bool) -> Result<u64, FileError> {
        let path = self.root.join(name).to_str().unwrap().parse().unwrap();
        edit(&self.place, &path, &Change { old, new, all })
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.root).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// The same, step by step.
fn model(bytes: &[u8], old: &[u8], new: &[u8]) -> (Vec<u8>, usize) {
    let (mut result, mut count, mut rest) = (Vec::new(), 0, bytes);
    while let Some(&byte) = rest.first() {
        if rest.starts_with(old) {
            result.extend_from_slice(new);
            rest = &rest[old.len()..];
            count += 1;
        } else {
            result.push(byte);
            rest = &rest[1..];
        }
    }
    (result, count)
}

fn places(bytes: &[u8], old: &[u8]) -> usize {
    bytes.windows(old.len()).filter(|window| *window == old).count()
}

proptest! {
    #[test]
    fn replaced_text_is_what_a_model_says(bytes in "[ab\r\n ]{0,60}", old in "[ab\r\n ]{1,4}", new in "[abc]{0,4}") {
        let (bytes, old, new) = (bytes.as_bytes(), old.as_bytes(), new.as_bytes());
        let (expected, count) = model(bytes, old, new);
        match replaced(bytes, old, new, true, 1000) {
            Ok((result, told)) => prop_assert_eq!((result, told), (expected.clone(), count)),
            Err(mismatch) => prop_assert!(count == 0 && matches!(mismatch, Mismatch::Absent(_))),
        }
        match (places(bytes, old), replaced(bytes, old, new, false, 1000)) {
            (0, told) => prop_assert!(matches!(told, Err(Mismatch::Absent(_)))),
            (1, told) => prop_assert_eq!(told, Ok((expected, 1))),
            (_, told) => prop_assert_eq!(told, Err(Mismatch::Ambiguous(count.max(2)))),
        }
    }
}

#[test]
fn a_mismatch_says_what_is_near() {
    let absent = |bytes: &str, old: &str| replaced(bytes.as_bytes(), old.as_bytes(), b"", false, 100).unwrap_err();
    assert_eq!(absent("a\r\nb", "a\nb"), Mismatch::Absent(Near::LineEnds));
    assert_eq!(absent("if x:\n\treturn", "if x:\n    return"), Mismatch::Absent(Near::WhiteSpace));
    assert_eq!(absent("abc", "abd"), Mismatch::Absent(Near::Nothing));
    assert_eq!(absent("abc", " \n"), Mismatch::Absent(Near::Nothing));
}

#[test]
fn a_result_that_is_too_large_is_not_made() {
    let bytes = vec![b'a'; 1 << 20];
    let told = replaced(&bytes, b"a", &vec![b'b'; 1 << 20], true, 16 << 20);
    assert_eq!(told, Err(Mismatch::TooLarge(1 << 40)));
}

#[test]
fn an_edit_keeps_mode_and_line_ends_and_leaves_nothing_behind() {
    let ground = Ground::new();
    let file = ground.root.join("script");
    std::fs::write(&file, b"one\r\ntwo\xff\r\nthree").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o754)).unwrap();
    assert_eq!(ground.edit("script", "two", "2", false).unwrap(), 1);
    assert_eq!(std::fs::read(&file).unwrap(), b"one\r\n2\xff\r\nthree");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o754);
    assert_eq!(ground.names(), ["script"]);
}

#[test]
fn refusals_name_the_number_of_places_and_the_way_out_and_change_nothing() {
    let ground = Ground::new();
    std::fs::write(ground.root.join("f"), "x = 1\nx = 1\n").unwrap();
    let refused = ground.edit("f", "x = 1", "y", false).unwrap_err();
    assert_eq!(refused.code, FileErrorCode::Ambiguous);
    assert!(refused.message.contains("2 times") && refused.message.contains("replace_all"), "{refused}");
    let refused = ground.edit("f", "x  =  1", "y", false).unwrap_err();
    assert_eq!(refused.code, FileErrorCode::NoMatch);
    assert!(refused.message.contains("white space"), "{refused}");
    std::fs::write(ground.root.join("b"), "a\0b").unwrap();
    assert_eq!(ground.edit("b", "a", "c", false).unwrap_err().code, FileErrorCode::Binary);
    let large = File::create(ground.root.join("l")).unwrap();
    io::Write::write_all(&mut &large, &vec![b'a'; size_max() + 1]).unwrap();
    assert_eq!(ground.edit("l", "a", "c", true).unwrap_err().code, FileErrorCode::TooLarge);
    assert_eq!(std::fs::read(ground.root.join("f")).unwrap(), b"x = 1\nx = 1\n");
    assert_eq!(ground.edit("f", "x = 1", "y", true).unwrap(), 2);
}

#[test]
fn a_link_stays_a_link_and_one_that_leads_out_is_refused() {
    let ground = Ground::new();
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::fs::create_dir(ground.root.join("d")).unwrap();
    std::fs::write(ground.root.join("d/f"), "old").unwrap();
    std::os::unix::fs::symlink("d/f", ground.root.join("link")).unwrap();
    std::os::unix::fs::symlink(outside.path(), ground.root.join("out")).unwrap();
    ground.edit("link", "old", "new", false).unwrap();
    assert_eq!(std::fs::read(ground.root.join("d/f")).unwrap(), b"new");
    assert!(ground.root.join("link").is_symlink());
    assert_eq!(ground.edit("out", "old", "new", false).unwrap_err().code, FileErrorCode::PathEscapes);
}

#[test]
fn edits_at_the_same_time_lose_nothing() {
    const EDITS: usize = 50;
    let ground = Ground::new();
    let lines: Vec<_> = (0..EDITS).map(|number| format!("line {number};\n")).collect();
    let text = lines.concat();
    std::fs::write(ground.root.join("f"), &text).unwrap();
    std::thread::scope(|scope| {
        for number in 0..EDITS {
            let ground = &ground;
            let (old, new) = (format!("line {number};"), format!("done {number};"));
            scope.spawn(move || assert_eq!(ground.edit("f", &old, &new, false).unwrap(), 1));
        }
    });
    assert_eq!(std::fs::read_to_string(ground.root.join("f")).unwrap(), text.replace("line", "done"));
    assert_eq!(ground.names(), ["f"]);
}
