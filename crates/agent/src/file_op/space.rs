//! How much room there is.

use box_wire::{Answer, FileError, GuestPath};

use super::file_error;
use super::place::FileTree;

/// The free space of the file system that holds a path.
pub(super) fn space(place: &FileTree, path: &GuestPath) -> Result<Answer, FileError> {
    let stat = rustix::fs::fstatvfs(place.find(path)?).map_err(|error| file_error(path.as_str(), error))?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Answer::Space { total_bytes: bytes(stat.f_blocks), free_bytes: bytes(stat.f_bavail) })
}
