//! Watchers that are asked from time to time, by clients that cannot listen. Each keeps what happened until it is asked, up to a
//! bound, and ends when nobody asks for long.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::tasks::Start as _;
use box_e2b_wire::filesystem::FilesystemEvent;
use box_e2b_wire::{Code, RpcError, SandboxId};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::events::Followed;
use crate::app::App;
use crate::limits::{
    WATCHER_EVENT_BYTES, WATCHER_EVENTS_BYTES_MAX, WATCHER_SILENCE_MAX, WATCHERS_MAX, WATCHERS_PER_SANDBOX_MAX,
};

/// Those of all sandboxes. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Watchers(Arc<Mutex<HashMap<Key, Watcher>>>);

type Key = (SandboxId, String);

#[derive(Debug, Default)]
struct Watcher {
    kept: Kept,
    asked: Option<Instant>,
    /// Ends what follows the directory, once there is something.
    following: Option<DropGuard>,
}

/// What happened and was not asked for yet; the newest of it when it was too much.
#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<FilesystemEvent>,
    bytes: usize,
}

/// A place for one more, which is free again unless it is used.
#[derive(Debug)]
pub(super) struct WatcherSlot {
    watchers: Watchers,
    key: Key,
    used: bool,
}

impl Watchers {
    /// A place for one more of a sandbox.
    pub(super) fn reserve(&self, sandbox: &SandboxId) -> Result<WatcherSlot, RpcError> {
        let mut all = self.lock();
        let of_sandbox = all.keys().filter(|(known, _)| known == sandbox).count();
        if of_sandbox >= WATCHERS_PER_SANDBOX_MAX || all.len() >= WATCHERS_MAX {
            let message = format!("there are {of_sandbox} watchers in this sandbox; remove those that nobody asks");
            return Err(RpcError::new(Code::ResourceExhausted, message));
        }
        let key = (sandbox.clone(), Uuid::now_v7().simple().to_string());
        all.insert(key.clone(), Watcher::default());
        drop(all);
        Ok(WatcherSlot { watchers: self.clone(), key, used: false })
    }

    /// What happened since it was last asked.
    pub(super) fn take(&self, sandbox: &SandboxId, id: &str) -> Result<Vec<FilesystemEvent>, RpcError> {
        let mut all = self.lock();
        let watcher = all.get_mut(&(sandbox.clone(), id.to_owned())).ok_or_else(|| unknown(id))?;
        watcher.asked = Some(Instant::now());
        Ok(std::mem::take(&mut watcher.kept).events.into())
    }

    /// Ends one.
    pub(super) fn remove(&self, sandbox: &SandboxId, id: &str) -> Result<(), RpcError> {
        let removed = self.lock().remove(&(sandbox.clone(), id.to_owned()));
        removed.map(drop).ok_or_else(|| unknown(id))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Watcher>> {
        // Nothing in here is left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, key: &Key, event: FilesystemEvent) {
        if let Some(watcher) = self.lock().get_mut(key) {
            watcher.kept.push(event);
        }
    }

    /// Returns when nobody has asked for too long.
    async fn silence(&self, key: &Key) {
        let begun = Instant::now();
        loop {
            let asked = self.lock().get(key).and_then(|watcher| watcher.asked).unwrap_or(begun);
            if asked.elapsed() >= WATCHER_SILENCE_MAX {
                return;
            }
            tokio::time::sleep_until(asked + WATCHER_SILENCE_MAX).await;
        }
    }

    /// Keeps what happens until it is told to stop, or nobody asks.
    async fn follow(self, key: Key, mut followed: Followed, stop: CancellationToken) {
        let events = async {
            while let Ok(Some(event)) = followed.next().await {
                self.keep(&key, event);
            }
            // What happened before can still be asked for.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = events => {}
            () = stop.cancelled() => {}
            () = self.silence(&key) => {}
        }
        self.lock().remove(&key);
    }
}

impl WatcherSlot {
    /// Uses it, and says under which name.
    pub(super) fn keep(mut self, followed: Followed, app: &App) -> String {
        let stop = app.closing().child_token();
        if let Some(watcher) = self.watchers.lock().get_mut(&self.key) {
            watcher.following = Some(stop.clone().drop_guard());
        }
        self.used = true;
        app.tasks().start(self.watchers.clone().follow(self.key.clone(), followed, stop));
        self.key.1.clone()
    }
}

impl Drop for WatcherSlot {
    fn drop(&mut self) {
        if !self.used {
            self.watchers.lock().remove(&self.key);
        }
    }
}

impl Kept {
    fn push(&mut self, event: FilesystemEvent) {
        self.bytes += bytes_of(&event);
        self.events.push_back(event);
        while self.bytes > WATCHER_EVENTS_BYTES_MAX {
            let Some(oldest) = self.events.pop_front() else { return };
            self.bytes -= bytes_of(&oldest);
        }
    }
}

fn bytes_of(event: &FilesystemEvent) -> usize {
    let entry = event.entry.as_ref().map_or(0, |entry| {
        let metadata: usize = entry.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        entry.path.len() + entry.name.len() + entry.symlink_target.as_ref().map_or(0, String::len) + metadata
    });
    WATCHER_EVENT_BYTES + event.name.len() + entry
}

fn unknown(id: &str) -> RpcError {
    RpcError::new(Code::NotFound, format!("watcher {id:.64?} not found"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(id: &str) -> SandboxId {
        id.parse().unwrap()
    }

    fn event(name: &str) -> FilesystemEvent {
        FilesystemEvent { name: name.to_owned(), ..FilesystemEvent::default() }
    }

    /// A watcher that follows nothing.
    fn made(watchers: &Watchers, sandbox: &SandboxId) -> Key {
        let mut place = watchers.reserve(sandbox).unwrap();
        place.used = true;
        place.key.clone()
    }

    #[test]
    fn what_happened_is_told_once_and_to_its_own_sandbox_only() {
        let (watchers, one, other) = (Watchers::default(), sandbox("one"), sandbox("other"));
        let key = made(&watchers, &one);
        watchers.keep(&key, event("a"));
        assert_eq!(watchers.take(&other, &key.1).unwrap_err().code, Code::NotFound);
        assert_eq!(watchers.take(&one, &key.1).unwrap(), [event("a")]);
        assert_eq!(watchers.take(&one, &key.1).unwrap(), []);
        assert_eq!(watchers.remove(&other, &key.1).unwrap_err().code, Code::NotFound);
        watchers.remove(&one, &key.1).unwrap();
        assert_eq!(watchers.take(&one, &key.1).unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn there_are_only_so_many_of_a_sandbox_and_a_place_that_is_not_used_is_free() {
        let (watchers, one) = (Watchers::default(), sandbox("one"));
        for _ in 0..WATCHERS_PER_SANDBOX_MAX {
            drop(watchers.reserve(&one).unwrap());
            made(&watchers, &one);
        }
        assert_eq!(watchers.reserve(&one).unwrap_err().code, Code::ResourceExhausted);
        assert!(watchers.reserve(&sandbox("other")).is_ok());
    }

    #[test]
    fn of_too_much_the_newest_is_kept() {
        let mut kept = Kept::default();
        let count = 2 * WATCHER_EVENTS_BYTES_MAX / WATCHER_EVENT_BYTES;
        for number in 0..count {
            kept.push(event(&number.to_string()));
        }
        assert!(kept.bytes <= WATCHER_EVENTS_BYTES_MAX && kept.events.len() < count);
        assert_eq!(kept.events.back().unwrap().name, (count - 1).to_string());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watcher_that_nobody_asks_is_given_up() {
        let (watchers, one) = (Watchers::default(), sandbox("one"));
        let key = made(&watchers, &one);
        let begun = Instant::now();
        let asking = async {
            tokio::time::sleep(WATCHER_SILENCE_MAX / 2).await;
            watchers.take(&one, &key.1).unwrap();
        };
        tokio::join!(watchers.silence(&key), asking);
        assert!(begun.elapsed() >= WATCHER_SILENCE_MAX + WATCHER_SILENCE_MAX / 2);
    }
}
