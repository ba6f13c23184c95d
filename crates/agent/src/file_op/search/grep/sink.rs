//! Takes matching lines from the searcher.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use box_wire::file_op::Match;
use box_wire::limits::MATCH_CHARS_MAX;
use grep_searcher::{Searcher, Sink, SinkMatch};

/// Longest character.
const CHARACTER_BYTES_MAX: usize = 4;

/// The matching lines of one file.
pub(super) struct Lines<'a, P> {
    /// Matches of all threads.
    found: &'a AtomicU64,
    matches_max: u64,
    /// The name of the file in the answer.
    path: P,
    matches: &'a mut Vec<Match>,
    /// Lines of this file.
    pub(super) count: u64,
    pub(super) is_binary: bool,
}

impl<'a, P: Fn() -> String> Lines<'a, P> {
    pub(super) fn new(found: &'a AtomicU64, matches_max: u64, path: P, matches: &'a mut Vec<Match>) -> Self {
        Self { found, matches_max, path, matches, count: 0, is_binary: false }
    }
}

impl<P: Fn() -> String> Sink for Lines<'_, P> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        self.count += 1;
        // One more than the limit is enough to know that there are more.
        if self.found.fetch_add(1, Ordering::Relaxed) >= self.matches_max {
            return Ok(false);
        }
        let number = line.line_number().unwrap_or(0);
        self.matches.push(Match { path: (self.path)(), line: number, text: text(line.bytes()) });
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.is_binary = true;
        Ok(false)
    }
}

/// A line without its end, cut where it is too long.
fn text(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let enough = line.len().min((MATCH_CHARS_MAX + 1) * CHARACTER_BYTES_MAX);
    String::from_utf8_lossy(&line[..enough]).chars().take(MATCH_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_without_their_end_and_cut_between_characters() {
        assert_eq!(text(b"one\r\n"), "one");
        assert_eq!(text(b"a\xff\n"), "a\u{fffd}");
        assert_eq!(text("😀".repeat(501).as_bytes()), "😀".repeat(500));
        assert_eq!(text("a😀".repeat(500).as_bytes()), "a😀".repeat(250));
    }
}
