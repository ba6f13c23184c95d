//! Clients that pace a held command: its output waits for them, so that they can read all of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use box_wire::limits::PACERS_PER_EXEC_MAX;
use box_wire::{Kind, ReadPosition, frame};
use rustix::event::PollFlags;

use super::Inbox;

/// How long the first one is waited for, from when there is as much as output may be ahead.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// Those for whom output waits. The slowest of them counts.
#[derive(Debug)]
pub(super) struct Pacing {
    /// How far output may be ahead. What the journal keeps is more than that, so nothing is lost to them.
    window_bytes: u64,
    pacers: Vec<Pacer>,
    first: First,
}

/// Whether a first client has attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// None has, and none is needed.
    Unneeded,
    /// None has; output waits for one until this instant.
    ExpectedUntil(Instant),
    /// One has, or the wait for it is over.
    Past,
}

/// A stream on which a client reports how far it has read.
#[derive(Debug)]
struct Pacer {
    stream: OwnedFd,
    inbox: Inbox,
    taken: ReadPosition,
}

/// Which streams of output may be taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) stdout: bool,
    pub(super) stderr: bool,
}

impl Room {
    /// No client holds anything back.
    pub(super) const BOTH: Self = Self { stdout: true, stderr: true };
}

impl Pacing {
    pub(super) fn new(journal_bytes_max: u64) -> Self {
        Self { window_bytes: journal_bytes_max / 2, pacers: Vec::new(), first: First::Unneeded }
    }

    pub(super) fn streams(&self) -> usize {
        self.pacers.len()
    }

    /// Lets output wait for another one. The stream comes back when there are too many.
    pub(super) fn attach(&mut self, stream: OwnedFd, inbox: Inbox, taken: ReadPosition) -> Result<(), OwnedFd> {
        if self.pacers.len() >= PACERS_PER_EXEC_MAX {
            return Err(stream);
        }
        self.first = First::Past;
        self.pacers.push(Pacer { stream, inbox, taken });
        Ok(())
    }

    pub(super) fn interests<'a>(&'a self, add: &mut impl FnMut(BorrowedFd<'a>, PollFlags)) {
        for pacer in &self.pacers {
            add(pacer.stream.as_fd(), PollFlags::IN);
        }
    }

    /// When to look again although nothing happens.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        if let First::ExpectedUntil(at) = self.first { Some(at) } else { None }
    }

    /// Hears how far they are. One that hung up or makes no sense is not waited for any more.
    pub(super) fn hear(&mut self) {
        self.pacers.retain_mut(|pacer| pacer.hear().is_some());
        if self.wake_at().is_some_and(|at| Instant::now() >= at) {
            self.first = First::Past;
        }
    }

    /// Notes that so much has come. When that is as much as may be, the first one has to come soon: nothing else wakes us then.
    pub(super) fn note(&mut self, bytes: (u64, u64)) {
        if self.first == First::Unneeded && self.room(bytes) != Room::BOTH {
            self.first = First::ExpectedUntil(Instant::now() + FIRST_WAIT);
        }
    }

    /// What may be taken when so much has come.
    pub(super) fn room(&self, (stdout_bytes, stderr_bytes): (u64, u64)) -> Room {
        let may = |bytes: u64, taken: fn(&ReadPosition) -> u64| {
            let slowest = self.pacers.iter().map(|pacer| taken(&pacer.taken)).min();
            let slowest = slowest.or((self.first != First::Past).then_some(0));
            slowest.is_none_or(|taken| bytes < taken.saturating_add(self.window_bytes))
        };
        Room {
            stdout: may(stdout_bytes, |taken| taken.stdout_bytes),
            stderr: may(stderr_bytes, |taken| taken.stderr_bytes),
        }
    }
}

impl Pacer {
    /// Nothing when it is over.
    fn hear(&mut self) -> Option<()> {
        let filled = self.inbox.fill(&self.stream);
        while let Some((kind, payload)) = self.inbox.next().ok()? {
            let told = (kind == Kind::Taken).then(|| frame::decode::<ReadPosition>(kind, &payload).ok())??;
            self.taken.stdout_bytes = self.taken.stdout_bytes.max(told.stdout_bytes);
            self.taken.stderr_bytes = self.taken.stderr_bytes.max(told.stderr_bytes);
        }
        filled.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn taken(stdout_bytes: u64, stderr_bytes: u64) -> ReadPosition {
        ReadPosition { stdout_bytes, stderr_bytes }
    }

    fn pacer(pacing: &mut Pacing, at: ReadPosition) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        pacing.attach(ours.into(), Inbox::default(), at).unwrap();
        theirs
    }

    #[test]
    fn output_waits_for_the_slowest_and_for_each_stream_by_itself() {
        let mut pacing = Pacing::new(200);
        let mut first = pacer(&mut pacing, taken(0, 0));
        let second = pacer(&mut pacing, taken(50, 50));
        assert_eq!(pacing.room((99, 99)), Room::BOTH);
        assert_eq!(pacing.room((100, 99)), Room { stdout: false, stderr: true });
        first.write_all(&frame::encode(Kind::Taken, &taken(80, 0)).unwrap()).unwrap();
        pacing.hear();
        assert_eq!(pacing.room((149, 100)), Room { stdout: true, stderr: false });
        assert_eq!(pacing.room((150, 0)), Room { stdout: false, stderr: true });
        drop(second);
        pacing.hear();
        assert_eq!(pacing.room((150, 0)), Room::BOTH);
        drop(first);
        pacing.hear();
        assert_eq!(pacing.room((u64::MAX, u64::MAX)), Room::BOTH, "no client is left to wait for");
    }

    #[test]
    fn the_first_one_is_waited_for_a_while() {
        let mut pacing = Pacing::new(200);
        pacing.note((99, 99));
        assert_eq!((pacing.room((99, 99)), pacing.wake_at()), (Room::BOTH, None), "no client is needed");
        pacing.note((100, 0));
        assert_eq!(pacing.room((100, 0)), Room { stdout: false, stderr: true });
        assert!(pacing.wake_at().is_some());
        pacing.first = First::ExpectedUntil(Instant::now());
        pacing.hear();
        assert_eq!((pacing.room((100, 100)), pacing.wake_at()), (Room::BOTH, None));
    }

    #[test]
    fn one_who_says_something_else_is_not_waited_for() {
        let mut pacing = Pacing::new(200);
        let mut odd = pacer(&mut pacing, taken(0, 0));
        odd.write_all(&frame::encode(Kind::Request, &box_wire::Request::Ping).unwrap()).unwrap();
        pacing.hear();
        assert_eq!(pacing.streams(), 0);
    }

    #[test]
    fn there_are_only_so_many() {
        let mut pacing = Pacing::new(200);
        let others: Vec<_> = (0..PACERS_PER_EXEC_MAX).map(|_| pacer(&mut pacing, taken(0, 0))).collect();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(pacing.attach(ours.into(), Inbox::default(), taken(0, 0)).is_err());
        drop(others);
    }
}
