//! The outer form of an archive: every byte of it belongs to exactly one thing.
//!
//! Programs differ in which record at the end they believe, in what they skip before the first entry and between entries,
//! and in whether they read the directory or the entries. Where nothing is left over and nothing overlaps, they all read
//! the same.

use std::io::Cursor;
use std::ops::Range;

use zip::ZipArchive;

use crate::error::{Error, Result};
use crate::limits::{ZIP_COMMENT_BYTES_MAX, ZIP_ENTRIES_MAX};

/// Starts the record at the end.
const END_SIGNATURE: &[u8] = b"PK\x05\x06";
/// Size of that record without the comment.
const END_BYTES: usize = 22;
/// Starts the record that points to a 64-bit one.
const LOCATOR_64_SIGNATURE: &[u8] = b"PK\x06\x07";
/// Size of that record.
const LOCATOR_64_BYTES: usize = 20;
/// Starts an entry of the directory.
const CENTRAL_SIGNATURE: &[u8] = b"PK\x01\x02";
/// Size of such an entry without name, extra fields and comment.
const CENTRAL_BYTES: usize = 46;
/// May start what follows an entry whose sizes were not known before it was written.
const DESCRIPTOR_SIGNATURE: &[u8] = b"PK\x07\x08";
/// Refused features: encryption, patch data, strong encryption, masked headers.
const FLAGS_REFUSED: usize = 1 | 1 << 5 | 1 << 6 | 1 << 13;

/// The record at the end, and where it says that the directory is.
#[derive(Debug)]
pub(super) struct End {
    /// The directory.
    directory: Range<usize>,
    /// Entries in it.
    entries: usize,
}

impl End {
    /// Finds the record, which must be the last thing in the archive, right behind the directory.
    pub(super) fn find(bytes: &[u8]) -> Result<Self> {
        let earliest = bytes.len().saturating_sub(END_BYTES + ZIP_COMMENT_BYTES_MAX);
        let last = bytes[earliest..].windows(END_SIGNATURE.len()).rposition(|window| window == END_SIGNATURE);
        let at = earliest + last.ok_or_else(|| refused("it has no end record, or a long comment behind it"))?;
        let end = &bytes[at..];
        if end.len() < END_BYTES || END_BYTES + u16_at(end, 20) != end.len() {
            return Err(refused("something follows its end record"));
        }
        if u16_at(end, 4) != 0 || u16_at(end, 6) != 0 || u16_at(end, 8) != u16_at(end, 10) {
            return Err(refused("it is one part of several"));
        }
        let entries = u16_at(end, 10);
        if entries > ZIP_ENTRIES_MAX {
            return Err(Error::ArchiveEntries);
        }
        if at >= LOCATOR_64_BYTES && bytes[at - LOCATOR_64_BYTES..].starts_with(LOCATOR_64_SIGNATURE) {
            return Err(refused("it uses 64-bit records, which an archive of this size has no need of"));
        }
        let (size, start) = (u32_at(end, 12), u32_at(end, 16));
        if start.checked_add(size) != Some(at) {
            return Err(refused("its directory is not where its end record says"));
        }
        let found = Self { directory: start..at, entries };
        found.check_directory(bytes)?;
        Ok(found)
    }

    /// The directory must be filled by its entries.
    fn check_directory(&self, bytes: &[u8]) -> Result<()> {
        let mut rest = &bytes[self.directory.clone()];
        for _ in 0..self.entries {
            if rest.len() < CENTRAL_BYTES || !rest.starts_with(CENTRAL_SIGNATURE) {
                return Err(refused("its directory has fewer entries than its end record says"));
            }
            if u16_at(rest, 8) & FLAGS_REFUSED != 0 {
                let path = "the archive cannot be read without a password".to_owned();
                return Err(Error::ArchiveEntry { what: "an encrypted entry", path });
            }
            let length = CENTRAL_BYTES + u16_at(rest, 28) + u16_at(rest, 30) + u16_at(rest, 32);
            rest = rest.get(length..).ok_or_else(|| refused("its directory is cut off"))?;
        }
        if rest.is_empty() { Ok(()) } else { Err(refused("its directory has more entries than its end record says")) }
    }
}

/// The entries must fill the archive up to the directory, in whichever order.
pub(super) fn check_tiles(bytes: &[u8], end: &End, zip: &mut ZipArchive<Cursor<&[u8]>>) -> Result<()> {
    if zip.len() != end.entries {
        return Err(refused("its directory can be read in two ways"));
    }
    let mut tiles = (0..zip.len()).map(|index| Tile::of(zip, index)).collect::<Result<Vec<_>>>()?;
    tiles.sort_unstable_by_key(|tile| tile.start);
    let starts = tiles.iter().skip(1).map(|tile| tile.start).chain([end.directory.start]);
    let nexts: Vec<usize> = starts.collect();
    if tiles.first().map_or(end.directory.start, |tile| tile.start) != 0 {
        return Err(refused("something comes before its first entry"));
    }
    for (tile, next) in tiles.iter().zip(nexts) {
        let behind = bytes.get(tile.data_end..next).ok_or_else(|| refused("its entries overlap"))?;
        if !tile.explains(behind) {
            return Err(refused("something lies between its entries"));
        }
    }
    Ok(())
}

/// What one entry takes up.
struct Tile {
    start: usize,
    data_end: usize,
    checksum: u32,
    packed: u64,
    size: u64,
    has_descriptor: bool,
}

impl Tile {
    fn of(zip: &mut ZipArchive<Cursor<&[u8]>>, index: usize) -> Result<Self> {
        let entry = zip.by_index_raw(index).map_err(|error| super::not_zip(&error))?;
        let data_start = entry.data_start().ok_or_else(|| refused("an entry has no data"))?;
        Ok(Self {
            start: position(Some(entry.header_start()))?,
            data_end: position(data_start.checked_add(entry.compressed_size()))?,
            checksum: entry.crc32(),
            packed: entry.compressed_size(),
            size: entry.size(),
            has_descriptor: entry.flags().is_using_data_descriptor(),
        })
    }

    /// Whether what is behind the data is what this entry must have there: nothing, or its descriptor.
    fn explains(&self, behind: &[u8]) -> bool {
        if !self.has_descriptor {
            return behind.is_empty();
        }
        // Directories are often flagged and have none.
        (behind.is_empty() && self.packed == 0)
            || self.is_descriptor(behind)
            || behind.strip_prefix(DESCRIPTOR_SIGNATURE).is_some_and(|behind| self.is_descriptor(behind))
    }

    fn is_descriptor(&self, bytes: &[u8]) -> bool {
        let checksum = self.checksum.to_le_bytes();
        let long = [checksum.as_slice(), &self.packed.to_le_bytes(), &self.size.to_le_bytes()].concat();
        let short = match (u32::try_from(self.packed), u32::try_from(self.size)) {
            (Ok(packed), Ok(size)) => [checksum, packed.to_le_bytes(), size.to_le_bytes()].concat(),
            _ => return false,
        };
        bytes == long || bytes == short
    }
}

fn position(offset: Option<u64>) -> Result<usize> {
    offset.and_then(|offset| usize::try_from(offset).ok()).ok_or_else(|| refused("an entry lies nowhere"))
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().take(2).rev().fold(0, |value, byte| value << 8 | usize::from(*byte))
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().take(4).rev().fold(0, |value, byte| value << 8 | usize::from(*byte))
}

fn refused(reason: &str) -> Error {
    Error::NotZip { reason: reason.to_owned() }
}
