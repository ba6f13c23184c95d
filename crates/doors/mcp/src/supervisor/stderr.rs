//! The end of what a server writes to its standard error.

use std::collections::VecDeque;

use crate::limits::{STDERR_LINE_CHARS_MAX, STDERR_LINES_MAX};

/// The last lines of a stream, as they come in pieces. However much is written, it stays small.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StderrTail {
    lines: VecDeque<String>,
    /// What came of a line that has not ended.
    partial: Vec<u8>,
}

impl StderrTail {
    /// Takes a piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        let mut pieces = piece.split(|byte| *byte == b'\n');
        self.extend(pieces.next().unwrap_or_default());
        for next in pieces {
            self.end_line();
            self.extend(next);
        }
    }

    /// Lines that have ended, and the one that has not, the oldest first. Without those that are empty.
    pub(super) fn lines(&self) -> Vec<String> {
        let last = Some(readable(&self.partial)).filter(|line| !line.is_empty());
        let mut lines: Vec<_> = self.lines.iter().cloned().chain(last).collect();
        let surplus = lines.len().saturating_sub(STDERR_LINES_MAX);
        lines.drain(..surplus);
        lines
    }

    fn extend(&mut self, bytes: &[u8]) {
        // A character has at most four bytes; more than that is cut from the line anyway.
        let room = (4 * STDERR_LINE_CHARS_MAX).saturating_sub(self.partial.len());
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self) {
        let line = readable(&std::mem::take(&mut self.partial));
        if line.is_empty() {
            return;
        }
        if self.lines.len() == STDERR_LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

/// A line that can be shown anywhere: what would move a cursor or color a terminal becomes a blank.
fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let shown = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    shown.take(STDERR_LINE_CHARS_MAX).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_end_is_kept_and_it_is_readable() {
        let mut tail = StderrTail::default();
        for number in 0..100 {
            tail.push(format!("line {number}\r\n").as_bytes());
        }
        assert_eq!((tail.lines().len(), tail.lines()[0].as_str()), (STDERR_LINES_MAX, "line 80"));
        let mut tail = StderrTail::default();
        tail.push(b"\x1b[31mred\x07\xff\n");
        assert_eq!(tail.lines(), ["[31mred \u{fffd}"]);
        tail.push(&vec![b'x'; 1 << 20]);
        assert!(tail.partial.len() <= 4 * STDERR_LINE_CHARS_MAX && tail.lines()[1].len() == STDERR_LINE_CHARS_MAX);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_in_which_pieces_it_comes(text in "[ab\n]{0,60}", cuts in proptest::collection::vec(0_usize..60, 0..5)) {
            let mut whole = StderrTail::default();
            whole.push(text.as_bytes());
            let mut pieces = StderrTail::default();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let mut from = 0;
            for cut in cuts.into_iter().chain([text.len()]) {
                pieces.push(&text.as_bytes()[from..cut]);
                from = cut;
            }
            prop_assert_eq!(whole, pieces);
        }
    }
}
