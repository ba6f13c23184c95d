//! What commands may not do to files of the host, in boxes that can write to directories of it.

use std::collections::BTreeMap;

use super::compile::{Answer, Decision, Rule, error};
use super::table::{Checked, checked, has, is, refuse};

/// Whether `openat2` is allowed; it takes the mode behind a pointer, where a filter cannot read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Openat2 {
    /// It fails with `ENOSYS`; C libraries fall back to `openat`.
    Unknown,
    /// Allowed, for callers that create nothing with it.
    Known,
}

/// The decisions on calls that give a file its mode or its kind, or copy whole trees; all others are not for this to decide.
pub(super) fn decisions(openat2: Openat2) -> BTreeMap<u32, Decision> {
    let unknown: &[Checked] = if openat2 == Openat2::Unknown { UNKNOWN } else { &[] };
    let all = checked(MODES).chain(checked(unknown));
    all.filter_map(|(number, decision)| Some((u32::try_from(number).ok()?, decision))).collect()
}

const UNKNOWN: &[Checked] = &[(libc::SYS_openat2, &[], error(libc::ENOSYS))];

/// Calls that set a file's mode or type, or copy a tree with them. `mkdir` is not included: the kernel ignores these bits there.
const MODES: &[Checked] = &[
    (libc::SYS_chmod, MODE_1, Answer::Allow),
    (libc::SYS_fchmod, MODE_1, Answer::Allow),
    (libc::SYS_fchmodat, MODE_2, Answer::Allow),
    (libc::SYS_fchmodat2, MODE_2, Answer::Allow),
    (libc::SYS_creat, MODE_1, Answer::Allow),
    (libc::SYS_open, OPEN, Answer::Allow),
    (libc::SYS_openat, OPENAT, Answer::Allow),
    (libc::SYS_mknod, MODE_1, Answer::Allow),
    (libc::SYS_mknodat, MODE_2, Answer::Allow),
    (libc::SYS_renameat2, RENAME, Answer::Allow),
    (libc::SYS_ioctl, SUBVOLUMES, Answer::Allow),
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

/// Making subvolumes and snapshots of btrfs, which any user may: a snapshot copies the set-user-id files of its original.
const SUBVOLUMES: &[Rule] = &[
    refuse(&[is(1, BTRFS_IOC_SNAP_CREATE)]),
    refuse(&[is(1, BTRFS_IOC_SUBVOL_CREATE)]),
    refuse(&[is(1, BTRFS_IOC_SNAP_CREATE_V2)]),
    refuse(&[is(1, BTRFS_IOC_SUBVOL_CREATE_V2)]),
];
// `_IOW(0x94, number, 4096 bytes)` each.
const BTRFS_IOC_SNAP_CREATE: u32 = 0x5000_9401;
const BTRFS_IOC_SUBVOL_CREATE: u32 = 0x5000_940E;
const BTRFS_IOC_SNAP_CREATE_V2: u32 = 0x5000_9417;
const BTRFS_IOC_SUBVOL_CREATE_V2: u32 = 0x5000_9418;
