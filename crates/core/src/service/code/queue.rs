//! One queue for each code context: its cells run one after another, and a bounded number of them waits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::{MutexGuard, OwnedMutexGuard};

use crate::store::SessionKey;
use crate::{Error, Result, limits};

/// The queues of all contexts, by session and id of the context.
#[derive(Debug, Default)]
pub(in crate::service) struct ContextQueues(Mutex<HashMap<(SessionKey, String), Arc<ContextQueue>>>);

/// The queue of one context.
#[derive(Debug, Default)]
pub(super) struct ContextQueue {
    running: Arc<tokio::sync::Mutex<LastRun>>,
    starting: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
    /// Start time of the process that this server started or has interrupted before.
    known_start: Mutex<Option<Timestamp>>,
}

/// What the previous cell of a context leaves to the next one.
#[derive(Debug, Default)]
pub(super) struct LastRun {
    /// The process was restarted, and the callers of the context do not know that yet.
    pub(super) was_restarted: bool,
}

/// A place in a queue.
#[derive(Debug)]
pub(super) struct QueueTicket(Arc<ContextQueue>);

impl ContextQueues {
    /// The queue of a context.
    pub(super) fn of(&self, session: &SessionKey, context: &str) -> Arc<ContextQueue> {
        // Every change is one step, so what a panicking thread left is whole.
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.len() >= limits::CODE_QUEUES_MAX {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        Arc::clone(queues.entry((session.clone(), context.to_owned())).or_default())
    }
}

impl ContextQueue {
    /// A place in the queue, unless it is full.
    pub(super) fn join(self: &Arc<Self>) -> Result<QueueTicket> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let ticket = QueueTicket(Arc::clone(self));
        if before < limits::CODE_CELLS_WAITING_MAX {
            return Ok(ticket);
        }
        Err(Error::Capacity {
            what: "waiting cell of this code context".to_owned(),
            limit: limits::CODE_CELLS_WAITING_MAX,
            fix: "wait for one of them to end, or use another context".to_owned(),
        })
    }

    /// Whether this server knows the process that was started at that time. An unknown one may still run a cell that a previous
    /// server passed to it, or hold half of a request.
    pub(super) fn knows(&self, started_at: Timestamp) -> bool {
        *self.known_start.lock().unwrap_or_else(PoisonError::into_inner) == Some(started_at)
    }

    /// Records that the process that was started at that time is known.
    pub(super) fn remember(&self, started_at: Timestamp) {
        *self.known_start.lock().unwrap_or_else(PoisonError::into_inner) = Some(started_at);
    }

    /// Held by the one caller that checks whether the context runs, and starts it.
    pub(super) async fn starting(&self) -> MutexGuard<'_, ()> {
        self.starting.lock().await
    }
}

impl QueueTicket {
    /// Waits until the cells before this one have ended. The context is the caller's while it holds the guard.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<LastRun> {
        Arc::clone(&self.0.running).lock_owned().await
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TenantId;

    fn queue(queues: &ContextQueues, context: &str) -> Arc<ContextQueue> {
        queues.of(&SessionKey { tenant: TenantId::default(), id: "s".parse().unwrap() }, context)
    }

    #[tokio::test]
    async fn a_context_has_one_turn_and_others_have_theirs() {
        let queues = ContextQueues::default();
        let first = queue(&queues, "a").join().unwrap();
        let held = first.turn().await;
        assert!(queue(&queues, "b").join().unwrap().0.running.try_lock().is_ok());
        assert!(queue(&queues, "a").running.try_lock().is_err());
        drop(held);
        assert!(queue(&queues, "a").running.try_lock().is_ok());
    }

    #[test]
    fn only_so_many_wait_and_who_leaves_makes_room() {
        let queues = ContextQueues::default();
        let mut tickets: Vec<_> =
            (0..limits::CODE_CELLS_WAITING_MAX).map(|_| queue(&queues, "a").join().unwrap()).collect();
        assert!(matches!(queue(&queues, "a").join(), Err(Error::Capacity { .. })));
        assert!(queue(&queues, "a").join().is_err(), "a refused caller does not count");
        tickets.pop();
        assert!(queue(&queues, "a").join().is_ok());
    }

    #[test]
    fn a_process_is_known_until_there_is_another() {
        let queues = ContextQueues::default();
        let (first, second) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        assert!(!queue(&queues, "a").knows(first));
        let held = queue(&queues, "a");
        held.remember(first);
        assert!(queue(&queues, "a").knows(first) && !queue(&queues, "a").knows(second));
        assert!(!queue(&queues, "b").knows(first));
    }

    #[test]
    fn unused_queues_are_dropped_when_there_are_many() {
        let queues = ContextQueues::default();
        let kept = queue(&queues, "kept").join();
        for number in 0..limits::CODE_QUEUES_MAX * 2 {
            queue(&queues, &number.to_string());
        }
        assert!(queues.0.lock().unwrap().len() <= limits::CODE_QUEUES_MAX);
        assert!(queues.0.lock().unwrap().keys().any(|(_, context)| context == "kept"));
        drop(kept);
    }
}
