//! Ends a box whose host stays away.
//!
//! A server that stops, or is killed, leaves its boxes to the next server. If none comes, nothing else can remove them, so
//! each box ends itself after being left alone for its idle time. A box that has a fixed end does so then, whatever runs in it.

use std::time::{Duration, Instant};

/// How long an overdue box waits for its host. A paused container notices that it is overdue when the host resumes it, and the
/// host may need a moment to dial.
const GRACE: Duration = Duration::from_secs(5);

/// Whom the box has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Its host.
    Host,
    /// No host, but something runs.
    Busy,
    /// No stream is open, and nothing runs.
    Alone,
}

/// How long the box may be without its host, and since when it has been.
#[derive(Debug, Default)]
pub(crate) struct Absence {
    idle: Option<Duration>,
    ends_at: Option<Instant>,
    alone_since: Option<Instant>,
    /// When the box ends if its host is not there.
    due_at: Option<Instant>,
    /// When that time was found to be over.
    overdue_since: Option<Instant>,
}

impl Absence {
    /// Sets how long the box may be left alone, and its time left whatever runs in it. Without this call, the host may stay away
    /// forever.
    pub(crate) fn allow(&mut self, idle: Duration, left: Option<Duration>, now: Instant) {
        self.idle = Some(idle);
        self.ends_at = left.and_then(|left| now.checked_add(left));
    }

    /// Records the current state.
    pub(crate) fn note(&mut self, presence: Presence, now: Instant) {
        self.alone_since = (presence == Presence::Alone).then(|| self.alone_since.unwrap_or(now));
        let idle_end = self.alone_since.zip(self.idle).and_then(|(since, idle)| since.checked_add(idle));
        let end = idle_end.into_iter().chain(self.ends_at).min();
        self.due_at = end.filter(|_| presence != Presence::Host);
        let is_overdue = self.due_at.is_some_and(|at| at <= now);
        self.overdue_since = is_overdue.then(|| self.overdue_since.unwrap_or(now));
    }

    /// When to look again, if nothing happens before.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.overdue_since.map_or(self.due_at, |since| since.checked_add(GRACE))
    }

    /// Whether the host stayed away for too long.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.overdue_since.is_some() && self.wake_at().is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);
    const IDLE: Duration = Duration::from_mins(5);

    /// Notes this presence at a moment and when the grace is over, and says whether the box ends then.
    fn ends(absence: &mut Absence, presence: Presence, at: Instant) -> bool {
        absence.note(presence, at);
        let ends_at_once = absence.is_over(at);
        absence.note(presence, at + GRACE);
        !ends_at_once && absence.is_over(at + GRACE)
    }

    #[test]
    fn only_a_box_that_is_left_alone_for_its_idle_time_ends() {
        let start = Instant::now();
        let mut absence = Absence::default();
        assert!(!ends(&mut absence, Presence::Alone, start), "an older host sets no limit");
        assert!(!ends(&mut absence, Presence::Alone, start + 1000 * IDLE), "and may come back at any time");
        let mut absence = Absence::default();
        absence.note(Presence::Alone, start);
        absence.allow(IDLE, None, start);
        absence.note(Presence::Alone, start + 4 * MINUTE);
        assert_eq!(absence.wake_at(), Some(start + IDLE), "it counts from the moment the host left");
        assert!(!absence.is_over(start + 4 * MINUTE) && ends(&mut absence, Presence::Alone, start + IDLE));
        for presence in [Presence::Host, Presence::Busy] {
            assert!(!ends(&mut absence, presence, start + 1000 * IDLE), "{presence:?}");
        }
        absence.note(Presence::Alone, start + 2000 * IDLE);
        assert_eq!(absence.wake_at(), Some(start + 2001 * IDLE));
    }

    #[test]
    fn a_box_ends_at_its_end_whatever_runs_in_it_but_not_while_its_host_is_there() {
        let start = Instant::now();
        let mut absence = Absence::default();
        absence.allow(Duration::from_millis(u64::MAX), Some(MINUTE), start);
        absence.note(Presence::Busy, start);
        assert_eq!(absence.wake_at(), Some(start + MINUTE));
        assert!(!ends(&mut absence, Presence::Busy, start + MINUTE / 2));
        assert!(!ends(&mut absence, Presence::Host, start + 2 * MINUTE));
        assert_eq!(absence.wake_at(), None);
        for presence in [Presence::Alone, Presence::Busy] {
            assert!(ends(&mut absence, presence, start + 3 * MINUTE), "{presence:?}");
            absence.note(Presence::Host, start + 3 * MINUTE);
        }
        absence.allow(IDLE, None, start);
        assert!(!ends(&mut absence, Presence::Busy, start + 1000 * IDLE), "the last request counts");
    }

    #[test]
    fn a_box_that_finds_itself_overdue_waits_for_its_host() {
        let start = Instant::now();
        let mut absence = Absence::default();
        absence.allow(IDLE, Some(IDLE), start);
        absence.note(Presence::Alone, start);
        // It was paused meanwhile.
        let resumed = start + 100 * IDLE;
        absence.note(Presence::Alone, resumed);
        assert!(!absence.is_over(resumed) && absence.wake_at() == Some(resumed + GRACE));
        absence.note(Presence::Host, resumed + MINUTE);
        assert!(!absence.is_over(resumed + MINUTE));
    }

    #[test]
    fn the_last_word_counts_and_no_time_is_too_long() {
        let start = Instant::now();
        let mut absence = Absence::default();
        absence.allow(IDLE, None, start);
        absence.note(Presence::Alone, start);
        let forever = Duration::from_millis(u64::MAX);
        absence.allow(forever, Some(forever), start);
        assert!(!ends(&mut absence, Presence::Alone, start + Duration::from_hours(24)));
        absence.allow(Duration::ZERO, None, start);
        assert!(ends(&mut absence, Presence::Alone, start + Duration::from_hours(25)));
    }
}
