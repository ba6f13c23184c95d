//! Finds where the last lines of an output begin by reading backward, so that a long output is not read as a whole.

use super::http::Client;
use crate::fault::Fault;

/// Bytes read in one step back.
const STEP_BYTES: u64 = 256 << 10;

/// The offset at which the last lines of an output begin. `path` already has a query.
pub(crate) async fn start(client: &Client, path: &str, lines: u64) -> Result<u64, Fault> {
    let head = client.get(&format!("{path}&from=0&max=1")).await?;
    let number = |name: &str| head.header(name).and_then(|value| value.parse::<u64>().ok());
    let total = number("strongbox-total").unwrap_or(0);
    let mut search = Search::new(lines);
    let mut end = total;
    while end > 0 {
        let from = end.saturating_sub(STEP_BYTES);
        let piece = client.get(&format!("{path}&from={from}&max={}", end - from)).await?;
        let offset = piece.header("strongbox-offset").and_then(|value| value.parse().ok()).unwrap_or(from);
        if let Some(found) = search.look(&piece.body) {
            return Ok(offset + found);
        }
        if offset > from || piece.body.is_empty() {
            // Earlier output is no longer kept.
            return Ok(offset);
        }
        end = from;
    }
    Ok(0)
}

/// Counts lines from the end of an output, piece by piece.
#[derive(Debug)]
struct Search {
    /// Line ends still to pass.
    left: u64,
    is_at_end: bool,
}

impl Search {
    fn new(lines: u64) -> Self {
        Self { left: lines, is_at_end: true }
    }

    /// Scans the piece before those already scanned; returns where in it the lines begin, if they do.
    fn look(&mut self, piece: &[u8]) -> Option<u64> {
        if self.left == 0 {
            return Some(piece.len() as u64);
        }
        for (index, byte) in piece.iter().enumerate().rev() {
            // The last line end begins no other line.
            let is_last = std::mem::replace(&mut self.is_at_end, false);
            if *byte == b'\n' && !is_last {
                self.left -= 1;
                if self.left == 0 {
                    return Some(index as u64 + 1);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last lines of a text that arrives in pieces.
    fn tail(text: &str, piece_bytes: usize, lines: u64) -> &str {
        let (mut search, mut end) = (Search::new(lines), text.len());
        while end > 0 {
            let from = end.saturating_sub(piece_bytes);
            if let Some(found) = search.look(&text.as_bytes()[from..end]) {
                return &text[from + usize::try_from(found).unwrap()..];
            }
            end = from;
        }
        text
    }

    #[test]
    fn the_last_lines_are_found_however_the_output_is_cut() {
        for piece_bytes in 1..12 {
            for (text, lines, expected) in [
                ("one\ntwo\nthree\n", 2, "two\nthree\n"),
                ("one\ntwo\nthree", 2, "two\nthree"),
                ("one\ntwo\n", 5, "one\ntwo\n"),
                ("one\n\n\n", 2, "\n\n"),
                ("one\ntwo\n", 0, ""),
                ("\n", 1, "\n"),
                ("", 3, ""),
            ] {
                assert_eq!(tail(text, piece_bytes, lines), expected, "{text:?} {lines} in pieces of {piece_bytes}");
            }
        }
    }
}
