//! An exec whose output goes into the journal. Streams come and go; it stays.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use box_wire::limits::STREAMS_PER_EXEC_MAX;
use box_wire::{EndRecord, Ending, Event, ExecId, StreamName};
use rustix::event::PollFlags;

use super::TURNS_MAX;
use super::inbox::{self, Inbox};
use super::input::Input;
use super::pacing::{Pacing, Room};
use super::recorder::Recorder;
use super::spawn::Spawned;
use crate::outbox::{Outbox, StreamRead};

/// Bytes of output that are still taken after the command has ended. Its own last output fits into its pipes, which
/// hold less; background processes that it left may write forever.
const LAST_WORDS_BYTES_MAX: u64 = 4 << 20;

/// A journal and the clients that follow it.
#[derive(Debug)]
pub(super) struct Journalled {
    recorder: Recorder,
    attachments: Vec<Attachment>,
    /// Of a held one: those for whom output waits.
    pacing: Option<Pacing>,
    /// Bytes that had come when the command ended.
    bytes_at_end: Option<u64>,
}

/// One stream that follows.
#[derive(Debug)]
struct Attachment {
    /// Nothing when the other end hung up; what it sent before is still passed on.
    stream: Option<OwnedFd>,
    inbox: Inbox,
    outbox: Outbox,
    /// The client reads no more events, but may still send input.
    is_deaf: bool,
    knows_start: bool,
    /// The totals of the last `Progress` message.
    told: (u64, u64),
}

impl Journalled {
    pub(super) fn new(exec: ExecId, bytes_max: u64, stream: OwnedFd, inbox: Inbox) -> Self {
        let recorder = Recorder::new(exec, bytes_max);
        Self { recorder, attachments: vec![Attachment::new(stream, inbox)], pacing: None, bytes_at_end: None }
    }

    /// An exec whose output waits for pacing clients.
    pub(super) fn held(exec: ExecId, bytes_max: u64, stream: OwnedFd, inbox: Inbox) -> Self {
        Self { pacing: Some(Pacing::new(bytes_max)), ..Self::new(exec, bytes_max, stream, inbox) }
    }

    pub(super) fn attached(&self) -> usize {
        self.attachments.len() + self.pacing.as_ref().map_or(0, Pacing::streams)
    }

    /// Lets output wait for another stream. It comes back when that cannot be.
    pub(super) fn pace(&mut self, stream: OwnedFd, inbox: Inbox, taken: box_wire::ReadPosition) -> Result<(), OwnedFd> {
        match &mut self.pacing {
            Some(pacing) => pacing.attach(stream, inbox, taken),
            None => Err(stream),
        }
    }

    /// Which output may be taken now. Nothing is held back when only the last words are left.
    pub(super) fn room(&self, ends_now: bool) -> Room {
        let pacing = self.pacing.as_ref().filter(|_| !ends_now);
        pacing.map_or(Room::BOTH, |pacing| pacing.room(self.recorder.bytes()))
    }

    /// When to look again although nothing happens.
    pub(super) fn wake_at(&self) -> Option<std::time::Instant> {
        self.pacing.as_ref().and_then(Pacing::wake_at)
    }

    /// Lets another stream follow. It comes back when there are too many.
    pub(super) fn attach(&mut self, stream: OwnedFd, inbox: Inbox) -> Result<(), OwnedFd> {
        if self.attachments.len() >= STREAMS_PER_EXEC_MAX {
            return Err(stream);
        }
        self.attachments.push(Attachment::new(stream, inbox));
        Ok(())
    }

    pub(super) fn interests<'a>(&'a self, input: &Input, add: &mut impl FnMut(BorrowedFd<'a>, PollFlags)) {
        for attachment in &self.attachments {
            let Some(stream) = &attachment.stream else { continue };
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, !input.is_waiting());
            events.set(PollFlags::OUT, !attachment.outbox.is_empty());
            add(stream.as_fd(), events);
        }
        if let Some(pacing) = &self.pacing {
            pacing.interests(add);
        }
    }

    /// Takes input from the attached clients, in turn.
    pub(super) fn take_input(&mut self, input: &mut Input, child: &mut Spawned) {
        input.feed(child);
        for attachment in &mut self.attachments {
            attachment.receive(input);
            if input.take_from(&mut attachment.inbox, child).is_err() {
                attachment.stream = None;
                attachment.inbox = Inbox::default();
            }
        }
        // Of one that hung up, frames are left only while input waits.
        self.attachments.retain(|attachment| attachment.stream.is_some() || input.is_waiting());
        if input.is_waiting() && !self.attachments.is_empty() {
            // Another one is first when there is room again.
            self.attachments.rotate_left(1);
        }
    }

    /// Moves output into the journal. True when nothing more is waiting that the command itself wrote, or may be taken now.
    pub(super) fn move_output(&mut self, directory: &OwnedFd, child: &mut Spawned, ends_now: bool) -> bool {
        if let Some(pacing) = &mut self.pacing {
            pacing.hear();
        }
        if ends_now && self.bytes_at_end.is_none() {
            self.bytes_at_end = Some(self.bytes());
        }
        let is_all = (0..TURNS_MAX).any(|_| {
            let room = self.room(ends_now);
            !self.take_output(directory, child, room)
        });
        if let Some(pacing) = &mut self.pacing {
            pacing.note(self.recorder.bytes());
        }
        is_all || self.bytes_at_end.is_some_and(|before| self.bytes() - before > LAST_WORDS_BYTES_MAX)
    }

    fn bytes(&self) -> u64 {
        let (stdout, stderr) = self.recorder.bytes();
        stdout + stderr
    }

    /// Reads from every stream that has output, if there is room for it. False when none has.
    fn take_output(&mut self, directory: &OwnedFd, child: &mut Spawned, room: Room) -> bool {
        let recorder = &mut self.recorder;
        let mut any = false;
        let mut take = |source: &mut Option<OwnedFd>, has_room: bool, take: &mut dyn FnMut(&OwnedFd) -> StreamRead| {
            let Some(open) = source.as_ref().filter(|_| has_room) else { return };
            match take(open) {
                StreamRead::Some => any = true,
                StreamRead::Nothing => {}
                StreamRead::End => *source = None,
            }
        };
        take(&mut child.terminal, room.stdout, &mut |open| recorder.take_copy(directory, StreamName::Stdout, open));
        take(&mut child.stdout, room.stdout, &mut |open| recorder.take_pipe(directory, StreamName::Stdout, open));
        take(&mut child.stderr, room.stderr, &mut |open| recorder.take_pipe(directory, StreamName::Stderr, open));
        any
    }

    /// Sends new totals to the attached clients.
    pub(super) fn report(&mut self, started: Option<u32>) {
        let bytes = self.recorder.bytes();
        for attachment in &mut self.attachments {
            attachment.flush();
            if attachment.outbox.is_empty() {
                attachment.tell(started, bytes);
                attachment.flush();
            }
        }
    }

    /// Writes how the exec ended and queues the last messages for the attached clients. A refusal that a client
    /// receives is not written: nothing ran, so there is nothing to remember.
    pub(super) fn finish(
        mut self,
        directory: &OwnedFd,
        started: Option<u32>,
        ending: Ending,
    ) -> Vec<(OwnedFd, Outbox)> {
        let (stdout_bytes, stderr_bytes) = self.recorder.bytes();
        self.attachments.retain(|attachment| attachment.stream.is_some() && !attachment.is_deaf);
        if matches!(ending, Ending::Exited(_)) || self.attachments.is_empty() {
            let record = EndRecord { ending: ending.clone(), stdout_bytes, stderr_bytes };
            // With a full disk only the attached clients learn the end; later ones find neither exec nor record.
            let _ = self.recorder.end(directory, &record);
        }
        let last = match ending {
            Ending::Exited(outcome) => Event::Exited(outcome),
            Ending::Refused(refusal) => Event::Refused(refusal),
        };
        let part = |mut attachment: Attachment| {
            attachment.tell(started, (stdout_bytes, stderr_bytes));
            attachment.outbox.push(&last);
            attachment.stream.map(|stream| (stream, attachment.outbox))
        };
        self.attachments.into_iter().filter_map(part).collect()
    }
}

impl Attachment {
    fn new(stream: OwnedFd, inbox: Inbox) -> Self {
        Self {
            stream: Some(stream),
            inbox,
            outbox: Outbox::default(),
            is_deaf: false,
            knows_start: false,
            told: (0, 0),
        }
    }

    /// Reads what the client sent. While input waits nothing is read, which slows down a client that sends too much.
    /// After a hang-up the rest is read anyway, because an unread socket would keep waking the poll loop.
    fn receive(&mut self, input: &Input) {
        let Some(stream) = &self.stream else { return };
        let over = if input.is_waiting() {
            inbox::is_hung_up(stream) && {
                while self.inbox.fill(stream).is_ok() {}
                true
            }
        } else {
            self.inbox.fill(stream).is_err()
        };
        if over {
            self.stream = None;
        }
    }

    /// Says that the command was started and how much it wrote, if that is news.
    fn tell(&mut self, started: Option<u32>, bytes: (u64, u64)) {
        let Some(pid) = started.filter(|_| !self.is_deaf) else { return };
        if !self.knows_start {
            self.knows_start = true;
            self.outbox.push(&Event::Started { pid });
        }
        if self.told != bytes {
            self.told = bytes;
            self.outbox.push(&Event::Progress { stdout_bytes: bytes.0, stderr_bytes: bytes.1 });
        }
    }

    fn flush(&mut self) {
        let Some(stream) = &self.stream else { return };
        if self.outbox.flush(stream, |_| None).is_err() {
            // The client stopped reading, but what it sent earlier may still have to be read.
            self.is_deaf = true;
            self.outbox = Outbox::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_wire::{Refusal, RefusalCode};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn child() -> Spawned {
        Spawned { pid: 7, stdin: None, stdout: None, stderr: None, terminal: None, verdict: None, status: None }
    }

    fn refused() -> Ending {
        Ending::Refused(Refusal { code: RefusalCode::NotFound, message: "no".to_owned() })
    }

    #[test]
    fn a_refusal_is_written_only_when_nobody_hears_it() {
        for is_heard in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let opened = OwnedFd::from(std::fs::File::open(directory.path()).unwrap());
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut journalled = Journalled::new("e".parse().unwrap(), 1 << 20, ours.into(), Inbox::default());
            let theirs = is_heard.then_some(theirs);
            journalled.take_input(&mut Input::default(), &mut child());
            assert_eq!(journalled.finish(&opened, None, refused()).len(), usize::from(is_heard));
            assert_eq!(directory.path().join("e.end").exists(), !is_heard);
            drop(theirs);
        }
    }

    #[test]
    fn output_that_never_stops_is_not_taken_for_ever_after_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let opened = OwnedFd::from(std::fs::File::open(directory.path()).unwrap());
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut journalled = Journalled::new("e".parse().unwrap(), 1 << 20, ours.into(), Inbox::default());
        let endless = OwnedFd::from(std::fs::File::open("/dev/zero").unwrap());
        let mut child = Spawned { terminal: Some(endless), ..child() };
        assert!((0..100).all(|_| !journalled.move_output(&opened, &mut child, false)), "it is over before the end");
        let before = journalled.bytes();
        assert!((0..100).any(|_| journalled.move_output(&opened, &mut child, true)), "it is never over");
        assert!(journalled.bytes() - before >= LAST_WORDS_BYTES_MAX, "last words may be lost");
    }

    #[test]
    fn a_listener_that_does_not_read_is_told_less_and_not_more() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut journalled = Journalled::new("e".parse().unwrap(), 1 << 20, ours.into(), Inbox::default());
        let directory = tempfile::tempdir().unwrap();
        let opened = OwnedFd::from(std::fs::File::open(directory.path()).unwrap());
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let mut write = std::fs::File::from(write);
        let mut child = Spawned { stdout: Some(read), ..child() };
        for _ in 0..10_000 {
            write.write_all(b"x").unwrap();
            assert!(journalled.move_output(&opened, &mut child, false), "output is taken although no client reads");
            journalled.report(Some(7));
        }
        let mut partings = journalled.finish(&opened, Some(7), refused());
        let (stream, outbox) = partings.first_mut().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut heard = Vec::new();
        while !outbox.is_empty() || heard.is_empty() {
            outbox.flush(stream, |_| None).unwrap();
            let _ = theirs.read_to_end(&mut heard);
        }
        // Each of them would have been at least a header and three bytes.
        assert!(heard.len() < 10_000 * 8, "everything was told: {} bytes", heard.len());
    }
}
