//! Whose turn it is: cells of one context run one after another, and not too many wait.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use box_core::{SessionId, TenantId};
use jiff::Timestamp;
use tokio::sync::{MutexGuard, OwnedMutexGuard};

use crate::limits;

/// Which context of which sandbox.
type Key = (TenantId, SessionId, String);

/// The turns of all contexts.
#[derive(Debug, Default)]
pub(crate) struct CellTurns(Mutex<HashMap<Key, Arc<Turn>>>);

/// The turns of one context.
#[derive(Debug, Default)]
pub(super) struct Turn {
    running: Arc<tokio::sync::Mutex<Left>>,
    starting: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
    /// When the process was started that this server knows.
    met: Mutex<Option<Timestamp>>,
}

/// What one cell leaves to the next.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Whether the process was started again behind the back of whoever comes next.
    pub(super) is_new: bool,
}

/// A place in the line.
#[derive(Debug)]
pub(super) struct TurnTicket(Arc<Turn>);

impl CellTurns {
    /// The turns of a context.
    pub(super) fn of(&self, tenant: &TenantId, session: &SessionId, context: &str) -> Arc<Turn> {
        // Every change is one step, so what a panicking thread left is whole.
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= limits::CONTEXTS_REMEMBERED_MAX {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        let key = (tenant.clone(), session.clone(), context.to_owned());
        Arc::clone(turns.entry(key).or_default())
    }
}

impl Turn {
    /// A place in the line, unless too many wait.
    pub(super) fn queue(self: &Arc<Self>) -> Option<TurnTicket> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let place = TurnTicket(Arc::clone(self));
        (before < limits::CELLS_WAITING_MAX).then_some(place)
    }

    /// Whether this server knows the process that was started then. One that it does not know may be busy with what somebody asked of
    /// it before us, or with what was only half said.
    pub(super) fn knows(&self, started_at: Timestamp) -> bool {
        *self.met.lock().unwrap_or_else(PoisonError::into_inner) == Some(started_at)
    }

    /// The process that was started then is known from now on.
    pub(super) fn meet(&self, started_at: Timestamp) {
        *self.met.lock().unwrap_or_else(PoisonError::into_inner) = Some(started_at);
    }

    /// Alone among those who look whether the context runs, and start it.
    pub(super) async fn starting(&self) -> MutexGuard<'_, ()> {
        self.starting.lock().await
    }
}

impl TurnTicket {
    /// Waits for the turn, which lasts as long as what is given.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<Left> {
        Arc::clone(&self.0.running).lock_owned().await
    }
}

impl Drop for TurnTicket {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(turns: &CellTurns, context: &str) -> Arc<Turn> {
        turns.of(&TenantId::default(), &"s".parse().unwrap(), context)
    }

    #[tokio::test]
    async fn a_context_has_one_turn_and_others_have_theirs() {
        let turns = CellTurns::default();
        let first = turn(&turns, "a").queue().unwrap();
        let held = first.turn().await;
        assert!(turn(&turns, "b").queue().unwrap().0.running.try_lock().is_ok());
        assert!(turn(&turns, "a").running.try_lock().is_err());
        drop(held);
        assert!(turn(&turns, "a").running.try_lock().is_ok());
    }

    #[test]
    fn only_so_many_wait_and_who_leaves_makes_room() {
        let turns = CellTurns::default();
        let mut places: Vec<_> = (0..limits::CELLS_WAITING_MAX).map(|_| turn(&turns, "a").queue().unwrap()).collect();
        assert!(turn(&turns, "a").queue().is_none());
        assert!(turn(&turns, "a").queue().is_none(), "whoever was refused does not count");
        places.pop();
        assert!(turn(&turns, "a").queue().is_some());
    }

    #[test]
    fn a_process_is_known_until_there_is_another() {
        let turns = CellTurns::default();
        let (first, second) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        assert!(!turn(&turns, "a").knows(first));
        let held = turn(&turns, "a");
        held.meet(first);
        assert!(turn(&turns, "a").knows(first) && !turn(&turns, "a").knows(second));
        assert!(!turn(&turns, "b").knows(first));
    }

    #[test]
    fn contexts_that_nobody_uses_are_forgotten_when_there_are_many() {
        let turns = CellTurns::default();
        let kept = turn(&turns, "kept").queue();
        for number in 0..limits::CONTEXTS_REMEMBERED_MAX * 2 {
            turn(&turns, &number.to_string());
        }
        assert!(turns.0.lock().unwrap().len() <= limits::CONTEXTS_REMEMBERED_MAX);
        assert!(turns.0.lock().unwrap().keys().any(|key| key.2 == "kept"));
        drop(kept);
    }
}
