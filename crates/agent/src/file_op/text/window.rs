//! Chooses lines out of a stream of bytes, within a number of lines and of bytes.

use box_wire::file_op::{Cut, Lines};

/// Longest UTF-8 sequence. So much more than fits of a line is kept, so that its cut end is never taken for a broken character.
const CHARACTER_BYTES_MAX: usize = 4;

/// The lines that were asked for, as they come.
#[derive(Debug)]
pub(super) struct Window {
    first: u64,
    lines_max: u64,
    bytes_max: usize,
    /// The text of the answer.
    text: String,
    count: u64,
    cut: Option<Cut>,
    /// The beginning of the current line, if it is in the window.
    line: Vec<u8>,
    /// Lines that have ended.
    ended: u64,
    /// Whether there are bytes behind the last line end.
    open: bool,
}

impl Window {
    pub(super) fn new(first: u64, lines_max: u32, bytes_max: u32) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let (text, line) = (String::new(), Vec::new());
        let (first, lines_max) = (first.max(1), u64::from(lines_max));
        Self { first, lines_max, bytes_max, text, count: 0, cut: None, line, ended: 0, open: false }
    }

    /// Whether no further line fits.
    pub(super) fn is_full(&self) -> bool {
        self.cut.is_some()
    }

    /// Takes the next bytes of the file.
    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.is_full() {
                return self.count_only(bytes);
            }
            let end = memchr::memchr(b'\n', bytes);
            let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            self.take_piece(piece);
            if end.is_some() {
                self.end_line();
            }
            bytes = rest;
        }
    }

    /// The whole answer; `whole` when the file was read to its end.
    pub(super) fn finish(mut self, whole: bool) -> Lines {
        let total = whole.then_some(self.ended + u64::from(self.open));
        if self.open && !self.is_full() {
            self.end_line();
        }
        Lines { text: self.text, first: self.first, count: self.count, total, cut: self.cut }
    }

    fn count_only(&mut self, bytes: &[u8]) {
        self.ended += memchr::memchr_iter(b'\n', bytes).count() as u64;
        self.open = bytes.last() != Some(&b'\n');
    }

    fn take_piece(&mut self, piece: &[u8]) {
        self.open = true;
        if self.ended + 1 < self.first {
            return;
        }
        if self.count == self.lines_max {
            self.cut = Some(Cut::Lines);
            return;
        }
        let room = (self.bytes_max - self.text.len() + CHARACTER_BYTES_MAX).saturating_sub(self.line.len());
        self.line.extend_from_slice(&piece[..piece.len().min(room)]);
        // Text is never shorter than the bytes it was made of, so a line that is too long here is too long for good.
        if self.line.len() > self.bytes_max - self.text.len() {
            self.tell();
        }
    }

    fn end_line(&mut self) {
        self.ended += 1;
        self.open = false;
        if self.ended >= self.first && !self.is_full() {
            self.tell();
        }
    }

    /// Adds the current line. A line that does not fit is left for the next read; the first line is cut to fit instead.
    fn tell(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        let room = self.bytes_max - self.text.len();
        if line.len() <= room {
            self.text.push_str(&line);
            self.count += 1;
        } else {
            self.cut = Some(Cut::Bytes);
            if self.count == 0 {
                self.text.push_str(&line[..line.floor_char_boundary(room)]);
                self.count = 1;
            }
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same, with everything in memory at once.
    fn model(bytes: &[u8], first: u64, lines_max: u32, bytes_max: u32) -> Lines {
        let all: Vec<_> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        let mut told = Lines { text: String::new(), first, count: 0, total: Some(all.len() as u64), cut: None };
        for line in all.iter().skip(usize::try_from(first).unwrap() - 1) {
            let line = String::from_utf8_lossy(line);
            if told.count == u64::from(lines_max) {
                told.cut = Some(Cut::Lines);
                break;
            }
            let room = bytes_max as usize - told.text.len();
            if line.len() > room {
                told.cut = Some(Cut::Bytes);
                if told.count == 0 {
                    told.text = line[..line.floor_char_boundary(room)].to_owned();
                    told.count = 1;
                }
                break;
            }
            told.text.push_str(&line);
            told.count += 1;
        }
        told
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"\n".to_vec()),
            Just(b"\r\n".to_vec()),
            Just("ä€😀".as_bytes().to_vec()),
            Just(vec![0xff]),
            Just(vec![0xf0, 0x9f]),
            "[a-z ]{1,20}".prop_map(String::into_bytes),
        ];
        proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn a_stream_gives_what_the_whole_file_would(
            bytes in text(), first in 1_u64..12, lines_max in 1_u32..8, bytes_max in 1_u32..90, chunk in 1_usize..40,
        ) {
            let mut window = Window::new(first, lines_max, bytes_max);
            bytes.chunks(chunk).for_each(|chunk| window.take(chunk));
            prop_assert_eq!(window.finish(true), model(&bytes, first, lines_max, bytes_max));
        }
    }

    #[test]
    fn a_file_without_a_line_end_has_one_line_and_an_empty_one_none() {
        let told = |bytes: &[u8]| {
            let mut window = Window::new(1, 10, 100);
            window.take(bytes);
            let lines = window.finish(true);
            (lines.text, lines.count, lines.total, lines.cut)
        };
        assert_eq!(told(b"one"), ("one".to_owned(), 1, Some(1), None));
        assert_eq!(told(b"one\n"), ("one\n".to_owned(), 1, Some(1), None));
        assert_eq!(told(b""), (String::new(), 0, Some(0), None));
    }
}
