#![no_main]

#[path = "../../crates/agent/src/file_op/edit/replaced.rs"]
mod replaced;

use replaced::{Mismatch, replaced};

/// Small enough that results which are too large come up.
const BYTES_MAX: usize = 4096;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

/// The first bytes say how long the old and the new text are and whether all places are meant; the file is the rest.
fn check(bytes: &[u8]) {
    let [old_length, new_length, all, rest @ ..] = bytes else { return };
    let Some((old, rest)) = rest.split_at_checked(usize::from(old_length % 16) + 1) else { return };
    let Some((new, file)) = rest.split_at_checked((*new_length).into()) else { return };
    let all = all % 2 == 0;
    let places = file.windows(old.len()).filter(|window| *window == old).count();
    let (expected, count) = step_by_step(file, old, new);
    match replaced(file, old, new, all, BYTES_MAX) {
        Ok((result, told)) => {
            assert!(all || places == 1, "replaced one of {places} places");
            assert!(result.len() <= BYTES_MAX);
            assert_eq!((result, told), (expected, count));
        }
        Err(Mismatch::Absent(_)) => assert_eq!(places, 0),
        Err(Mismatch::Ambiguous(told)) => {
            assert!(!all && places > 1);
            assert_eq!(told, count.max(2));
        }
        Err(Mismatch::TooLarge(told)) => assert!(told > BYTES_MAX && told == expected.len()),
    }
}

fn step_by_step(file: &[u8], old: &[u8], new: &[u8]) -> (Vec<u8>, usize) {
    let (mut result, mut count, mut rest) = (Vec::new(), 0, file);
    while let Some(&byte) = rest.first() {
        let replaces = rest.starts_with(old);
        if replaces {
            result.extend_from_slice(new)
        } else {
            result.push(byte)
        }
        count += usize::from(replaces);
        rest = &rest[if replaces { old.len() } else { 1 }..];
    }
    (result, count)
}
