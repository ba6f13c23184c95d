//! Directories as tar archives: packed here for a box, and unpacked here from one.

mod pack;
mod unpack;

pub(crate) use pack::pack;
pub(crate) use unpack::{Unpacked, unpack};

/// Most entries that are taken out of one archive.
const ENTRIES_MAX: u64 = 1_000_000;
/// Most bytes that are written for one archive. A file with holes is small in an archive and large on a disk.
const BYTES_MAX: u64 = 64 << 30;
/// Most bytes before an entry that say what it is: its name, and what a link in it says.
const HEAD_BYTES_MAX: u64 = 1 << 20;
