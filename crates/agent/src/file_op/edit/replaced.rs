//! Replaces text in bytes. Nothing here touches a file.

use memchr::memmem::Finder;

/// Why nothing was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// The old text is not there.
    Absent(Near),
    /// The old text is there more than once: so often, where they do not overlap.
    Ambiguous(usize),
    /// The result would have this many bytes, which is more than the limit.
    TooLarge(usize),
}

/// A passage that resembles the missing old text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Near {
    /// The same lines with other line ends.
    LineEnds,
    /// The same text with other white space.
    WhiteSpace,
    /// Nothing like it.
    Nothing,
}

/// Replaces `old` by `new`: its only place, or all of them. Gives the result and how many places there were.
pub(super) fn replaced(
    bytes: &[u8],
    old: &[u8],
    new: &[u8],
    all: bool,
    bytes_max: usize,
) -> Result<(Vec<u8>, usize), Mismatch> {
    let finder = Finder::new(old);
    let Some(first) = finder.find(bytes).filter(|_| !old.is_empty()) else {
        return Err(Mismatch::Absent(near(bytes, old)));
    };
    let count = finder.find_iter(bytes).count();
    // Overlapping occurrences are ambiguous too.
    if !all && finder.find(&bytes[first + 1..]).is_some() {
        return Err(Mismatch::Ambiguous(count.max(2)));
    }
    let length = (bytes.len() - count * old.len()).saturating_add(count.saturating_mul(new.len()));
    if length > bytes_max {
        return Err(Mismatch::TooLarge(length));
    }
    let mut result = Vec::with_capacity(length);
    let mut done = 0;
    for place in finder.find_iter(bytes) {
        result.extend_from_slice(&bytes[done..place]);
        result.extend_from_slice(new);
        done = place + old.len();
    }
    result.extend_from_slice(&bytes[done..]);
    Ok((result, count))
}

fn near(bytes: &[u8], old: &[u8]) -> Near {
    let found = |keep: fn(u8) -> bool| {
        let only = |bytes: &[u8]| bytes.iter().copied().filter(|&byte| keep(byte)).collect::<Vec<u8>>();
        let old = only(old);
        !old.is_empty() && Finder::new(&old).find(&only(bytes)).is_some()
    };
    if found(|byte| byte != b'\r') {
        Near::LineEnds
    } else if found(|byte| !byte.is_ascii_whitespace()) {
        Near::WhiteSpace
    } else {
        Near::Nothing
    }
}
