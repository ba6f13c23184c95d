//! How much room there is.

use box_wire::{Answer, GuestPath, Trouble};

use super::place::Place;
use super::trouble;

/// What the file system that something lies on says of itself.
pub(super) fn space(place: &Place, path: &GuestPath) -> Result<Answer, Trouble> {
    let stat = rustix::fs::fstatvfs(place.find(path)?).map_err(|error| trouble(path.as_str(), error))?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Answer::Space { total_bytes: bytes(stat.f_blocks), free_bytes: bytes(stat.f_bavail) })
}
