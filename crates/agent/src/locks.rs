//! Watches how many record locks the processes of the box hold.
//!
//! The kernel neither charges their memory to a cgroup nor limits them, so a box could take all memory of the host. A look
//! makes the kernel wait for all processors, so it is taken only after the box has spent time in the kernel.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{WaitId, WaitIdOptions};

use crate::setup::Tracker;
use crate::sys;

/// Locks that a box may hold: far more than databases take, and 4 MiB of the kernel's memory.
const LOCKS_MAX: usize = 20_000;

/// Pause between turns, while the box has processes.
const EVERY: Duration = Duration::from_secs(1);

/// Time in the kernel after which a look is due.
const SYSTEM_US_MIN: u64 = 250_000;

/// If that time is unknown, check every this many turns.
const TURNS_PER_LOOK: u64 = 5;

#[derive(Debug, Default)]
pub(crate) struct LockWatch {
    /// When to ask next, while there are processes.
    next: Option<Instant>,
    /// Time in the kernel at the last look.
    looked_at_us: u64,
    /// How often it was asked.
    turns: u64,
}

impl LockWatch {
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.next
    }

    /// Looks where that is due, and ends every process of a box that holds too many locks.
    pub(crate) fn turn(&mut self, tracker: &Tracker) {
        // An agent that is not pid 1 has a machine of its own, where this would also end processes of others.
        if !rustix::process::getpid().is_init() || !has_processes() {
            self.next = None;
            return;
        }
        let now = Instant::now();
        if self.next.is_some_and(|at| now < at) {
            return;
        }
        if self.next.is_some() && self.is_due(tracker) && locks().is_some_and(|count| count > LOCKS_MAX) {
            sys::kill_everybody();
        }
        self.next = Some(now + EVERY);
    }

    fn is_due(&mut self, tracker: &Tracker) -> bool {
        self.turns += 1;
        let Some(spent_us) = system_us(tracker) else { return self.turns.is_multiple_of(TURNS_PER_LOOK) };
        let is_due = spent_us.saturating_sub(self.looked_at_us) >= SYSTEM_US_MIN;
        if is_due {
            self.looked_at_us = spent_us;
        }
        is_due
    }
}

/// Whether anything runs here. Orphans are children of the first process.
fn has_processes() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::All, options).is_ok()
}

/// Time that all commands have spent in the kernel.
fn system_us(tracker: &Tracker) -> Option<u64> {
    let Tracker::Cgroup(directory) = tracker else { return None };
    let file = rustix::fs::openat(directory, "cpu.stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut lines = BufReader::new(File::from(file)).lines().map_while(Result::ok);
    lines.find_map(|line| line.strip_prefix("system_usec ")?.parse().ok())
}

/// Record locks of processes of the box, counted up to a little more than it may hold. Those that belong to an open file instead of a
/// process appear for all boxes alike; the filter refuses them.
fn locks() -> Option<usize> {
    let lines = BufReader::new(File::open("/proc/locks").ok()?).split(b'\n').map_while(Result::ok);
    Some(lines.filter(|line| is_record_lock(line)).take(LOCKS_MAX + 1).count())
}

fn is_record_lock(line: &[u8]) -> bool {
    line.split(u8::is_ascii_whitespace).any(|word| word == b"POSIX")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_locks_are_told_from_others() {
        for (line, is_counted) in [
            ("1: POSIX  ADVISORY  WRITE 7 00:2a:12 0 EOF", true),
            ("1: -> POSIX  ADVISORY  WRITE 9 00:2a:12 0 EOF", true),
            ("2: FLOCK  ADVISORY  WRITE 7 00:2a:13 0 EOF", false),
            ("3: OFDLCK ADVISORY  READ -1 fe:00:14 128 128", false),
            ("4: LEASE  ACTIVE    WRITE 7 fe:00:15 0 EOF", false),
            ("", false),
        ] {
            assert_eq!(is_record_lock(line.as_bytes()), is_counted, "{line}");
        }
    }

    #[test]
    fn nobody_is_watched_where_the_agent_is_not_the_first_process() {
        let mut watch = LockWatch::default();
        watch.turn(&Tracker::Ancestry);
        assert_eq!(watch.wake_at(), None);
    }
}
