//! Which bytes of an output are wanted.

use http::{HeaderMap, header};

use crate::failure::Failure;

/// Which bytes of an output are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// At most `count` bytes from an offset on.
    From {
        /// The first byte.
        start: u64,
        /// How many.
        count: u64,
    },
    /// A range as HTTP knows it: from the first to the last byte, both included.
    Range {
        /// The first byte.
        first: u64,
        /// The last byte.
        last: u64,
    },
    /// A range as HTTP defines it: the last bytes.
    Suffix {
        /// How many.
        count: u64,
    },
}

impl ByteRange {
    /// The range of the header `Range`, or else of the query.
    pub fn read(headers: &HeaderMap, from: Option<u64>, max: Option<u64>) -> Result<Self, Failure> {
        let mut ranges = headers.get_all(header::RANGE).iter();
        match (ranges.next(), ranges.next()) {
            (None, _) => Ok(Self::From { start: from.unwrap_or(0), count: max.unwrap_or(u64::MAX) }),
            (Some(_), None) if from.is_some() || max.is_some() => {
                Err(Failure::invalid("from", "give the header Range or from and max, not both"))
            }
            (Some(range), None) => range.to_str().ok().and_then(parse).ok_or_else(refuse),
            (Some(_), Some(_)) => Err(refuse()),
        }
    }
}

fn refuse() -> Failure {
    Failure::invalid(
        "Range",
        "invalid Range: one range of bytes is needed, such as bytes=0-99, bytes=100- or bytes=-100",
    )
}

fn parse(text: &str) -> Option<ByteRange> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    match (first.trim(), last.trim()) {
        ("", count) => Some(ByteRange::Suffix { count: digits(count)?.max(1) }),
        (first, "") => Some(ByteRange::Range { first: digits(first)?, last: u64::MAX }),
        (first, last) => {
            let (first, last) = (digits(first)?, digits(last)?);
            (first <= last).then_some(ByteRange::Range { first, last })
        }
    }
}

/// A number as HTTP writes it: digits only. One that is too large means as far as there is.
fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(range: &str) -> Result<ByteRange, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, range.parse().unwrap());
        ByteRange::read(&headers, None, None)
    }

    #[test]
    fn one_range_of_bytes_is_understood() {
        let table = [
            ("bytes=0-99", ByteRange::Range { first: 0, last: 99 }),
            ("bytes=5-5", ByteRange::Range { first: 5, last: 5 }),
            ("bytes=100-", ByteRange::Range { first: 100, last: u64::MAX }),
            ("bytes=0-99999999999999999999999", ByteRange::Range { first: 0, last: u64::MAX }),
            ("bytes=-7", ByteRange::Suffix { count: 7 }),
        ];
        for (range, wanted) in table {
            assert_eq!(read(range).unwrap(), wanted, "{range}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=+1-2",
            "bytes=1--2",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_query_counts_when_there_is_no_header() {
        let empty = HeaderMap::new();
        assert_eq!(ByteRange::read(&empty, Some(5), Some(2)).unwrap(), ByteRange::From { start: 5, count: 2 });
        assert_eq!(ByteRange::read(&empty, None, None).unwrap(), ByteRange::From { start: 0, count: u64::MAX });
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, "bytes=0-1".parse().unwrap());
        assert!(ByteRange::read(&headers, Some(1), None).is_err(), "both");
    }
}
