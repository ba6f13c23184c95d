//! What a newer agent may send: words that this program does not know.
//!
//! Where a value that fits them all exists, it stands for them: a code, a kind of entry, a kind of change. Everything else
//! would be a guess, and is refused by its name.

use std::fmt::Debug;

use box_wire::file_op::{Change, ChangeKind, Cut, Entry, EntryKind, Happening, Reply};
use box_wire::frame::{self, FrameError, HEADER_BYTES};
use box_wire::{Answer, EndRecord, Ending, Event, Exit, FileErrorCode, Header, Kind, RefusalCode, SignalScope};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{exec, prefixed, unprefixed};

/// Writes a message with the names of fields and variants, as a newer program would.
fn newer(message: impl Serialize) -> Vec<u8> {
    prefixed(&message)
}

/// A map with one entry: a variant of an enum, and its content.
fn variant<T: Serialize>(name: &str, content: T) -> std::collections::BTreeMap<String, T> {
    [(name.to_owned(), content)].into()
}

#[derive(Serialize)]
struct Coded {
    code: &'static str,
    message: &'static str,
    hint: &'static str,
}

const CODED: Coded = Coded { code: "OutOfLuck", message: "no luck left", hint: "wait for luck" };

#[test]
fn unknown_codes_are_general_errors_that_keep_their_message() {
    let event = newer(variant("Refused", CODED));
    let Ok(Event::Refused(refusal)) = frame::decode(Kind::Event, &event) else { panic!("no refusal") };
    assert_eq!((refusal.code, refusal.message.as_str()), (RefusalCode::Internal, "no luck left"));
    let Err(error) = unprefixed::<Reply>(&newer(variant("Err", CODED))) else { panic!("no error") };
    assert_eq!((error.code, error.message.as_str()), (FileErrorCode::Failed, "no luck left"));
}

#[test]
fn the_end_of_an_exec_is_read_with_an_unknown_refusal() {
    #[derive(Serialize)]
    struct Record {
        ending: std::collections::BTreeMap<String, Coded>,
        stdout_bytes: u64,
        stderr_bytes: u64,
    }
    let record = newer(Record { ending: variant("Refused", CODED), stdout_bytes: 1, stderr_bytes: 2 });
    let record = EndRecord::from_bytes(&exec(), &record).unwrap();
    assert_eq!((record.stdout_bytes, record.stderr_bytes), (1, 2));
    assert!(matches!(record.ending, Ending::Refused(refusal) if refusal.code == RefusalCode::Internal));
}

#[test]
fn unknown_kinds_of_entries_and_changes_are_general_ones() {
    #[derive(Serialize)]
    struct NewEntry {
        path: &'static str,
        kind: &'static str,
        size: u64,
        mode: u32,
        uid: u32,
        gid: u32,
        modified_ns: i64,
        target: Option<String>,
        checksum: u64,
    }
    #[derive(Serialize)]
    struct NewChange {
        what: &'static str,
        path: &'static str,
        is_directory: bool,
    }
    let entry = NewEntry {
        path: "/a",
        kind: "whiteout",
        size: 1,
        mode: 2,
        uid: 3,
        gid: 4,
        modified_ns: 5,
        target: None,
        checksum: 6,
    };
    let Ok(Answer::Entry(Entry { path, kind, .. })) =
        unprefixed::<Reply>(&newer(variant("Ok", variant("Entry", entry))))
    else {
        panic!("no entry")
    };
    assert_eq!((path.as_str(), kind), ("/a", EntryKind::Other));
    let change = || NewChange { what: "sealed", path: "/a", is_directory: true };
    let missed = Change { what: ChangeKind::Missed, path: "/a".to_owned(), is_directory: true };
    assert_eq!(unprefixed::<Change>(&newer(change())), missed);
    let happening = unprefixed::<Happening>(&newer(variant("change", change())));
    assert_eq!(happening, Happening { change: missed, detail: None });
}

/// Refuses an unknown variant and says which.
fn refuses<T: DeserializeOwned + Debug>(message: impl Serialize) {
    let refusal = frame::decode::<T>(Kind::Event, &newer(message)).unwrap_err();
    assert!(matches!(&refusal, FrameError::Malformed { reason, .. } if reason.contains("Unheard")), "{refusal}");
}

#[test]
fn what_no_other_value_can_stand_for_is_refused_by_name() {
    refuses::<Event>("Unheard");
    refuses::<Event>(variant("Unheard", 1));
    refuses::<Answer>("Unheard");
    refuses::<Answer>(variant("Unheard", 1));
    refuses::<Exit>(variant("Unheard", 1));
    refuses::<Ending>(variant("Unheard", 1));
    refuses::<Cut>("Unheard");
    refuses::<SignalScope>("Unheard");
    let mut header = [0; HEADER_BYTES];
    header[0] = 0x7f;
    assert_eq!(Header::from_bytes(header), Err(FrameError::UnknownKind(0x7f)));
    let record = EndRecord::from_bytes(&exec(), &newer(variant("ending", variant("Unheard", 1)))).unwrap_err();
    assert!(record.to_string().contains("Unheard"), "{record}");
}
