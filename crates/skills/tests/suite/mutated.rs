//! Archives with anything wrong in them: never a panic, never a byte outside, never half of a skill.

use box_skills::Selection;
use proptest::prelude::*;

use crate::archive::{Entry, archive, plain, skill};
use crate::{TestStore, request, snapshot};

/// A change to the bytes of an archive.
#[derive(Debug, Clone)]
enum Change {
    Flip(prop::sample::Index, u8),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
    Copy(prop::sample::Index, prop::sample::Index, usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        match self {
            Self::Flip(at, bits) => bytes[at.index(length)] ^= bits,
            Self::Remove(at, count) => {
                let at = at.index(length);
                bytes.drain(at..length.min(at + count));
            }
            Self::Insert(at, more) => {
                let at = at.index(length);
                bytes.splice(at..at, more.iter().copied());
            }
            Self::Copy(from, to, count) => {
                let (from, to) = (from.index(length), to.index(length));
                let count = (*count).min(length - from.max(to));
                bytes.copy_within(from..from + count, to);
            }
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, bits)| Change::Flip(at, bits)),
        1 => (at(), 1..40_usize).prop_map(|(at, count)| Change::Remove(at, count)),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, more)| Change::Insert(at, more)),
        1 => (at(), at(), 1..60_usize).prop_map(|(from, to, count)| Change::Copy(from, to, count)),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[ab]{1,2}(/[ab.]{1,2}){0,3}/?",
        1 => "(\\.\\./|/|[a-c]:|\\\\|\\./){0,3}[a-zÀé\u{301}]{0,3}",
        1 => "\\PC{0,10}",
        1 => Just("SKILL.md".to_owned()),
        1 => Just("a/SKILL.md".to_owned()),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    let kinds = [0, 0o100_644, 0o100_755, 0o040_755, 0o120_777, 0o010_644];
    (name(), "[a-z]{0,20}", prop::sample::select(kinds.to_vec()), any::<bool>()).prop_map(
        |(name, text, mode, packed)| {
            let entry = if packed { Entry::deflated(&name, text) } else { Entry::stored(&name, text) };
            entry.with(|entry| entry.mode = mode)
        },
    )
}

/// An entry of which one fact is not true.
fn lying_entry() -> impl Strategy<Value = Entry> {
    (entry(), 0..8, any::<u32>()).prop_map(|(entry, which, value)| {
        let small = u16::from_le_bytes([value.to_le_bytes()[0], value.to_le_bytes()[1]]);
        entry.with(|entry| match which {
            0 => entry.size = value,
            1 => entry.checksum = value,
            2 => entry.offset = Some(value % 300),
            3 => entry.local_name = Some(b"other".to_vec()),
            4 => entry.method = small % 20,
            5 => entry.flags = small,
            6 => entry.behind = vec![0; usize::from(small % 30)],
            _ => *entry = entry.clone().streamed(),
        })
    })
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?} {:o}", String::from_utf8_lossy(&self.name), self.mode)
    }
}

/// Installs an archive, and checks that it came whole or not at all, and that the preview had said which.
fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    let place = TestStore::new();
    let before = snapshot(place.directory.path());
    let preview = place.store.preview_zip(bytes, &request("x.zip"));
    prop_assert_eq!(&snapshot(place.directory.path()), &before, "a preview writes nothing");
    let installed = place.store.install_zip(bytes, &request("x.zip"), &Selection::default());
    place.check_clean();
    match (preview, installed) {
        (Ok(previews), Ok(skills)) => {
            prop_assert_eq!((previews.len(), skills.len()), (1, 1));
            prop_assert_eq!(&previews[0].skill.instructions, &skills[0].instructions);
            prop_assert_eq!(place.store.list().unwrap(), skills);
        }
        // Several skills, none of them chosen.
        (Ok(previews), Err(_)) => prop_assert!(previews.len() > 1),
        (Err(_), Ok(skills)) => prop_assert!(false, "installed what cannot be previewed: {skills:?}"),
        (Err(_), Err(_)) => prop_assert_eq!(&snapshot(place.directory.path()), &before),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn damaged_archives_are_whole_or_nothing(changes in prop::collection::vec(change(), 1..6)) {
        let mut bytes = plain("zipped");
        for change in &changes {
            change.apply(&mut bytes);
        }
        check(&bytes)?;
    }

    #[test]
    fn archives_of_any_entries_are_whole_or_nothing(entries in prop::collection::vec(entry(), 0..6)) {
        let entries = [&[Entry::stored("a/b/SKILL.md", skill("base"))], entries.as_slice()].concat();
        check(&archive(&entries))?;
    }

    #[test]
    fn archives_that_lie_are_whole_or_nothing(entries in prop::collection::vec(lying_entry(), 1..4)) {
        let entries = [entries.as_slice(), &[Entry::stored("a/b/SKILL.md", skill("base"))]].concat();
        check(&archive(&entries))?;
    }

    #[test]
    fn bytes_that_are_no_archive_are_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes)?;
    }
}
