//! Which generation of a workspace is the current one.
//!
//! A workspace moves from one generation to the next and never back. What runs for an older one when a newer one shows itself
//! is dropped without an answer, and what it left is removed before anything of the newer one is done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::fault::{Class, Fault};

/// The current generations of all workspaces.
#[derive(Debug, Default)]
pub(crate) struct GenerationGuard {
    workspaces: Mutex<HashMap<String, Current>>,
}

/// The current generation of a workspace.
#[derive(Debug)]
struct Current {
    generation: u64,
    outdated: CancellationToken,
    requests: TaskTracker,
    older: Vec<TaskTracker>,
    cleared: Arc<OnceCell<()>>,
}

impl Current {
    fn new(generation: u64, older: Vec<TaskTracker>) -> Self {
        Self {
            generation,
            outdated: CancellationToken::new(),
            requests: TaskTracker::new(),
            older,
            cleared: Arc::default(),
        }
    }
}

/// An admitted request. The cleanup of its generation waits until this is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    generation: u64,
    outdated: CancellationToken,
    older: Vec<TaskTracker>,
    cleared: Arc<OnceCell<()>>,
    _running: TaskTrackerToken,
}

impl GenerationGuard {
    /// Lets a request in, unless its generation is over. `known` is the highest generation that has left something behind,
    /// for workspaces that are not remembered; at most `workspaces_max` are.
    pub(crate) fn enter(
        &self,
        namespace: &str,
        generation: u64,
        known: Option<u64>,
        workspaces_max: usize,
    ) -> Result<Pass, Fault> {
        let mut workspaces = self.lock();
        if !workspaces.contains_key(namespace) {
            if workspaces.len() >= workspaces_max {
                let text = format!("Box placement record capacity reached ({workspaces_max})");
                return Err(Fault::new(Class::Permission, text));
            }
            let first = Current::new(known.unwrap_or(generation).max(1), Vec::new());
            workspaces.insert(namespace.to_owned(), first);
        }
        let Some(current) = workspaces.get_mut(namespace) else { return Err(stale()) };
        if generation < current.generation {
            return Err(stale());
        }
        if generation > current.generation {
            advance(current, generation);
        }
        Ok(Pass {
            generation,
            outdated: current.outdated.clone(),
            older: current.older.clone(),
            cleared: Arc::clone(&current.cleared),
            _running: current.requests.token(),
        })
    }

    /// The current generation of a workspace, when anything was heard of it.
    pub(crate) fn current(&self, namespace: &str) -> Option<u64> {
        self.lock().get(namespace).map(|current| current.generation)
    }

    /// Fires when a generation is over; at once when it is not the current one.
    pub(crate) fn watch(&self, namespace: &str, generation: u64) -> CancellationToken {
        match self.lock().get(namespace) {
            Some(current) if current.generation == generation => current.outdated.child_token(),
            _ => {
                let over = CancellationToken::new();
                over.cancel();
                over
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Current>> {
        self.workspaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn advance(current: &mut Current, generation: u64) {
    current.outdated.cancel();
    current.requests.close();
    let mut older = std::mem::take(&mut current.older);
    older.retain(|requests| !requests.is_empty());
    older.push(current.requests.clone());
    *current = Current::new(generation, older);
}

impl Pass {
    /// Waits until the generation is over.
    pub(crate) async fn outdated(&self) {
        self.outdated.cancelled().await;
    }

    /// Refuses when the generation is over.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.outdated.is_cancelled() { Err(stale()) } else { Ok(()) }
    }

    /// Has what older generations left cleared away, once, and after the last of their requests is gone. Everybody waits for it;
    /// when it fails the next one tries again.
    pub(crate) async fn clear<F>(&self, clear: impl FnOnce(u64) -> F) -> Result<(), Fault>
    where
        F: Future<Output = Result<(), Fault>>,
    {
        let all = async || {
            for requests in &self.older {
                requests.wait().await;
            }
            clear(self.generation).await
        };
        self.cleared.get_or_try_init(all).await.copied()
    }
}

fn stale() -> Fault {
    Fault::new(Class::Permission, "Stale Box placement generation")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn enter(generation_guard: &GenerationGuard, generation: u64) -> Result<Pass, Fault> {
        generation_guard.enter("ws-a", generation, None, 10)
    }

    #[test]
    fn a_workspace_never_goes_back() {
        let generation_guard = GenerationGuard::default();
        assert_eq!(generation_guard.current("ws-a"), None);
        let first = enter(&generation_guard, 2).unwrap();
        assert_eq!(
            enter(&generation_guard, 1).unwrap_err().to_string(),
            "PermissionError: Stale Box placement generation"
        );
        let second = enter(&generation_guard, 3).unwrap();
        assert_eq!((first.check().is_err(), second.check().is_ok()), (true, true));
        assert_eq!((generation_guard.current("ws-a"), generation_guard.current("ws-b")), (Some(3), None));
    }

    #[test]
    fn what_older_generations_left_counts_after_a_restart() {
        let generation_guard = GenerationGuard::default();
        assert!(generation_guard.enter("ws-a", 4, Some(5), 10).is_err());
        assert!(generation_guard.enter("ws-a", 5, None, 10).is_ok());
    }

    #[test]
    fn only_so_many_workspaces_are_remembered() {
        let generation_guard = GenerationGuard::default();
        assert!(generation_guard.enter("ws-a", 1, None, 1).is_ok());
        let fault = generation_guard.enter("ws-b", 1, None, 1).unwrap_err();
        assert_eq!(fault.class, Class::Permission);
        assert!(generation_guard.enter("ws-a", 2, None, 1).is_ok());
    }

    #[test]
    fn whoever_watches_is_told_when_a_generation_is_over() {
        let generation_guard = GenerationGuard::default();
        assert!(generation_guard.watch("ws-a", 1).is_cancelled());
        enter(&generation_guard, 1).unwrap();
        let watched = generation_guard.watch("ws-a", 1);
        assert!(!watched.is_cancelled());
        watched.cancel();
        assert!(!generation_guard.watch("ws-a", 1).is_cancelled(), "one who watches does not end it for others");
        let again = generation_guard.watch("ws-a", 1);
        enter(&generation_guard, 2).unwrap();
        assert!(again.is_cancelled() && generation_guard.watch("ws-a", 1).is_cancelled());
    }

    #[tokio::test]
    async fn clearing_waits_for_older_requests_and_happens_once() {
        let generation_guard = GenerationGuard::default();
        let (oldest, old) = (enter(&generation_guard, 1).unwrap(), enter(&generation_guard, 2).unwrap());
        let (one, other) = (enter(&generation_guard, 3).unwrap(), enter(&generation_guard, 3).unwrap());
        let cleared = AtomicU32::new(0);
        let clear = |_| async {
            cleared.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let mut waiting = Box::pin(async { tokio::join!(one.clear(clear), other.clear(clear)) });
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(oldest);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(old);
        assert_eq!(waiting.await, (Ok(()), Ok(())));
        assert_eq!(cleared.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_clearing_that_failed_is_tried_again() {
        let generation_guard = GenerationGuard::default();
        let pass = enter(&generation_guard, 1).unwrap();
        let fault = Fault::new(Class::Box, "no");
        assert_eq!(pass.clear(|_| async { Err(fault.clone()) }).await, Err(fault.clone()));
        assert_eq!(pass.clear(|_| async { Ok(()) }).await, Ok(()));
    }
}
