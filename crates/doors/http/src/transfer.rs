//! Bytes of files on their way between a connection and a box: which of them are meant, and how they are passed on.

use axum::body::Body;
use box_core::Error;
use box_core::service::FileBytes;
use box_wire::file_op::Entry;
use bytes::Bytes;
use futures_util::stream;
use http::HeaderValue;

use crate::range::ByteRange;

/// Which bytes of a file are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All.
    Whole,
    /// Some.
    Range {
        /// The first.
        start: u64,
        /// How many.
        length: u64,
    },
    /// None of those that are wanted is there.
    Nothing,
}

impl Part {
    /// The part of a file to send. A range that was requested for an earlier version of the file is ignored.
    pub fn choose(entry: &Entry, wanted: ByteRange, if_range: Option<&HeaderValue>) -> Self {
        if if_range.is_some_and(|expected| expected.as_bytes() != tag(entry).as_bytes()) {
            return Self::Whole;
        }
        let (start, end) = match wanted {
            ByteRange::From { .. } => return Self::Whole,
            ByteRange::Range { first, last } => (first, last.saturating_add(1).min(entry.size)),
            ByteRange::Suffix { count } => (entry.size.saturating_sub(count), entry.size),
        };
        if start < end { Self::Range { start, length: end - start } } else { Self::Nothing }
    }

    /// From which byte on, and how many.
    pub fn place(self, entry: &Entry) -> (u64, u64) {
        match self {
            Self::Whole => (0, entry.size),
            Self::Range { start, length } => (start, length),
            Self::Nothing => (0, 0),
        }
    }
}

/// A tag for the state of a file: its size, and when it was last changed.
pub fn tag(entry: &Entry) -> String {
    format!("\"{:x}-{:x}\"", entry.size, entry.modified_ns)
}

/// Streams bytes as fast as they are read: so many, or all. If there are fewer, or the file operation fails, the
/// response is aborted, so that a client cannot mistake it for complete.
pub fn pieces(bytes: FileBytes, first: Option<Vec<u8>>, length: Option<u64>) -> Body {
    let begin = (bytes, first, length.unwrap_or(u64::MAX));
    let pieces = stream::try_unfold(begin, move |(mut bytes, ready, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let piece = match ready {
            Some(ready) => Some(ready),
            None => bytes.next().await.map_err(broke_off)?,
        };
        match piece {
            Some(mut piece) => {
                piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - piece.len() as u64;
                Ok(Some((Bytes::from(piece), (bytes, None, left))))
            }
            None if length.is_none() => Ok(None),
            None => Err(std::io::Error::other("the file became shorter")),
        }
    });
    Body::from_stream(pieces)
}

fn broke_off(error: Error) -> std::io::Error {
    tracing::info!(error = %error, "a download broke off");
    std::io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use box_wire::file_op::EntryKind;

    use super::*;

    fn entry(size: u64) -> Entry {
        let path = "/f".to_owned();
        Entry { path, kind: EntryKind::File, size, mode: 0o644, uid: 0, gid: 0, modified_ns: 255, target: None }
    }

    #[test]
    fn a_range_is_cut_to_what_there_is() {
        let range = |first, last| ByteRange::Range { first, last };
        let part = |start, length| Part::Range { start, length };
        for (wanted, size, expected) in [
            (range(0, 0), 10, part(0, 1)),
            (range(3, 5), 10, part(3, 3)),
            (range(3, u64::MAX), 10, part(3, 7)),
            (range(9, 99), 10, part(9, 1)),
            (range(10, 99), 10, Part::Nothing),
            (range(0, u64::MAX), 0, Part::Nothing),
            (ByteRange::Suffix { count: 4 }, 10, part(6, 4)),
            (ByteRange::Suffix { count: 99 }, 10, part(0, 10)),
            (ByteRange::Suffix { count: 1 }, 0, Part::Nothing),
        ] {
            assert_eq!(Part::choose(&entry(size), wanted, None), expected, "{wanted:?} of {size}");
        }
    }

    #[test]
    fn a_range_of_another_file_is_all_of_this_one() {
        let wanted = ByteRange::Range { first: 5, last: 7 };
        let choose = |if_range: &str| Part::choose(&entry(10), wanted, Some(&if_range.parse().unwrap()));
        assert_eq!(tag(&entry(10)), "\"a-ff\"");
        assert_eq!(choose("\"a-ff\""), Part::Range { start: 5, length: 3 });
        for other in ["\"b-ff\"", "\"a-fe\"", "W/\"a-ff\"", "a-ff", "Wed, 21 Oct 2015 07:28:00 GMT", "*"] {
            assert_eq!(choose(other), Part::Whole, "{other}");
        }
        // Not even the end of the file is an error then.
        assert_eq!(Part::choose(&entry(2), wanted, Some(&"\"a-ff\"".parse().unwrap())), Part::Whole);
    }

    #[test]
    fn every_change_of_size_or_time_is_another_tag() {
        let tags = [entry(1), entry(16), Entry { modified_ns: 256, ..entry(1) }, Entry { modified_ns: -1, ..entry(1) }];
        let tags: std::collections::BTreeSet<_> = tags.iter().map(tag).collect();
        assert_eq!(tags.len(), 4);
    }
}
