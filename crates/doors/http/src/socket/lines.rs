//! Bytes become lines: whole ones, of whole characters.

use box_core::output::unfinished_bytes;

use crate::limits;

/// One line, without its end, and where the next one starts in the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) next: u64,
}

/// Collects bytes until a line is whole.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pending: Vec<u8>,
    /// Whether the start of the current line is missing, so that the rest of it is not worth telling.
    lost: bool,
}

impl Lines {
    /// Takes the next bytes, which end at `end` of the stream. Returns every line that is whole now.
    pub(super) fn push(&mut self, bytes: &[u8], end: u64) -> Vec<Line> {
        let mut next = end.saturating_sub(bytes.len() as u64);
        let mut whole = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            next += piece.len() as u64;
            self.pending.extend_from_slice(piece);
            let is_whole = self.pending.last() == Some(&b'\n');
            if is_whole {
                self.pending.pop();
            }
            if is_whole || self.pending.len() >= limits::RELAY_LINE_BYTES_MAX {
                let kept = if is_whole { 0 } else { unfinished_bytes(&self.pending) };
                let line = self.take(kept, next);
                whole.extend(line);
                self.lost &= !is_whole;
            }
        }
        whole
    }

    /// The unfinished last line, at the end of the output.
    pub(super) fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.pending);
        (!rest.is_empty() && !std::mem::take(&mut self.lost)).then(|| String::from_utf8_lossy(&rest).into_owned())
    }

    /// Bytes are missing from here on. A line with a hole is worse than none: its reader takes each for one message.
    pub(super) fn skip(&mut self) {
        self.pending.clear();
        self.lost = true;
    }

    fn take(&mut self, kept: usize, next: u64) -> Option<Line> {
        let rest = self.pending.split_off(self.pending.len() - kept);
        let bytes = std::mem::replace(&mut self.pending, rest);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (!self.lost).then(|| Line { text, next: next - kept as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn a_line_is_told_when_it_is_whole() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"{\"a\":", 5), []);
        let told = lines.push(b"1}\n\n{", 10);
        assert_eq!(texts(&told), ["{\"a\":1}", ""]);
        assert_eq!((told[0].next, told[1].next), (8, 9));
        assert_eq!(lines.finish().as_deref(), Some("{"));
        assert_eq!(lines.finish(), None);
    }

    #[test]
    fn a_line_with_a_hole_is_left_out() {
        let mut lines = Lines::default();
        lines.push(b"begin", 5);
        lines.skip();
        assert_eq!(texts(&lines.push(b"end\nwhole\n", 100)), ["whole"]);
        lines.skip();
        lines.push(b"half", 200);
        assert_eq!(lines.finish(), None);
    }

    #[test]
    fn a_line_without_end_is_cut_between_characters() {
        let mut lines = Lines::default();
        let long = "€".repeat(limits::RELAY_LINE_BYTES_MAX / 3 + 10);
        let mut told = String::new();
        for (index, piece) in long.as_bytes().chunks(1 << 20).enumerate() {
            let end = (index << 20) as u64 + piece.len() as u64;
            told.extend(lines.push(piece, end).into_iter().map(|line| line.text));
        }
        assert!(!told.is_empty(), "it was cut");
        told.extend(lines.finish());
        assert_eq!(told, long);
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_bytes_came(text in "[a€😀\n]{0,40}", size in 1..9_usize) {
            let (mut lines, mut at, mut told) = (Lines::default(), 0, Vec::new());
            for piece in text.as_bytes().chunks(size) {
                at += piece.len() as u64;
                told.extend(lines.push(piece, at));
            }
            for line in &told {
                prop_assert_eq!(text.as_bytes()[usize::try_from(line.next).unwrap() - 1], b'\n', "the next line starts behind an end");
            }
            let mut all: Vec<String> = told.into_iter().map(|line| line.text).collect();
            all.extend(lines.finish());
            prop_assert_eq!(all, text.lines().map(str::to_owned).collect::<Vec<_>>());
        }

        #[test]
        fn going_on_behind_any_line_tells_the_rest(bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..60), stop in any::<prop::sample::Index>()) {
            let whole = Lines::default().push(&bytes, bytes.len() as u64);
            if !whole.is_empty() {
                let seen = stop.index(whole.len()) + 1;
                let from = usize::try_from(whole[seen - 1].next).unwrap();
                let rest = Lines::default().push(&bytes[from..], bytes.len() as u64);
                prop_assert_eq!(&rest[..], &whole[seen..]);
            }
        }
    }
}
