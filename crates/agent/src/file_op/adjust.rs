//! Changes the mode and the owner of a file.

use box_wire::file_op::Entry;
use box_wire::{FileError, GuestPath};
use rustix::fs::{AtFlags, Gid, Mode, Uid};
use rustix::io::Errno;

use super::file_error;
use super::files::entry;
use super::place::{FileTree, by_descriptor};

/// No set-user-id and no set-group-id: the file may lie in a directory of the host.
const MODE_MASK: u32 = 0o1777;

/// Applies the requested changes, and returns the new state.
pub(super) fn adjust(
    place: &FileTree,
    path: &GuestPath,
    mode: Option<u32>,
    (uid, gid): (Option<u32>, Option<u32>),
) -> Result<Entry, FileError> {
    let failed = |error: Errno| file_error(path.as_str(), error);
    let found = place.find(path)?;
    // The bits first: who gives a file away may not change them any more.
    if let Some(mode) = mode {
        rustix::fs::chmod(by_descriptor(&found), Mode::from_raw_mode(mode & MODE_MASK)).map_err(failed)?;
    }
    if uid.is_some() || gid.is_some() {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        rustix::fs::chownat(&found, "", uid, gid, AtFlags::EMPTY_PATH).map_err(failed)?;
    }
    entry(&found, path.as_str())
}
