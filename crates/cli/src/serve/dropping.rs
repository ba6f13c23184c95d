//! A writer that never waits. LangBot starts its box runtime with standard error as a pipe, and some versions never read it: after
//! 64 KiB whoever writes there stands still.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait to be written.
const LINES_MAX: usize = 1024;
/// Longest line that is kept whole.
const LINE_BYTES_MAX: usize = 16 << 10;
/// How long the end of the program waits for lines to be written.
const FLUSH_TIME_MAX: Duration = Duration::from_millis(200);

/// What is given to the thread that may wait.
enum Piece {
    Line(Vec<u8>),
    /// Everything before this was written.
    Flush(SyncSender<()>),
}

/// Gives lines to a thread that writes them, as long as it keeps up. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Dropping {
    pieces: SyncSender<Piece>,
    dropped: Arc<AtomicUsize>,
}

impl Dropping {
    /// Starts to write.
    pub(super) fn to(target: impl Write + Send + 'static) -> io::Result<Self> {
        let (pieces, waiting) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&dropped);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(target, &waiting, &counter))?;
        Ok(Self { pieces, dropped })
    }

    /// Waits a moment for what was logged to be written.
    pub(crate) fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.pieces.try_send(Piece::Flush(done)).is_ok() {
            // Whoever does not take it in time does not read it.
            let _ = written.recv_timeout(FLUSH_TIME_MAX);
        }
    }
}

fn write_all(mut target: impl Write, waiting: &Receiver<Piece>, dropped: &AtomicUsize) {
    for piece in waiting {
        match piece {
            // Nobody can be told when that fails.
            Piece::Line(line) => drop(target.write_all(&line)),
            Piece::Flush(done) => drop(done.try_send(())),
        }
        let count = dropped.swap(0, Ordering::Relaxed);
        if count > 0 {
            drop(writeln!(target, "strongbox: {count} lines of the log were dropped; nobody read them in time"));
        }
    }
}

impl Write for &Dropping {
    /// Takes a line: the log writes each in one piece.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut line = bytes[..bytes.len().min(LINE_BYTES_MAX)].to_vec();
        if line.len() < bytes.len() {
            line.push(b'\n');
        }
        if self.pieces.try_send(Piece::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Dropping {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_pipe_that_nobody_reads_holds_nobody_up_and_losses_are_told() {
        let (mut reader, writer) = io::pipe().unwrap();
        let dropping = Dropping::to(writer).unwrap();
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        for _ in 0..5000 {
            (&dropping).write_all(&line).unwrap();
        }
        let gather = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text).unwrap()
        });
        drop(dropping);
        let text = gather.join().unwrap();
        let (kept, told): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('x'));
        let losses = told.iter().map(|line| line.split(' ').nth(1).unwrap().parse::<usize>().unwrap());
        assert!(!told.is_empty() && kept.len() + losses.sum::<usize>() == 5000, "{} kept, {told:?}", kept.len());
    }

    #[test]
    fn what_was_logged_is_there_after_a_flush() {
        let (mut reader, writer) = io::pipe().unwrap();
        let dropping = Dropping::to(writer).unwrap();
        (&dropping).write_all(b"words\n").unwrap();
        dropping.flush();
        let mut taken = [0; 6];
        reader.read_exact(&mut taken).unwrap();
        assert_eq!(&taken, b"words\n");
    }
}
