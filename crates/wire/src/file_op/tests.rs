use super::*;
use proptest::prelude::*;

#[test]
fn paths_stay_below_their_root() {
    let root: GuestPath = "/workspace".parse().unwrap();
    for (text, meant) in [
        ("a", "/workspace/a"),
        ("./a//b/", "/workspace/a/b"),
        ("/workspace/a", "/workspace/a"),
        (".", "/workspace"),
        ("~root/x", "/workspace/~root/x"),
        ("file:///etc/passwd", "/workspace/file:/etc/passwd"),
        ("..%2f..%2fetc", "/workspace/..%2f..%2fetc"),
    ] {
        assert_eq!(path_below(&root, text).unwrap().as_str(), meant, "{text}");
    }
    let long = format!("/workspace/{}f", "a/".repeat(2500));
    for (text, code) in [
        ("../etc/passwd", FileErrorCode::PathEscapes),
        ("/workspace/../../etc/passwd", FileErrorCode::PathEscapes),
        ("/workspace/a/../b", FileErrorCode::PathEscapes),
        ("//etc/passwd", FileErrorCode::PathEscapes),
        ("/workspace-evil/x", FileErrorCode::PathEscapes),
        ("/workspacex", FileErrorCode::PathEscapes),
        ("/", FileErrorCode::PathEscapes),
        ("..", FileErrorCode::PathEscapes),
        ("", FileErrorCode::InvalidPath),
        ("/workspace/a\0b", FileErrorCode::InvalidPath),
        (long.as_str(), FileErrorCode::InvalidPath),
    ] {
        assert_eq!(path_below(&root, text).unwrap_err().code, code, "{text}");
    }
    assert_eq!(path_below(&GuestPath::root(), "etc").unwrap().as_str(), "/etc");
}

proptest! {
    #[test]
    fn no_text_leads_out_of_its_root(root in "(/[a-z.]{1,3}){0,3}", text in "[a./~ \\\\\u{0}\u{2024}-]{0,24}") {
        let Ok(root) = GuestPath::parse("root", if root.is_empty() { "/" } else { &root }) else { return Ok(()) };
        for text in [text.clone(), format!("{root}/{text}"), format!("{root}{text}")] {
            if let Ok(path) = path_below(&root, &text) {
                prop_assert!(path.is_within(&root), "{text:?} became {path}");
                prop_assert!(!path.as_str().split('/').any(|part| part == ".."), "{path}");
            }
        }
    }
}

#[test]
fn sizes_are_checked_before_anything_starts() {
    let check = |op| FileRequest { root: GuestPath::root(), op }.validate();
    let path = GuestPath::root;
    let grep = |pattern: &str, matches_max| {
        check(FileOp::Grep { path: path(), pattern: pattern.into(), include: None, ignore_case: false, matches_max })
    };
    assert!(grep("a", 1).is_ok());
    assert_eq!(grep("", 1).unwrap_err().field, "pattern");
    assert_eq!(grep("a", 0).unwrap_err().field, "limit");
    assert_eq!(grep("a", limits::MATCHES_MAX + 1).unwrap_err().field, "limit");
    let edit = |old: &str| check(FileOp::Edit { path: path(), old: old.into(), new: String::new(), all: false });
    assert_eq!(edit("").unwrap_err().field, "old_string");
    assert!(edit(&"x".repeat(limits::EDIT_TEXT_BYTES_MAX + 1)).is_err());
    assert!(check(FileOp::List { path: path(), depth: 0, entries_max: 1 }).is_err());
}

#[test]
fn detail_is_told_of_entries_only() {
    let in_detail = |op| FileOp::InDetail { op: Box::new(op), attributes: None };
    let check = |op| FileRequest { root: GuestPath::root(), op }.validate();
    let path = GuestPath::root;
    assert!(check(in_detail(FileOp::Stat { path: path() })).is_ok());
    assert!(check(in_detail(FileOp::List { path: path(), depth: 0, entries_max: 1 })).is_err(), "it is checked too");
    assert!(check(in_detail(FileOp::Pack { path: path() })).is_err());
    assert!(check(in_detail(in_detail(FileOp::Stat { path: path() }))).is_err());
    let owner = crate::User::ROOT;
    let given = |op| FileOp::OnBehalf { op: Box::new(op), owner };
    assert!(check(given(in_detail(FileOp::Stat { path: path() }))).is_ok());
    assert!(check(given(in_detail(FileOp::Pack { path: path() }))).is_err(), "it is checked too");
    assert!(check(given(given(FileOp::Stat { path: path() }))).is_err());
    let join = |count| check(FileOp::Join { sources: vec![path(); count], path: path(), bytes_max: 1 });
    assert!(join(1).is_ok() && join(0).is_err() && join(limits::JOINED_MAX + 1).is_err());
}

#[test]
fn messages_carry_their_length() {
    let reply: Reply = Err(FileError::new(FileErrorCode::NoMatch, "not there"));
    let bytes = encode(&reply).unwrap();
    let length = u32::from_le_bytes(bytes[..PREFIX_BYTES].try_into().unwrap());
    assert_eq!(length as usize, bytes.len() - PREFIX_BYTES);
    assert_eq!(decode::<Reply>(&bytes[PREFIX_BYTES..]).unwrap(), reply);
    assert!(decode::<Reply>(&[&bytes[PREFIX_BYTES..], &[0]].concat()).is_err(), "nothing may follow");
}
