//! The archive format of a saved box, for the code that writes it and the code that restores it.
//!
//! It is a tar archive of the box's storage: `root`, if the box has a root of its own, and `places`, with one directory
//! for each of its own places. PAX records of our own hold what tar cannot express: extended attributes, and the data
//! extents of sparse files. The last entry marks the archive as complete.

use std::os::fd::OwnedFd;

/// The top directory with the root of a box that has one of its own.
pub(crate) const ROOT: &str = "root";
/// The top directory with the places of a box.
pub(crate) const PLACES: &str = "places";
/// The directory of an overlay that holds the box's changes.
pub(crate) const UPPER: &str = "upper";

/// The record of an extended attribute.
pub(crate) const ATTRIBUTE: &str = "STRONGBOX.attribute";
/// The record of the parts of a file that are not holes.
pub(crate) const EXTENTS: &str = "STRONGBOX.extents";
/// The content of the last entry.
pub(crate) const END: &[u8] = b"20 comment=complete\n";

/// The mark of a directory behind which nothing of the layers below can be seen.
pub(crate) const OPAQUE: &[u8] = b"user.overlay.opaque";

/// The storage of a box, for readers.
#[derive(Debug)]
pub(crate) struct Storage {
    /// A read-only mount of it. Only the agent and the process that saves the box have a path to it.
    pub(crate) view: OwnedFd,
    /// Names of the places that are overlays.
    pub(crate) overlays: Vec<String>,
}

/// Whether an attribute goes along. Of an overlay's own, only the mark that it cannot do without: the others point to files of the
/// layers below.
pub(crate) fn is_kept(name: &[u8]) -> bool {
    name == OPAQUE || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
}

/// An attribute as the text of a record, in which neither ends of lines nor anything else can do harm.
pub(crate) fn attribute_text(name: &[u8], value: &[u8]) -> String {
    format!("{}:{}", hexadecimal(name), hexadecimal(value))
}

/// Name and value of an attribute.
pub(crate) fn parse_attribute(text: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (name, value) = text.split_once(':')?;
    Some((bytes(name)?, bytes(value)?))
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// How long a file is, and which parts of it are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extents {
    /// Bytes of the whole file.
    pub(crate) size: u64,
    /// Offset and length of each extent, in order.
    pub(crate) parts: Vec<(u64, u64)>,
}

impl Extents {
    /// All of a file.
    pub(crate) fn whole(size: u64) -> Self {
        Self { size, parts: vec![(0, size)] }
    }

    /// Bytes that are there; nothing where the parts cannot be those of a file.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let mut end = 0;
        let mut sum = 0_u64;
        for &(offset, length) in &self.parts {
            let next = offset.checked_add(length).filter(|next| *next <= self.size)?;
            if offset < end {
                return None;
            }
            (end, sum) = (next, sum + length);
        }
        Some(sum)
    }

    pub(crate) fn text(&self) -> String {
        let numbers = self.parts.iter().flat_map(|&(offset, length)| [offset, length]);
        [self.size].into_iter().chain(numbers).map(|number| number.to_string()).collect::<Vec<_>>().join(",")
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let numbers: Option<Vec<u64>> = text.split(',').map(|number| number.parse().ok()).collect();
        match numbers?.as_slice() {
            [size, pairs @ ..] if pairs.len() % 2 == 0 => {
                Some(Self { size: *size, parts: pairs.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
