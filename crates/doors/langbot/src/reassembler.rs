//! Puts requests together that old clients cut: a JSON text above 64 KiB comes as several messages, and nothing says so.
//!
//! So a request is complete where its JSON object ends. Each byte is examined once, however many pieces there are.

use super::envelope::Incoming;
use crate::limits::RPC_MESSAGE_BYTES_MAX;

/// The received part of an incomplete request.
#[derive(Debug, Default)]
pub(crate) struct Reassembler {
    text: String,
    scan: Scan,
}

impl Reassembler {
    /// Takes the next message and gives what is complete with it.
    pub(crate) fn push(&mut self, piece: String) -> Option<String> {
        let mut alone = Scan::default();
        alone.read(&piece);
        // A whole message between two pieces of another is one of its own: no piece of a text looks like that, because quotes
        // in it are escaped.
        if self.text.is_empty() || (alone.state == State::Complete && is_message(&piece)) {
            return match alone.state {
                State::Inside => {
                    (self.text, self.scan) = (piece, alone);
                    None
                }
                State::Before | State::Complete | State::Broken => Some(piece),
            };
        }
        self.join(&piece)
    }

    fn join(&mut self, piece: &str) -> Option<String> {
        self.scan.read(piece);
        if self.scan.state == State::Broken || self.text.len() + piece.len() > RPC_MESSAGE_BYTES_MAX {
            *self = Self::default();
            return None;
        }
        self.text.push_str(piece);
        if self.scan.state != State::Complete {
            return None;
        }
        std::mem::take(self).text.into()
    }
}

fn is_message(text: &str) -> bool {
    Incoming::parse(text) != Incoming::Ignored
}

/// The position in a JSON object.
#[derive(Debug, Default)]
struct Scan {
    state: State,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but blanks.
    #[default]
    Before,
    /// Its end has not come.
    Inside,
    /// It has ended, and nothing came behind it.
    Complete,
    /// Not an object, or more than one.
    Broken,
}

impl Scan {
    fn read(&mut self, text: &str) {
        for byte in text.bytes() {
            self.state = match self.state {
                State::Inside => self.inside(byte),
                State::Broken => return,
                state if byte.is_ascii_whitespace() => state,
                State::Before if byte == b'{' => {
                    self.depth = 1;
                    State::Inside
                }
                State::Before | State::Complete => State::Broken,
            };
        }
    }

    fn inside(&mut self, byte: u8) -> State {
        if self.in_string {
            (self.in_string, self.is_escaped) = (self.is_escaped || byte != b'"', !self.is_escaped && byte == b'\\');
            return State::Inside;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        if self.depth == 0 { State::Complete } else { State::Inside }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn joined(pieces: &[&str]) -> Vec<String> {
        let mut reassembler = Reassembler::default();
        pieces.iter().filter_map(|piece| reassembler.push((*piece).to_owned())).collect()
    }

    #[test]
    fn pieces_become_the_text_that_they_were() {
        assert_eq!(joined(&[r#"{"action": "a\"#, r#""}{", "x": [{"#, "}]} "]), [r#"{"action": "a\"}{", "x": [{}]} "#]);
    }

    #[test]
    fn whole_messages_pass_between_pieces() {
        let ping = r#"{"action": "__ping"}"#;
        assert_eq!(joined(&[ping, r#"{"action": "#, ping, r#""b"}"#, ping]), [ping, ping, r#"{"action": "b"}"#, ping]);
    }

    #[test]
    fn what_can_never_end_is_forgotten_when_it_gets_too_long_or_senseless() {
        let ping = r#"{"action": "__ping"}"#;
        let long = "x".repeat(RPC_MESSAGE_BYTES_MAX / 2);
        assert!(joined(&["{\"", &long, &long, ping]) == [ping]);
        assert_eq!(joined(&["{", "} x", ping]), [ping]);
    }

    #[test]
    fn what_is_no_object_is_not_kept() {
        assert_eq!(joined(&["x", "", "[1", "{}}", "{}"]), ["x", "", "[1", "{}}", "{}"]);
    }

    proptest! {
        #[test]
        fn a_request_cut_anywhere_is_the_same_request(
            words in proptest::collection::vec("[\\PC\"\\\\{}\\[\\]]{0,20}", 1..8),
            cuts in proptest::collection::vec(1_usize..200, 0..6),
        ) {
            let text = json!({"seq_id": 1, "action": "a", "data": {"words": words}}).to_string();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| text.is_char_boundary(*cut) && *cut < text.len()).collect();
            cuts.sort_unstable();
            cuts.dedup();
            let edges: Vec<usize> = [vec![0], cuts, vec![text.len()]].concat();
            let pieces: Vec<&str> = edges.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(joined(&pieces), [text.clone()]);
        }

        #[test]
        fn nothing_is_too_strange(pieces in proptest::collection::vec("[{}\\[\\]\"\\\\a ]{0,20}", 0..20)) {
            joined(&pieces.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}
