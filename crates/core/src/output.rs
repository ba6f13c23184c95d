//! Output as a caller gets to read it: text, whole if it is short, else its beginning and its end.

/// What is left of some output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clipped {
    /// Never more characters than were asked for.
    pub text: String,
    /// Whether something is missing.
    pub truncated: bool,
}

/// Part of the room that the beginning gets, in percent. What a command says first names the problem, what it says last the
/// outcome.
const HEAD_PERCENT: usize = 60;

/// Text that the end is looked for in is cut when it is this much longer than it has to be.
const TAIL_SLACK_BYTES: usize = 64 << 10;

/// Clips `bytes` to at most `limit_chars` characters. What is not UTF-8 is replaced.
pub fn clip(bytes: &[u8], limit_chars: usize) -> Clipped {
    let mut clipper = Clipper::new(limit_chars);
    clipper.push(bytes);
    clipper.finish()
}

/// Clips output that comes in pieces, without keeping more than the limit of it.
#[derive(Debug)]
pub struct Clipper {
    limit_chars: usize,
    /// The beginning, up to the limit or to the first gap.
    head: String,
    head_chars: usize,
    /// The end, since the last gap. Holds what it needs and somewhat more.
    tail: String,
    /// Everything that came. A byte that is missing counts as a character, for want of anything better.
    total_chars: u64,
    /// The first bytes of a character whose last are still to come.
    pending: Vec<u8>,
    has_gap: bool,
    /// The next bytes may be the rest of a character that began in a gap.
    is_after_gap: bool,
}

impl Clipper {
    /// Nothing yet, to be clipped to at most `limit_chars` characters.
    pub fn new(limit_chars: usize) -> Self {
        Self {
            limit_chars,
            head: String::new(),
            head_chars: 0,
            tail: String::new(),
            total_chars: 0,
            pending: Vec::new(),
            has_gap: false,
            is_after_gap: false,
        }
    }

    /// Adds what comes next.
    pub fn push(&mut self, bytes: &[u8]) {
        let joined;
        let bytes = if self.pending.is_empty() {
            bytes
        } else {
            self.pending.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.pending);
            &joined
        };
        let bytes = self.skip_rest_of_lost_character(bytes);
        let (whole, pending) = bytes.split_at(bytes.len() - unfinished_bytes(bytes));
        self.pending = pending.to_vec();
        self.push_text(&String::from_utf8_lossy(whole));
    }

    /// Says that `bytes` are missing here.
    pub fn skip(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let broken = std::mem::take(&mut self.pending).len() as u64;
        self.total_chars = self.total_chars.saturating_add(bytes).saturating_add(broken);
        self.tail.clear();
        (self.has_gap, self.is_after_gap) = (true, true);
    }

    /// What is left of everything that came.
    pub fn finish(mut self) -> Clipped {
        let broken = std::mem::take(&mut self.pending);
        self.push_text(&String::from_utf8_lossy(&broken));
        if !self.has_gap && self.total_chars == self.head_chars as u64 {
            return Clipped { text: self.head, truncated: false };
        }
        let text = self.join().unwrap_or(self.head);
        Clipped { text, truncated: true }
    }

    fn skip_rest_of_lost_character<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if !self.is_after_gap || bytes.is_empty() {
            return bytes;
        }
        self.is_after_gap = false;
        let rest = bytes.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
        self.total_chars += rest as u64;
        &bytes[rest..]
    }

    fn push_text(&mut self, text: &str) {
        let chars = text.chars().count();
        self.total_chars = self.total_chars.saturating_add(chars as u64);
        if !self.has_gap && self.head_chars < self.limit_chars {
            let taken = first_chars(text, self.limit_chars - self.head_chars);
            self.head_chars += taken.chars().count();
            self.head.push_str(taken);
        }
        if chars >= self.limit_chars {
            self.tail.clear();
        }
        self.tail.push_str(last_chars(text, self.limit_chars));
        if self.tail.len() > self.limit_chars.saturating_mul(4).saturating_add(TAIL_SLACK_BYTES) {
            self.tail = last_chars(&self.tail, self.limit_chars).to_owned();
        }
    }

    /// Beginning, notice, end. Nothing when not even the notice has room.
    fn join(&self) -> Option<String> {
        let mut omitted = self.total_chars;
        let (mut head, mut tail) = ("", "");
        // The notice names a number that depends on how long the notice is. The second number is at most as long as the first.
        for _ in 0..2 {
            let room = self.limit_chars.checked_sub(notice(omitted).len())?;
            let head_room = room * HEAD_PERCENT / 100;
            head = first_chars(&self.head, head_room);
            tail = last_chars(&self.tail, room - head_room);
            let kept = head.chars().count() + tail.chars().count();
            omitted = self.total_chars - kept as u64;
        }
        Some(format!("{head}{}{tail}", notice(omitted)))
    }
}

fn notice(omitted: u64) -> String {
    format!("\n... [{omitted} characters truncated] ...\n")
}

fn first_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

fn last_chars(text: &str, count: usize) -> &str {
    match count.checked_sub(1) {
        None => "",
        Some(before) => text.char_indices().nth_back(before).map_or(text, |(start, _)| &text[start..]),
    }
}

/// How many bytes at the end begin a character that is not finished.
pub fn unfinished_bytes(bytes: &[u8]) -> usize {
    let from_end = bytes.iter().rev().take(3).position(|byte| !is_continuation(*byte)).map_or(0, |before| before + 1);
    let unfinished =
        std::str::from_utf8(&bytes[bytes.len() - from_end..]).is_err_and(|error| error.error_len().is_none());
    if unfinished { from_end } else { 0 }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_output_is_returned_whole() {
        for (text, limit) in [("", 0), ("hello world", 100), ("aaaa", 4), ("äöü€😀", 5)] {
            assert_eq!(clip(text.as_bytes(), limit), Clipped { text: text.to_owned(), truncated: false });
        }
    }

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        let text = format!("HEAD_START|{}|TAIL_END", "x".repeat(500));
        let clipped = clip(text.as_bytes(), 100);
        assert!(clipped.truncated);
        assert!(clipped.text.starts_with("HEAD_START|xxx") && clipped.text.ends_with("xxx|TAIL_END"), "{clipped:?}");
        // 520 characters came; the notice with a number of three digits has 36, so 38 and 26 of the others have room.
        let (head, tail) = clipped.text.split_once("\n... [456 characters truncated] ...\n").unwrap();
        assert_eq!((head.len(), tail.len()), (38, 26));
        assert_eq!(clipped.text.chars().count(), 100);
    }

    #[test]
    fn without_room_for_the_notice_the_beginning_is_returned() {
        assert_eq!(clip("äbcdef".as_bytes(), 3), Clipped { text: "äbc".to_owned(), truncated: true });
        assert_eq!(clip(b"abc", 0), Clipped { text: String::new(), truncated: true });
    }

    #[test]
    fn a_gap_is_truncation_however_much_room_there_is() {
        let mut clipper = Clipper::new(1000);
        clipper.push("begin \u{20ac}".as_bytes().split_last().unwrap().1);
        clipper.skip(5);
        clipper.push(&"\u{20ac} end".as_bytes()[1..]);
        let outcome = clipper.finish();
        assert!(outcome.truncated);
        // The two halves of characters at the edges are as lost as what lay between them.
        assert_eq!(outcome.text, "begin \n... [9 characters truncated] ...\n end");
    }

    #[test]
    fn what_is_missing_at_the_end_is_told() {
        let mut clipper = Clipper::new(1000);
        clipper.push(b"begin");
        clipper.skip(7);
        assert_eq!(clipper.finish().text, "begin\n... [7 characters truncated] ...\n");
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference_and_the_limit_holds(
            bytes in proptest::collection::vec(prop_oneof![Just(b'a'), Just(0xe2), Just(0x82), Just(0xac), any::<u8>()], 0..400),
            cuts in proptest::collection::vec(0_usize..400, 0..6),
            limit in 0_usize..120,
        ) {
            let whole = clip(&bytes, limit);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut clipper = Clipper::new(limit);
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                clipper.push(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(clipper.finish(), whole.clone());
            let text = String::from_utf8_lossy(&bytes);
            let chars = text.chars().count();
            prop_assert!(whole.text.chars().count() <= limit);
            prop_assert_eq!(whole.truncated, chars > limit);
            if chars <= limit {
                prop_assert_eq!(whole.text, text);
            } else if let Some((head, tail)) = whole.text.split_once("\n... [") && let Some((number, tail)) = tail.split_once(" characters truncated] ...\n") {
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
                let omitted: usize = number.parse().unwrap();
                prop_assert_eq!(head.chars().count() + omitted + tail.chars().count(), chars);
            } else {
                prop_assert!(text.starts_with(&whole.text) && whole.text.chars().count() == limit);
            }
        }
    }
}
