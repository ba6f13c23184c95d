//! Lines of bounded length from a stream. What is longer is dropped while it is read, and never held in memory.

use std::io;

use box_core::service::Buffered;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// How much of the beginning and the end of a dropped line is looked at for the id of the answer.
const EDGE_BYTES: usize = 256;

/// A buffer that grew for one long line is given back afterwards if it is larger than this.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A line of at most this length is not charged to anybody.
const FREE_BYTES: usize = 64 << 10;

/// Longer ones are charged in such steps.
const CHARGED_BYTES: usize = 256 << 10;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A line, without its end and without blanks around it.
    Whole(&'a [u8]),
    /// A line that was dropped, and the id of the answer that it was, where it can be seen.
    TooLong {
        /// As in the message. Ours are always numbers.
        id: Option<i64>,
    },
    /// The stream has ended. An unfinished line is dropped.
    End,
}

/// A stream, line by line. Dropping [`Lines::next`] in the middle loses nothing.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    bytes_max: usize,
    /// What is known of a line that is being dropped.
    dropped: Option<Edges>,
    /// Whether `line` was handed out and is to be forgotten.
    told: bool,
    /// What a long line is charged to.
    buffered: Option<Buffered>,
}

/// Beginning and end of a line that is too long.
#[derive(Debug, Default)]
struct Edges {
    first: Vec<u8>,
    last: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R, bytes_max: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(1 << 16, reader),
            line: Vec::new(),
            bytes_max,
            dropped: None,
            told: false,
            buffered: None,
        }
    }

    /// Charges long lines to a tenant. What it has no room for is dropped like a line that is too long.
    pub(super) fn charge(&mut self, buffered: Option<Buffered>) {
        self.buffered = buffered;
    }

    /// The next line.
    pub(super) async fn next(&mut self) -> io::Result<Line<'_>> {
        self.forget();
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                return Ok(Line::End);
            }
            let newline = memchr::memchr(b'\n', available);
            let taken = newline.map_or(available.len(), |at| at + 1);
            let piece = available.get(..newline.unwrap_or(taken)).unwrap_or_default();
            let fits = has_room(self.buffered.as_mut(), self.line.len() + piece.len());
            let bytes_max = if fits { self.bytes_max } else { 0 };
            take(&mut self.line, &mut self.dropped, piece, bytes_max);
            if self.dropped.is_some() {
                has_room(self.buffered.as_mut(), 0);
            }
            self.reader.consume(taken);
            if newline.is_some() {
                break;
            }
        }
        if let Some(edges) = self.dropped.take() {
            return Ok(Line::TooLong { id: edges.id() });
        }
        self.told = true;
        Ok(Line::Whole(self.line.trim_ascii()))
    }

    fn forget(&mut self) {
        if std::mem::take(&mut self.told) {
            self.line.clear();
            self.line.shrink_to(KEPT_BYTES_MAX);
            has_room(self.buffered.as_mut(), 0);
        }
    }
}

/// Whether a line of so many bytes can be held. Short ones are not worth counting.
fn has_room(buffered: Option<&mut Buffered>, bytes: usize) -> bool {
    let charged = if bytes <= FREE_BYTES { 0 } else { bytes.next_multiple_of(CHARGED_BYTES) };
    buffered.is_none_or(|buffered| buffered.resize(charged).is_ok())
}

/// Adds a piece to the line, or to what is known of a line that is too long.
fn take(line: &mut Vec<u8>, dropped: &mut Option<Edges>, piece: &[u8], bytes_max: usize) {
    if let Some(edges) = dropped {
        edges.add(piece);
    } else if line.len() + piece.len() > bytes_max {
        let mut edges = Edges::default();
        edges.add(line);
        edges.add(piece);
        *line = Vec::new();
        *dropped = Some(edges);
    } else {
        line.extend_from_slice(piece);
    }
}

impl Edges {
    fn add(&mut self, piece: &[u8]) {
        let missing = EDGE_BYTES.saturating_sub(self.first.len()).min(piece.len());
        self.first.extend_from_slice(piece.get(..missing).unwrap_or_default());
        self.last.extend_from_slice(piece.get(piece.len().saturating_sub(EDGE_BYTES)..).unwrap_or_default());
        let surplus = self.last.len().saturating_sub(EDGE_BYTES);
        self.last.drain(..surplus);
    }

    /// The id of an answer stands before or behind its result, depending on who wrote it. A request of the server has one too, and is
    /// not answered: nobody here waits for it.
    fn id(&self) -> Option<i64> {
        let first = String::from_utf8_lossy(&self.first);
        let last = String::from_utf8_lossy(&self.last);
        let before = first.split_once("\"result\"").map_or("", |(before, _)| before);
        if before.contains("\"method\"") {
            return None;
        }
        number_behind(before).or_else(|| closing_number(last.trim_end()))
    }
}

/// The number of the last `"id":` in the text.
fn number_behind(text: &str) -> Option<i64> {
    id_and_rest(text).map(|(id, _)| id)
}

/// The number of the last `"id":` in the text, when it is a field of the message itself: nothing but the message's end follows.
fn closing_number(text: &str) -> Option<i64> {
    let (id, rest) = id_and_rest(text)?;
    (rest == "}" || rest.starts_with(",\"jsonrpc\"")).then_some(id)
}

fn id_and_rest(text: &str) -> Option<(i64, &str)> {
    let (_, behind) = text.rsplit_once("\"id\"")?;
    let behind = behind.trim_start().strip_prefix(':')?.trim_start();
    let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    let (digits, rest) = behind.split_at(end);
    Some((digits.parse().ok()?, rest.trim()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn all(text: &str, bytes_max: usize) -> Vec<String> {
        let mut lines = Lines::new(text.as_bytes(), bytes_max);
        let mut told = Vec::new();
        loop {
            told.push(match lines.next().await.unwrap() {
                Line::Whole(line) => String::from_utf8(line.to_vec()).unwrap(),
                Line::TooLong { id } => format!("too long: {id:?}"),
                Line::End => return told,
            });
        }
    }

    #[tokio::test]
    async fn lines_are_told_one_by_one() {
        assert_eq!(all("a\r\n\n b \nrest", 100).await, ["a", "", "b"]);
    }

    #[tokio::test]
    async fn a_line_of_exactly_the_limit_is_told_and_one_more_is_not() {
        assert_eq!(all("1234\n12345\n12\n", 4).await, ["1234", "too long: None", "12"]);
    }

    #[tokio::test]
    async fn the_id_of_a_long_answer_is_found_on_both_sides() {
        let long = "y".repeat(100_000);
        let table = [
            (format!("{{\"jsonrpc\":\"2.0\",\"id\":12,\"result\":{{\"x\":\"{long}\"}}}}"), "Some(12)"),
            (format!("{{\"result\":{{\"x\":\"{long}\"}},\"jsonrpc\":\"2.0\",\"id\": 3 }}"), "Some(3)"),
            (format!("{{\"result\":{{\"x\":\"{long}\",\"id\":5}},\"jsonrpc\":\"2.0\"}}"), "None"),
            (format!("{{\"method\":\"x\",\"id\":1,\"params\":{{\"result\":\"{long}\"}}}}"), "None"),
            (format!("{{\"result\":\"{long}\",\"id\":\"text\"}}"), "None"),
        ];
        for (line, id) in table {
            assert_eq!(all(&format!("{line}\n"), 1000).await, [format!("too long: {id}")]);
        }
    }

    /// What the lines of a text are, told in the simplest way.
    fn expected(text: &[u8], bytes_max: usize) -> Vec<Option<Vec<u8>>> {
        let mut lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
        // What follows the last line end is not finished.
        lines.pop();
        lines.iter().map(|line| (line.len() <= bytes_max).then(|| line.trim_ascii().to_vec())).collect()
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_arrive(
            pieces in proptest::collection::vec(proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b' '), any::<u8>()], 0..40), 0..20),
            bytes_max in 0_usize..30,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let told = runtime.block_on(async {
                let (mut writer, reader) = tokio::io::duplex(7);
                let text = pieces.concat();
                let writing = async move {
                    for piece in &pieces {
                        writer.write_all(piece).await.unwrap();
                    }
                };
                let reading = async {
                    let mut lines = Lines::new(reader, bytes_max);
                    let mut told = Vec::new();
                    loop {
                        told.push(match lines.next().await.unwrap() {
                            Line::Whole(line) => Some(line.to_vec()),
                            Line::TooLong { .. } => None,
                            Line::End => return told,
                        });
                    }
                };
                let ((), told) = tokio::join!(writing, reading);
                (told, text)
            });
            prop_assert_eq!(told.0, expected(&told.1, bytes_max));
        }
    }
}
