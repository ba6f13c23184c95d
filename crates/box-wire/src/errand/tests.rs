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
        ("../etc/passwd", TroubleCode::PathEscapes),
        ("/workspace/../../etc/passwd", TroubleCode::PathEscapes),
        ("/workspace/a/../b", TroubleCode::PathEscapes),
        ("//etc/passwd", TroubleCode::PathEscapes),
        ("/workspace-evil/x", TroubleCode::PathEscapes),
        ("/workspacex", TroubleCode::PathEscapes),
        ("/", TroubleCode::PathEscapes),
        ("..", TroubleCode::PathEscapes),
        ("", TroubleCode::InvalidPath),
        ("/workspace/a\0b", TroubleCode::InvalidPath),
        (long.as_str(), TroubleCode::InvalidPath),
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
    let check = |work| Errand { root: GuestPath::root(), work }.validate();
    let path = GuestPath::root;
    let grep = |pattern: &str, matches_max| {
        check(Work::Grep { path: path(), pattern: pattern.into(), include: None, ignore_case: false, matches_max })
    };
    assert!(grep("a", 1).is_ok());
    assert_eq!(grep("", 1).unwrap_err().field, "pattern");
    assert_eq!(grep("a", 0).unwrap_err().field, "limit");
    assert_eq!(grep("a", limits::MATCHES_MAX + 1).unwrap_err().field, "limit");
    let edit = |old: &str| check(Work::Edit { path: path(), old: old.into(), new: String::new(), all: false });
    assert_eq!(edit("").unwrap_err().field, "old_string");
    assert!(edit(&"x".repeat(limits::EDIT_TEXT_BYTES_MAX + 1)).is_err());
    assert!(check(Work::List { path: path(), depth: 0, entries_max: 1 }).is_err());
}

#[test]
fn detail_is_told_of_entries_only() {
    let in_detail = |work| Work::InDetail { work: Box::new(work), attributes: None };
    let check = |work| Errand { root: GuestPath::root(), work }.validate();
    let path = GuestPath::root;
    assert!(check(in_detail(Work::Stat { path: path() })).is_ok());
    assert!(check(in_detail(Work::List { path: path(), depth: 0, entries_max: 1 })).is_err(), "it is checked too");
    assert!(check(in_detail(Work::Pack { path: path() })).is_err());
    assert!(check(in_detail(in_detail(Work::Stat { path: path() }))).is_err());
    let owner = crate::User::ROOT;
    let given = |work| Work::OnBehalf { work: Box::new(work), owner };
    assert!(check(given(in_detail(Work::Stat { path: path() }))).is_ok());
    assert!(check(given(in_detail(Work::Pack { path: path() }))).is_err(), "it is checked too");
    assert!(check(given(given(Work::Stat { path: path() }))).is_err());
    let join = |count| check(Work::Join { sources: vec![path(); count], path: path(), bytes_max: 1 });
    assert!(join(1).is_ok() && join(0).is_err() && join(limits::JOINED_MAX + 1).is_err());
}

#[test]
fn boxes_of_before_understand_what_they_always_did() {
    let path = GuestPath::root;
    let number = |work: &Work| postcard::to_extend(work, Vec::new()).unwrap()[0];
    assert_eq!(number(&Work::Stat { path: path() }), 0);
    assert_eq!(number(&Work::Watch { path: path(), recursive: true }), 9);
    let grep = Work::Grep { path: path(), pattern: "x".into(), include: None, ignore_case: false, matches_max: 1 };
    assert_eq!(number(&grep), 14);
    assert_eq!(number(&Work::Space { path: path() }), 19);
    assert_eq!(number(&Work::Adjust { path: path(), mode: None, uid: None, gid: None }), 23);
    assert_eq!(number(&Work::Save), 24);
}

#[test]
fn messages_carry_their_length() {
    let reply: Reply = Err(Trouble::new(TroubleCode::NoMatch, "not there"));
    let bytes = encode(&reply).unwrap();
    let length = u32::from_le_bytes(bytes[..PREFIX_BYTES].try_into().unwrap());
    assert_eq!(length as usize, bytes.len() - PREFIX_BYTES);
    assert_eq!(decode::<Reply>(&bytes[PREFIX_BYTES..]).unwrap(), reply);
    assert!(decode::<Reply>(&[&bytes[PREFIX_BYTES..], &[0]].concat()).is_err(), "nothing may follow");
}
