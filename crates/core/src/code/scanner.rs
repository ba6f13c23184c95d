//! Takes apart what a context says on one of its streams: text, and frames between it.
//!
//! A frame is `1e`, the context's nonce, a letter, what it says, and a line end. It is written by one call and is short, so that no
//! other process of the box can end up inside. Letters: `b` a cell begins (its number, how many there were), `e` it ended
//! (its number, what it returned), `v` an event, or in pieces `s`, `c`…, `f`. All of it comes out of a box and may be anything.

use crate::limits;

/// Longest frame.
const FRAME_BYTES_MAX: usize = 4096;

/// A part of what was said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Text that was printed.
    Text(String),
    /// A cell begins.
    Begin {
        /// Which.
        number: u64,
        /// How many there were in this context, with it.
        count: u64,
    },
    /// A cell has ended.
    End {
        /// Which.
        number: u64,
        /// What it returned, where that is a number.
        status: i64,
    },
    /// More than text, as JSON.
    Event(Vec<u8>),
}

/// One stream of a context.
#[derive(Debug)]
pub(crate) struct Scanner {
    prefix: Vec<u8>,
    /// What may be the beginning of a frame, or of a character.
    held: Vec<u8>,
    /// The event of which pieces came.
    event: Option<Vec<u8>>,
}

impl Scanner {
    /// A stream of the context that has this nonce.
    pub(crate) fn new(nonce: &str) -> Self {
        Self { prefix: [b"\x1e", nonce.as_bytes()].concat(), held: Vec::new(), event: None }
    }

    /// Takes more of the stream.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Part> {
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let mut parts = Vec::new();
        let (mut text, mut at) = (0, 0);
        while let Some(found) = held.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\x1e')) {
            at += found;
            let rest = held.get(at..).unwrap_or_default();
            match self.frame(rest) {
                Frame::None => at += 1,
                Frame::Unfinished => {
                    push_text(&mut parts, held.get(text..at).unwrap_or_default());
                    self.held = rest.to_vec();
                    return parts;
                }
                Frame::Whole { bytes } => {
                    push_text(&mut parts, held.get(text..at).unwrap_or_default());
                    let payload = rest.get(self.prefix.len()..bytes - 1).unwrap_or_default();
                    parts.extend(self.read(payload));
                    at += bytes;
                    text = at;
                }
            }
        }
        let rest = held.get(text..).unwrap_or_default();
        let whole = rest.len() - unfinished_character(rest);
        push_text(&mut parts, rest.get(..whole).unwrap_or_default());
        self.held = rest.get(whole..).unwrap_or_default().to_vec();
        parts
    }

    /// Something is missing here: what was begun is not finished by what follows.
    pub(crate) fn gap(&mut self) {
        self.held.clear();
        self.event = None;
    }

    fn frame(&self, rest: &[u8]) -> Frame {
        let known = rest.len().min(self.prefix.len());
        if rest.get(..known) != self.prefix.get(..known) {
            return Frame::None;
        }
        let window = rest.get(..FRAME_BYTES_MAX).unwrap_or(rest);
        match window.iter().position(|byte| *byte == b'\n') {
            Some(end) if end > self.prefix.len() => Frame::Whole { bytes: end + 1 },
            None if rest.len() < FRAME_BYTES_MAX => Frame::Unfinished,
            Some(_) | None => Frame::None,
        }
    }

    fn read(&mut self, payload: &[u8]) -> Option<Part> {
        let (kind, said) = payload.split_first()?;
        match kind {
            b'b' => numbers(said).map(|(number, count)| Part::Begin { number, count: count.unsigned_abs() }),
            b'e' => numbers(said).map(|(number, status)| Part::End { number, status }),
            b'v' => Some(Part::Event(said.to_vec())),
            b's' => {
                self.event = Some(said.to_vec());
                None
            }
            b'c' => self.append(said),
            b'f' => {
                self.append(said);
                self.event.take().map(Part::Event)
            }
            _ => None,
        }
    }

    /// Adds a piece to the event. One that grows too large is dropped.
    fn append(&mut self, said: &[u8]) -> Option<Part> {
        let event = self.event.as_mut()?;
        if event.len() + said.len() > limits::CODE_EVENT_BYTES_MAX {
            self.event = None;
        } else {
            event.extend_from_slice(said);
        }
        None
    }
}

/// What stands at a `1e`.
enum Frame {
    None,
    Unfinished,
    Whole { bytes: usize },
}

fn push_text(parts: &mut Vec<Part>, bytes: &[u8]) {
    if !bytes.is_empty() {
        parts.push(Part::Text(String::from_utf8_lossy(bytes).into_owned()));
    }
}

fn numbers(said: &[u8]) -> Option<(u64, i64)> {
    let (number, other) = std::str::from_utf8(said).ok()?.split_once(' ')?;
    Some((number.parse().ok()?, other.parse().ok()?))
}

/// How many bytes at the end are a character that goes on behind it.
fn unfinished_character(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    for (back, byte) in bytes.get(tail..).unwrap_or_default().iter().rev().enumerate() {
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if back + 1 < length { back + 1 } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NONCE: &str = "0123456789abcdef";

    fn framed(payload: &str) -> String {
        format!("\u{1e}{NONCE}{payload}\n")
    }

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    #[test]
    fn frames_are_told_apart_from_text() {
        let said = format!("before{}a\u{1e}b{}after{}", framed("b7 3"), framed("v{}"), framed("e7 -1"));
        let parts = Scanner::new(NONCE).take(said.as_bytes());
        let begin = Part::Begin { number: 7, count: 3 };
        let end = Part::End { number: 7, status: -1 };
        assert_eq!(parts, [text("before"), begin, text("a\u{1e}b"), Part::Event(b"{}".to_vec()), text("after"), end]);
    }

    #[test]
    fn pieces_become_one_event_and_one_that_was_not_finished_is_forgotten() {
        let said = [framed("s{\"a"), framed("s{\"b"), framed("c\":"), framed("f1}"), framed("f2}")].concat();
        assert_eq!(Scanner::new(NONCE).take(said.as_bytes()), [Part::Event(b"{\"b\":1}".to_vec())]);
    }

    #[test]
    fn an_event_that_never_ends_takes_no_more_memory_than_one_may() {
        let mut scanner = Scanner::new(NONCE);
        scanner.take(framed("s").as_bytes());
        let piece = framed(&format!("c{}", "x".repeat(4000)));
        for _ in 0..(limits::CODE_EVENT_BYTES_MAX / 4000 + 2) {
            assert!(scanner.take(piece.as_bytes()).is_empty());
        }
        assert!(scanner.event.is_none());
        assert!(scanner.take(framed("f").as_bytes()).is_empty());
    }

    #[test]
    fn what_only_looks_like_a_frame_is_text() {
        let long = format!("\u{1e}{NONCE}v{}", "x".repeat(5000));
        for said in [&format!("\u{1e}{NONCE}\n"), "\u{1e}fedcba9876543210b1 1\n", &long] {
            let mut scanner = Scanner::new(NONCE);
            assert_eq!(scanner.take(said.as_bytes()), [text(said)]);
        }
        for nonsense in ["b", "bx 1", "b1", "z", "e1 x"] {
            assert!(Scanner::new(NONCE).take(framed(nonsense).as_bytes()).is_empty(), "{nonsense}");
        }
    }

    #[test]
    fn after_a_gap_nothing_is_put_together_that_was_apart() {
        let mut scanner = Scanner::new(NONCE);
        scanner.take(&framed("s{").as_bytes()[..20]);
        scanner.gap();
        assert_eq!(scanner.take(b"text\n"), [text("text\n")]);
    }

    proptest! {
        #[test]
        fn a_stream_means_the_same_however_it_arrives(
            pieces in proptest::collection::vec(prop_oneof![
                Just("\u{1e}".to_owned()), Just(framed("b1 1")), Just(framed("s{")), Just(framed("f}")), Just(framed("v{}")),
                "[a-z\u{e4}\u{20ac}\u{1f600}]{0,5}",
            ], 0..20),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..10),
        ) {
            // A line end finishes what may be a frame.
            let said = format!("{}\n", pieces.concat());
            let at_once = joined(Scanner::new(NONCE).take(said.as_bytes()));
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(said.len())).collect();
            cuts.extend([0, said.len()]);
            cuts.sort_unstable();
            let mut scanner = Scanner::new(NONCE);
            let parts = cuts.windows(2).flat_map(|cut| scanner.take(&said.as_bytes()[cut[0]..cut[1]])).collect();
            prop_assert_eq!(joined(parts), at_once);
        }

        #[test]
        fn nothing_that_comes_out_of_a_box_breaks_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            Scanner::new(NONCE).take(&bytes);
        }
    }

    /// Texts that follow each other are one.
    fn joined(parts: Vec<Part>) -> Vec<Part> {
        let mut whole = Vec::new();
        for part in parts {
            match (whole.last_mut(), part) {
                (Some(Part::Text(before)), Part::Text(more)) => before.push_str(&more),
                (_, part) => whole.push(part),
            }
        }
        whole
    }
}
