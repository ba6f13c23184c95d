//! Journals made by hand: as the agent would leave them, and as nobody should.

use super::*;
use box_wire::{Ending, Refusal, RefusalCode};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use tempfile::TempDir;

/// A journal and the directory that it lies in.
struct TestJournal {
    directory: TempDir,
    journal: Journal,
}

impl TestJournal {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(File::open(directory.path()).unwrap().into());
        Self { directory, journal }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn segment(&self, stream: StreamName, start: u64, bytes: &[u8]) {
        let name = FileName::Segment { exec: exec(), stream, start }.to_string();
        std::fs::write(self.path(&name), bytes).unwrap();
    }

    fn end(&self, stdout_bytes: u64) -> EndRecord {
        let refusal = Refusal { code: RefusalCode::Internal, message: "x".to_owned() };
        let record = EndRecord { ending: Ending::Refused(refusal), stdout_bytes, stderr_bytes: 0 };
        std::fs::write(self.path("e.end"), record.to_bytes(&exec()).unwrap()).unwrap();
        record
    }

    async fn read(&self, from: u64, bytes_max: usize) -> Chunk {
        self.journal.read(&exec(), StreamName::Stdout, from, bytes_max).await.unwrap()
    }
}

fn exec() -> ExecId {
    "e".parse().unwrap()
}

fn chunk(start: u64, bytes: &[u8], gap: bool) -> Chunk {
    Chunk { start, bytes: bytes.to_vec(), gap }
}

#[tokio::test]
async fn a_stream_is_read_piece_by_piece_across_segments() {
    let place = TestJournal::new();
    assert_eq!(place.read(0, 10).await, chunk(0, b"", false), "nothing was written yet");
    place.segment(StreamName::Stdout, 0, b"0123");
    place.segment(StreamName::Stdout, 4, b"4567");
    place.segment(StreamName::Stderr, 0, b"errors");
    assert_eq!(place.read(0, 3).await, chunk(0, b"012", false));
    assert_eq!(place.read(3, 10).await, chunk(3, b"3", false));
    assert_eq!(place.read(4, 10).await, chunk(4, b"4567", false));
    assert_eq!(place.read(8, 10).await, chunk(8, b"", false));
    assert_eq!(place.read(u64::MAX, 10).await, chunk(u64::MAX, b"", false));
    assert_eq!(place.journal.length(&exec(), StreamName::Stdout).unwrap(), 8);
    assert_eq!(place.journal.length(&exec(), StreamName::Stderr).unwrap(), 6);
    assert_eq!(place.journal.length(&"other".parse().unwrap(), StreamName::Stderr).unwrap(), 0);
    let large = place.read(4, JOURNAL_READ_BYTES_MAX).await;
    assert_eq!(large, chunk(4, b"4567", false), "read in the background");
}

#[tokio::test]
async fn what_is_not_kept_is_skipped_and_told() {
    let place = TestJournal::new();
    place.segment(StreamName::Stdout, 0, b"head");
    place.segment(StreamName::Stdout, 100, b"tail");
    assert_eq!(place.read(2, 10).await, chunk(2, b"ad", false));
    for from in [4, 50, 99] {
        assert_eq!(place.read(from, 2).await, chunk(100, b"ta", true));
    }
    assert_eq!(place.read(102, 10).await, chunk(102, b"il", false));
    // A segment into which nothing was written yet says nothing, not even that there is a gap before it.
    place.segment(StreamName::Stdout, 200, b"");
    assert_eq!(place.read(104, 10).await, chunk(104, b"", false));
    assert_eq!(place.journal.length(&exec(), StreamName::Stdout).unwrap(), 200);
}

#[test]
fn what_is_kept_without_a_gap_begins_behind_the_last_one() {
    let place = TestJournal::new();
    let from = || place.journal.unbroken_from(&exec(), StreamName::Stdout).unwrap();
    assert_eq!(from(), 0, "nothing was written yet");
    place.segment(StreamName::Stdout, 0, b"head");
    place.segment(StreamName::Stdout, 4, b"more");
    assert_eq!(from(), 0);
    place.segment(StreamName::Stdout, 100, b"tail");
    place.segment(StreamName::Stdout, 104, b"end");
    assert_eq!(from(), 100);
    place.segment(StreamName::Stdout, 200, b"");
    assert_eq!(from(), 100, "a segment without bytes shows no gap yet");
}

#[tokio::test]
async fn text_is_clipped_around_gaps_and_counts_what_was_lost() {
    let place = TestJournal::new();
    place.segment(StreamName::Stdout, 0, b"head");
    let exec = exec();
    let clipped = |limit| place.journal.clipped(&exec, StreamName::Stdout, limit);
    assert_eq!(clipped(4).await.unwrap(), Clipped { text: "head".to_owned(), truncated: false });
    place.segment(StreamName::Stdout, 100, b"tail");
    let text = "head\n... [96 characters truncated] ...\ntail".to_owned();
    assert_eq!(clipped(1000).await.unwrap(), Clipped { text, truncated: true });
    place.end(110);
    let text = "head\n... [106 characters truncated] ...\n".to_owned();
    assert_eq!(clipped(1000).await.unwrap(), Clipped { text, truncated: true }, "the disk was full at the end");
    place.journal.remove(&exec).unwrap();
    place.segment(StreamName::Stdout, 0, &vec![b'x'; 3 * JOURNAL_READ_BYTES_MAX]);
    let clipped = clipped(4000).await.unwrap();
    assert!(
        clipped.truncated && clipped.text.len() == 4000 && clipped.text.contains("[3141768 characters"),
        "{clipped:?}"
    );
}

#[tokio::test]
async fn reads_are_bounded() {
    let place = TestJournal::new();
    for bad in [0, JOURNAL_READ_BYTES_MAX + 1, usize::MAX] {
        let error = place.journal.read(&exec(), StreamName::Stdout, 0, bad).await.unwrap_err();
        assert_eq!(error.code(), "invalid");
    }
}

#[test]
fn an_end_is_found_when_it_is_there() {
    let place = TestJournal::new();
    assert_eq!(place.journal.end(&exec()).unwrap(), None);
    std::fs::write(place.path("e.partial"), b"half").unwrap();
    assert_eq!(place.journal.end(&exec()).unwrap(), None);
    let record = place.end(3);
    assert_eq!(place.journal.end(&exec()).unwrap(), Some(record));
}

#[test]
fn one_exec_is_removed_and_the_others_stay() {
    let place = TestJournal::new();
    place.segment(StreamName::Stdout, 0, b"1234");
    place.segment(StreamName::Stderr, 7, b"56");
    place.end(4);
    std::fs::write(place.path("e.partial"), b"").unwrap();
    std::fs::write(place.path("f.end"), b"123").unwrap();
    std::fs::write(place.path("strange name"), b"123").unwrap();
    assert_eq!(place.journal.execs().unwrap(), [exec(), "f".parse().unwrap()]);
    place.journal.remove(&exec()).unwrap();
    place.journal.remove(&exec()).unwrap();
    assert_eq!(place.journal.execs().unwrap(), ["f".parse().unwrap()]);
    assert_eq!(place.journal.bytes().unwrap(), 3);
    assert_eq!(std::fs::read_dir(place.directory.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn nothing_but_regular_files_is_read() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), b"secret").unwrap();
    let name = FileName::Segment { exec: exec(), stream: StreamName::Stdout, start: 0 }.to_string();
    let makers: [&dyn Fn(&PathBuf); 3] =
        [&|path| symlink(secret.path(), path).unwrap(), &|path| std::fs::create_dir(path).unwrap(), &|path| {
            rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
        }];
    for make in makers {
        let place = TestJournal::new();
        make(&place.path(&name));
        make(&place.path("e.end"));
        let read = place.journal.read(&exec(), StreamName::Stdout, 0, 10).await;
        assert_eq!(read.unwrap_err().code(), "protocol");
        assert_eq!(place.journal.length(&exec(), StreamName::Stdout).unwrap_err().code(), "protocol");
        assert_eq!(place.journal.end(&exec()).unwrap_err().code(), "protocol");
    }
}

#[tokio::test]
async fn sizes_that_no_agent_of_ours_makes_are_refused() {
    let place = TestJournal::new();
    let sparse = |name: String, bytes: u64| File::create(place.path(&name)).unwrap().set_len(bytes).unwrap();
    let segment = |start| FileName::Segment { exec: exec(), stream: StreamName::Stdout, start }.to_string();
    sparse("e.end".to_owned(), 1 << 40);
    assert_eq!(place.journal.end(&exec()).unwrap_err().code(), "protocol");
    sparse(segment(u64::MAX), 5);
    assert_eq!(place.journal.length(&exec(), StreamName::Stdout).unwrap_err().code(), "protocol");
    sparse(segment(0), JOURNAL_BYTES_MAX + 1);
    assert_eq!(place.journal.read(&exec(), StreamName::Stdout, 0, 1).await.unwrap_err().code(), "protocol");
    std::fs::write(place.path("e.end"), b"\xff\xff\xff garbage").unwrap();
    assert_eq!(place.journal.end(&exec()).unwrap_err().code(), "protocol");
}
