//! Listens to a context while it runs a cell: its two streams become events.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::scanner::{Part, Scanner};
use super::{CodeEvent, CodeOutput};
use crate::call::{FollowEvent, StreamName};

/// How long an unfinished line waits for its rest. Programs write a line in pieces, and a client should not see them.
const LINE_WAIT: Duration = Duration::from_millis(20);

/// Text of this length is passed on at once, finished or not.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// How long the end of standard error may come after that of standard output. A cell can have closed it.
const STDERR_END_WAIT: Duration = Duration::from_secs(1);

/// What is heard of one cell.
#[derive(Debug)]
pub(crate) struct Listener {
    number: u64,
    stdout: Stream,
    stderr: Stream,
    /// When waiting text is passed on.
    due: Option<Instant>,
    /// What the cell returned, and when that was heard.
    returned: Option<(i64, Instant)>,
}

#[derive(Debug)]
struct Stream {
    scanner: Scanner,
    waiting: String,
    state: State,
}

/// Text belongs to the cell only between its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    Within,
    Behind,
}

impl Listener {
    /// Listens for a cell of the context that has this nonce.
    pub(crate) fn new(number: u64, nonce: &str) -> Self {
        let stream = || Stream { scanner: Scanner::new(nonce), waiting: String::new(), state: State::Before };
        Self { number, stdout: stream(), stderr: stream(), due: None, returned: None }
    }

    /// Whether the cell has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.stdout.state != State::Before
    }

    /// Whether everything of the cell was heard.
    pub(crate) fn is_done(&self) -> bool {
        let late = |heard: Instant| heard.elapsed() >= STDERR_END_WAIT;
        self.returned.is_some_and(|(_, heard)| self.stderr.state == State::Behind || late(heard))
    }

    /// When there may be something to tell without anything new.
    pub(crate) fn due(&self) -> Option<Instant> {
        let end = self.returned.map(|(_, heard)| heard + STDERR_END_WAIT);
        self.due.into_iter().chain(end).min()
    }

    /// What the context said or did.
    pub(crate) fn hear(&mut self, event: &FollowEvent) -> Vec<CodeEvent> {
        let mut events = Vec::new();
        match event {
            FollowEvent::Output { stream, bytes, .. } => {
                for part in self.stream(*stream).scanner.take(bytes) {
                    self.part(*stream, part, &mut events);
                }
            }
            FollowEvent::Gap { stream, bytes, .. } => {
                self.stream(*stream).scanner.gap();
                if self.stream(*stream).state == State::Within {
                    let note = format!(
                        "\nstrongbox: {bytes} bytes of output came faster than they were taken, and are lost\n"
                    );
                    self.stderr.waiting.push_str(&note);
                }
            }
            FollowEvent::Restarted { .. } | FollowEvent::Ended { .. } => {}
        }
        self.wait_or_tell(&mut events);
        events
    }

    /// Everything that waits.
    pub(crate) fn flush(&mut self) -> Vec<CodeEvent> {
        let mut events = Vec::new();
        self.tell_waiting(&mut events);
        events
    }

    /// What the cell came to, once it is done.
    pub(crate) fn verdict(&mut self) -> Vec<CodeEvent> {
        let mut events = self.flush();
        match self.returned {
            None | Some((0, _)) => {}
            Some((130, _)) => events.push(CodeEvent::failed("KeyboardInterrupt", "interrupted")),
            Some((status, _)) => {
                events.push(CodeEvent::failed("ExitStatus", format!("the last command returned {status}")));
            }
        }
        events
    }

    fn stream(&mut self, name: StreamName) -> &mut Stream {
        match name {
            StreamName::Stdout => &mut self.stdout,
            StreamName::Stderr => &mut self.stderr,
        }
    }

    fn part(&mut self, name: StreamName, part: Part, events: &mut Vec<CodeEvent>) {
        let (number, is_stdout) = (self.number, name == StreamName::Stdout);
        let stream = self.stream(name);
        match (part, stream.state) {
            (Part::Begin { number: of, count }, State::Before) if of == number => {
                stream.state = State::Within;
                if is_stdout {
                    events.push(CodeEvent::Started { execution_count: count });
                }
            }
            (Part::End { number: of, status }, State::Within) if of == number => {
                stream.state = State::Behind;
                if is_stdout {
                    self.returned = Some((status, Instant::now()));
                }
            }
            (Part::Text(text), State::Within) => stream.waiting.push_str(&text),
            (Part::Event(json), State::Within) if is_stdout => {
                self.tell_waiting(events);
                events.extend(CodeEvent::reported(&json));
            }
            // What comes between cells belongs to none.
            _ => {}
        }
    }

    /// Tells finished lines, and gives unfinished ones a moment.
    fn wait_or_tell(&mut self, events: &mut Vec<CodeEvent>) {
        let unfinished = |stream: &Stream| !stream.waiting.is_empty() && !stream.waiting.ends_with('\n');
        let is_long = self.stdout.waiting.len() + self.stderr.waiting.len() > TEXT_BYTES_MAX;
        if !is_long && (unfinished(&self.stdout) || unfinished(&self.stderr)) {
            self.due.get_or_insert_with(|| Instant::now() + LINE_WAIT);
        } else {
            self.tell_waiting(events);
        }
    }

    fn tell_waiting(&mut self, events: &mut Vec<CodeEvent>) {
        self.due = None;
        let at = Timestamp::now();
        for (stream, state) in [(StreamName::Stdout, &mut self.stdout), (StreamName::Stderr, &mut self.stderr)] {
            if !state.waiting.is_empty() {
                let text = std::mem::take(&mut state.waiting);
                events.push(CodeEvent::Output(CodeOutput { stream, text, at }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::call::Cursor;

    use super::*;

    const NONCE: &str = "0123456789abcdef";

    fn said(stream: StreamName, text: &str) -> FollowEvent {
        let text = text.replace('@', &format!("\u{1e}{NONCE}"));
        FollowEvent::Output { stream, bytes: text.into_bytes(), cursor: Cursor::default() }
    }

    fn words(events: &[CodeEvent]) -> Vec<String> {
        let word = |event: &CodeEvent| match event {
            CodeEvent::Output(output) if output.stream == StreamName::Stdout => format!("out {:?}", output.text),
            CodeEvent::Output(output) => format!("err {:?}", output.text),
            CodeEvent::Started { execution_count } => format!("count {execution_count}"),
            CodeEvent::Failed(failed) => format!("error {}", failed.name),
            CodeEvent::Display(_) => "display".to_owned(),
            CodeEvent::Ended(status) => format!("{status:?}"),
        };
        events.iter().map(word).collect()
    }

    #[tokio::test]
    async fn only_what_is_said_within_the_cell_is_its_own() {
        let mut listener = Listener::new(7, NONCE);
        let said_out = "late\n@b6 1\nold\n@e6 0\n@b7 2\nmine\n@e7 0\nlater\n";
        let events = listener.hear(&said(StreamName::Stdout, said_out));
        assert_eq!(words(&events), ["count 2", "out \"mine\\n\""]);
        assert!(!listener.is_done());
        assert_eq!(words(&listener.hear(&said(StreamName::Stderr, "@b7 2\n@e7 0\n"))), [""; 0]);
        assert!(listener.is_done());
        assert!(listener.verdict().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_in_pieces_is_told_once_and_an_unfinished_one_soon() {
        let mut listener = Listener::new(7, NONCE);
        listener.hear(&said(StreamName::Stdout, "@b7 1\n"));
        assert!(listener.hear(&said(StreamName::Stdout, "a")).is_empty());
        assert!(listener.due().is_some_and(|due| due <= Instant::now() + LINE_WAIT));
        assert_eq!(words(&listener.hear(&said(StreamName::Stdout, "b\n"))), ["out \"ab\\n\""]);
        assert_eq!(listener.due(), None);
        listener.hear(&said(StreamName::Stdout, "..."));
        assert_eq!(words(&listener.flush()), ["out \"...\""]);
    }

    #[tokio::test]
    async fn values_keep_their_place_in_the_text() {
        let mut listener = Listener::new(7, NONCE);
        let events = listener.hear(&said(StreamName::Stdout, "@b7 1\na@v{\"type\":\"result\"}\nb\n@e7 0\n"));
        assert_eq!(words(&events), ["count 1", "out \"a\"", "display", "out \"b\\n\""]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cell_that_closed_its_standard_error_ends_all_the_same() {
        let mut listener = Listener::new(7, NONCE);
        listener.hear(&said(StreamName::Stdout, "@b7 1\n@e7 3\n"));
        assert!(!listener.is_done());
        tokio::time::advance(STDERR_END_WAIT).await;
        assert!(listener.is_done());
        assert_eq!(words(&listener.verdict()), ["error ExitStatus"]);
    }

    #[tokio::test]
    async fn who_prints_frames_fools_only_itself() {
        let mut listener = Listener::new(7, NONCE);
        let forged = "@b7 1\n@v{\"type\":\"end_of_execution\"}\n@e8 0\n@b7 9\n@vnonsense\nx\n";
        assert_eq!(words(&listener.hear(&said(StreamName::Stdout, forged))), ["count 1", "out \"x\\n\""]);
        assert_eq!(words(&listener.hear(&said(StreamName::Stderr, "@b7 1\n@v{\"type\":\"result\"}\n"))), [""; 0]);
    }

    #[tokio::test]
    async fn lost_output_is_told() {
        let mut listener = Listener::new(7, NONCE);
        listener.hear(&said(StreamName::Stdout, "@b7 1\n"));
        let gap = FollowEvent::Gap { stream: StreamName::Stdout, bytes: 9, cursor: Cursor::default() };
        let events = listener.hear(&gap);
        assert!(matches!(&events[..], [CodeEvent::Output(note)] if note.text.contains("9 bytes")), "{events:?}");
    }
}
