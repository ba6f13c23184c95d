//! What commands may not do to files of the host, in boxes that can write to directories of it.

use std::collections::BTreeMap;

use super::compile::{Answer, Decision, Rule, error};
use super::table::{Checked, checked, has, refuse};

/// The decisions on calls that give a file its mode or its kind; all others are not for this to decide.
pub(super) fn decisions() -> BTreeMap<u32, Decision> {
    checked(MODES).filter_map(|(number, decision)| Some((u32::try_from(number).ok()?, decision))).collect()
}

/// Calls that give a file its mode or its kind. `openat2` takes the mode behind a pointer that a filter cannot read, and C libraries
/// fall back to `openat`. `mkdir` is not among them: the kernel ignores these bits there.
const MODES: &[Checked] = &[
    (libc::SYS_chmod, MODE_1, Answer::Allow),
    (libc::SYS_fchmod, MODE_1, Answer::Allow),
    (libc::SYS_fchmodat, MODE_2, Answer::Allow),
    (libc::SYS_fchmodat2, MODE_2, Answer::Allow),
    (libc::SYS_creat, MODE_1, Answer::Allow),
    (libc::SYS_open, OPEN, Answer::Allow),
    (libc::SYS_openat, OPENAT, Answer::Allow),
    (libc::SYS_openat2, &[], error(libc::ENOSYS)),
    (libc::SYS_mknod, MODE_1, Answer::Allow),
    (libc::SYS_mknodat, MODE_2, Answer::Allow),
    (libc::SYS_renameat2, RENAME, Answer::Allow),
];

const SET_USER_ID: u32 = libc::S_ISUID;
const SET_GROUP_ID: u32 = libc::S_ISGID;
const CREATE: u32 = libc::O_CREAT.cast_unsigned();
/// `O_TMPFILE` without `O_DIRECTORY`, which belongs to it but means something else alone.
const UNNAMED: u32 = (libc::O_TMPFILE & !libc::O_DIRECTORY).cast_unsigned();

const MODE_1: &[Rule] = &[refuse(&[has(1, SET_USER_ID)]), refuse(&[has(1, SET_GROUP_ID)])];
const MODE_2: &[Rule] = &[refuse(&[has(2, SET_USER_ID)]), refuse(&[has(2, SET_GROUP_ID)])];

/// The mode counts only when a file is made.
const OPEN: &[Rule] = &[
    refuse(&[has(1, CREATE), has(2, SET_USER_ID)]),
    refuse(&[has(1, CREATE), has(2, SET_GROUP_ID)]),
    refuse(&[has(1, UNNAMED), has(2, SET_USER_ID)]),
    refuse(&[has(1, UNNAMED), has(2, SET_GROUP_ID)]),
];
const OPENAT: &[Rule] = &[
    refuse(&[has(2, CREATE), has(3, SET_USER_ID)]),
    refuse(&[has(2, CREATE), has(3, SET_GROUP_ID)]),
    refuse(&[has(2, UNNAMED), has(3, SET_USER_ID)]),
    refuse(&[has(2, UNNAMED), has(3, SET_GROUP_ID)]),
];

/// A rename that leaves a whiteout behind, which is a device.
const RENAME: &[Rule] = &[refuse(&[has(4, libc::RENAME_WHITEOUT)])];
