//! Writes what a command says into files of the journal, and forgets the middle when it says too much.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use box_wire::journal::{self, FileName};
use box_wire::limits::{DATA_BYTES_MAX, JOURNAL_SEGMENT_BYTES_MIN, JOURNAL_SEGMENTS_MAX};
use box_wire::{EndRecord, ExecId, StreamName};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::pipe::SpliceFlags;

use crate::outbox::StreamRead;

/// How much is copied at once where nothing can be moved.
const COPY_BYTES: usize = 16 << 10;

/// Everybody may read: the directories above belong to the host alone, and an ordinary user there is not the agent.
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);

/// Makes a file that was not there.
const CREATE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The journal of one exec.
#[derive(Debug)]
pub(super) struct Recorder {
    exec: ExecId,
    segment_bytes: u64,
    /// So many of them have at most as many bytes as the journal's bound says.
    segments_max: u64,
    stdout: Track,
    stderr: Track,
}

/// Records that the box ended itself. If the disk is full, the next server has to guess.
pub(crate) fn note_left_alone(directory: &OwnedFd) {
    drop(rustix::fs::openat(directory, journal::LEFT_ALONE, CREATE, FILE_MODE));
}

/// One stream of output.
#[derive(Debug, Default)]
struct Track {
    /// Bytes that came so far, kept or not.
    bytes: u64,
    /// The offsets of the segments that are kept.
    segments: VecDeque<u64>,
    /// The segment that is being written, and the room that it has.
    current: Option<(OwnedFd, u64)>,
    /// The file system cannot take bytes out of a pipe.
    cannot_splice: bool,
}

impl Recorder {
    pub(super) fn new(exec: ExecId, bytes_max: u64) -> Self {
        let segment_bytes = (bytes_max / JOURNAL_SEGMENTS_MAX).max(JOURNAL_SEGMENT_BYTES_MIN);
        Self::with_segments(exec, segment_bytes, bytes_max / segment_bytes)
    }

    fn with_segments(exec: ExecId, segment_bytes: u64, segments_max: u64) -> Self {
        Self { exec, segment_bytes, segments_max, stdout: Track::default(), stderr: Track::default() }
    }

    /// Whether an exec of this name has a journal already.
    pub(super) fn is_taken(directory: &OwnedFd, exec: &ExecId) -> bool {
        let end = FileName::End { exec: exec.clone() }.to_string();
        rustix::fs::accessat(directory, end, rustix::fs::Access::EXISTS, AtFlags::empty()).is_ok()
    }

    /// Bytes that came so far on both streams.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.stdout.bytes, self.stderr.bytes)
    }

    /// Takes what a pipe holds, at once: moved into the file by the kernel where that works.
    pub(super) fn take_pipe(&mut self, directory: &OwnedFd, stream: StreamName, pipe: &OwnedFd) -> StreamRead {
        let track = self.track(stream);
        if let Some((file, room)) = track.current.as_mut().filter(|_| !track.cannot_splice) {
            let count = usize::try_from(*room).unwrap_or(usize::MAX).min(DATA_BYTES_MAX);
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            match rustix::pipe::splice(pipe.as_fd(), None, file.as_fd(), None, count, flags) {
                Ok(0) => return StreamRead::End,
                Ok(count) => {
                    track.wrote(count);
                    return StreamRead::Some;
                }
                Err(Errno::AGAIN | Errno::INTR) => return StreamRead::Nothing,
                // Whatever is wrong with the file, the pipe still holds the bytes.
                Err(error) => track.cannot_splice = error == Errno::INVAL,
            }
        }
        self.take_copy(directory, stream, pipe)
    }

    /// Takes what a terminal or a pipe holds by reading it.
    pub(super) fn take_copy(&mut self, directory: &OwnedFd, stream: StreamName, source: &OwnedFd) -> StreamRead {
        let mut buffer = [0; COPY_BYTES];
        match rustix::io::read(source, &mut buffer) {
            Ok(0) => StreamRead::End,
            Ok(count) => {
                self.store(directory, stream, &buffer[..count]);
                StreamRead::Some
            }
            Err(Errno::AGAIN | Errno::INTR) => StreamRead::Nothing,
            Err(_) => StreamRead::End,
        }
    }

    /// Writes bytes. What cannot be written is counted all the same, and missing later: a full disk must not stop the command.
    fn store(&mut self, directory: &OwnedFd, stream: StreamName, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.write(directory, stream, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.lose(directory, stream, bytes.len());
                    return;
                }
            }
        }
    }

    fn write(&mut self, directory: &OwnedFd, stream: StreamName, bytes: &[u8]) -> Result<usize> {
        if self.track(stream).current.is_none() {
            self.begin_segment(directory, stream)?;
        }
        let track = self.track(stream);
        let Some((file, room)) = &track.current else { return Err(Errno::BADF) };
        let count = usize::try_from(*room).unwrap_or(usize::MAX).min(bytes.len());
        let count = rustix::io::write(file, &bytes[..count])?;
        if count == 0 {
            return Err(Errno::NOSPC);
        }
        track.wrote(count);
        Ok(count)
    }

    /// Starts a segment at the end of the stream. When there are too many, the second one is dropped: the beginning and
    /// the end of output are worth more than its middle.
    fn begin_segment(&mut self, directory: &OwnedFd, stream: StreamName) -> Result<()> {
        let (start, room) = (self.track(stream).bytes, self.segment_bytes);
        if self.track(stream).segments.len() as u64 >= self.segments_max
            && let Some(second) = self.track(stream).segments.remove(1)
        {
            self.remove(directory, stream, second);
        }
        let file = rustix::fs::openat(directory, self.name(stream, start), CREATE, FILE_MODE)?;
        let track = self.track(stream);
        track.segments.push_back(start);
        track.current = Some((file, room));
        Ok(())
    }

    /// Counts bytes that could not be written. Whatever comes next starts a segment of its own.
    fn lose(&mut self, directory: &OwnedFd, stream: StreamName, count: usize) {
        let track = self.track(stream);
        let is_empty = track.current.take().is_some() && track.segments.back() == Some(&track.bytes);
        let start = if is_empty { track.segments.pop_back() } else { None };
        track.bytes += count as u64;
        if let Some(start) = start {
            self.remove(directory, stream, start);
        }
    }

    fn remove(&self, directory: &OwnedFd, stream: StreamName, start: u64) {
        let _ = rustix::fs::unlinkat(directory, self.name(stream, start), AtFlags::empty());
    }

    /// Writes how the exec ended, under its final name only when it is complete. Not synced: when the machine dies, so does the box.
    pub(super) fn end(&self, directory: &OwnedFd, record: &EndRecord) -> Result<()> {
        let partial = FileName::Partial { exec: self.exec.clone() }.to_string();
        let bytes = record.to_bytes(&self.exec).map_err(|_| Errno::TOOBIG)?;
        let file = rustix::fs::openat(directory, &partial, CREATE, FILE_MODE)?;
        let written = rustix::io::write(&file, &bytes)?;
        if written < bytes.len() {
            return Err(Errno::NOSPC);
        }
        rustix::fs::renameat(directory, &partial, directory, FileName::End { exec: self.exec.clone() }.to_string())
    }

    fn name(&self, stream: StreamName, start: u64) -> String {
        FileName::Segment { exec: self.exec.clone(), stream, start }.to_string()
    }

    fn track(&mut self, stream: StreamName) -> &mut Track {
        match stream {
            StreamName::Stdout => &mut self.stdout,
            StreamName::Stderr => &mut self.stderr,
        }
    }
}

impl Track {
    fn wrote(&mut self, count: usize) {
        let count = count as u64;
        self.bytes += count;
        self.current = self.current.take().filter(|(_, room)| *room > count).map(|(file, room)| (file, room - count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;
    use std::io::Write;

    /// A recorder with segments of 16 bytes, and the directory that it writes to.
    struct TestRecorder {
        directory: tempfile::TempDir,
        opened: OwnedFd,
        recorder: Recorder,
    }

    impl TestRecorder {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let opened = OwnedFd::from(fs::File::open(directory.path()).unwrap());
            Self { directory, opened, recorder: Recorder::with_segments("e".parse().unwrap(), 16, 16) }
        }

        fn store(&mut self, bytes: &[u8]) {
            self.recorder.store(&self.opened, StreamName::Stdout, bytes);
        }

        fn take(&mut self, pipe: &OwnedFd) -> StreamRead {
            self.recorder.take_pipe(&self.opened, StreamName::Stdout, pipe)
        }

        fn block(&self, start: u64) {
            fs::create_dir(self.directory.path().join(self.recorder.name(StreamName::Stdout, start))).unwrap();
        }

        /// The kept bytes, by the offset of their segment.
        fn segments(&self) -> BTreeMap<u64, Vec<u8>> {
            let files = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
            let start = |path: &std::path::Path| match FileName::parse(path.file_name()?.to_str()?)? {
                FileName::Segment { start, stream: StreamName::Stdout, .. } => Some(start),
                _ => None,
            };
            files
                .filter(|path| path.is_file())
                .filter_map(|path| Some((start(&path)?, fs::read(&path).unwrap())))
                .collect()
        }
    }

    #[test]
    fn the_beginning_and_the_end_are_kept_of_what_is_too_much() {
        let mut place = TestRecorder::new();
        let bytes: Vec<u8> = (0..=255).cycle().take(16 * 40 + 5).collect();
        for piece in bytes.chunks(7) {
            place.store(piece);
        }
        let segments = place.segments();
        assert_eq!(segments.len(), 16);
        let starts: Vec<u64> = segments.keys().copied().collect();
        assert_eq!(starts[0], 0);
        assert_eq!(starts[1..], (26..=40).map(|number| number * 16).collect::<Vec<u64>>());
        for (start, kept) in segments {
            let start = usize::try_from(start).unwrap();
            assert_eq!(kept, bytes[start..(start + 16).min(bytes.len())]);
        }
        assert_eq!(place.recorder.bytes(), (bytes.len() as u64, 0));
    }

    #[test]
    fn no_bound_is_passed_and_none_wasted() {
        use box_wire::limits::{JOURNAL_BYTES_DEFAULT, JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN};
        for bytes_max in [JOURNAL_BYTES_MIN, 100_000, 1_000_003, JOURNAL_BYTES_DEFAULT, JOURNAL_BYTES_MAX] {
            let recorder = Recorder::new("e".parse().unwrap(), bytes_max);
            let kept = recorder.segment_bytes * recorder.segments_max;
            assert!(recorder.segments_max >= 4 && kept <= bytes_max && kept > bytes_max / 4 * 3, "{bytes_max}: {kept}");
        }
    }

    #[test]
    fn a_pipe_is_emptied_into_files_and_its_end_is_noticed() {
        let mut place = TestRecorder::new();
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        assert_eq!(place.take(&read), StreamRead::Nothing);
        assert!(place.segments().is_empty(), "no file without output");
        let mut write = fs::File::from(write);
        write.write_all(b"0123456789").unwrap();
        assert_eq!(place.take(&read), StreamRead::Some);
        // From here on the kernel moves it: to the end of the segment, and no further.
        write.write_all(b"abcdefghij").unwrap();
        while place.take(&read) == StreamRead::Some {}
        assert_eq!(place.take(&read), StreamRead::Nothing);
        let expected = BTreeMap::from([(0, b"0123456789abcdef".to_vec()), (16, b"ghij".to_vec())]);
        assert_eq!(place.segments(), expected);
        drop(write);
        assert_eq!(place.take(&read), StreamRead::End);
        assert_eq!(place.recorder.bytes(), (20, 0));
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_leaves_a_gap() {
        let mut place = TestRecorder::new();
        place.store(b"0123456789abcdef");
        place.block(16);
        place.store(b"lost");
        place.store(b"kept");
        assert_eq!(place.segments(), BTreeMap::from([(0, b"0123456789abcdef".to_vec()), (20, b"kept".to_vec())]));
        assert_eq!(place.recorder.bytes(), (24, 0));
    }

    #[test]
    fn a_full_disk_leaves_no_empty_files_and_empties_the_pipe() {
        let mut place = TestRecorder::new();
        place.store(b"01");
        // Stands for a disk that is full: the file takes nothing more.
        let full = rustix::fs::open("/dev/full", OFlags::WRONLY, Mode::empty()).unwrap();
        place.recorder.stdout.current = Some((full, 14));
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        fs::File::from(write).write_all(b"lost").unwrap();
        assert_eq!(place.take(&read), StreamRead::Some);
        assert_eq!(place.take(&read), StreamRead::End);
        assert_eq!(place.segments(), BTreeMap::from([(0, b"01".to_vec())]));
        place.store(b"kept");
        assert_eq!(place.segments().get(&6), Some(&b"kept".to_vec()));
        // The same with a segment that has nothing yet: its name goes.
        place.recorder.stdout.current = None;
        place.recorder.begin_segment(&place.opened, StreamName::Stdout).unwrap();
        assert_eq!(place.segments().get(&10), Some(&Vec::new()));
        place.recorder.lose(&place.opened, StreamName::Stdout, 3);
        assert_eq!(place.segments().keys().copied().collect::<Vec<_>>(), [0, 6]);
        assert_eq!(place.recorder.bytes(), (13, 0));
    }

    #[test]
    fn an_end_appears_whole_and_once() {
        let place = TestRecorder::new();
        let exec = "e".parse().unwrap();
        let refusal = box_wire::Refusal { code: box_wire::RefusalCode::Internal, message: "x".to_owned() };
        let record = EndRecord { ending: box_wire::Ending::Refused(refusal), stdout_bytes: 1, stderr_bytes: 2 };
        assert!(!Recorder::is_taken(&place.opened, &exec));
        place.recorder.end(&place.opened, &record).unwrap();
        assert!(Recorder::is_taken(&place.opened, &exec));
        let bytes = fs::read(place.directory.path().join("e.end")).unwrap();
        assert_eq!(EndRecord::from_bytes(&exec, &bytes), Ok(record));
        assert_eq!(fs::read_dir(place.directory.path()).unwrap().count(), 1);
    }
}
