//! Up to where the line relay of each managed process has delivered, and who holds it now.
//!
//! A client that comes back goes on where the last one stopped, so that no message is lost and none is told twice. It need not
//! wait until the last one is known to be dead: whoever attaches takes over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::call::{Cursor, ProcessId, ProcessInfo};
use box_core::{SessionId, TenantId};
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::limits;

/// Which managed process.
pub(super) type Key = (TenantId, SessionId, ProcessId);

/// The relays of this server.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    by_key: HashMap<Key, Arc<Slot>>,
    uses: u64,
}

#[derive(Debug)]
struct Slot {
    turn: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    place: Option<Place>,
    holder: CancellationToken,
    last_use: u64,
}

/// How far the relay of one process came.
#[derive(Debug, Clone, Copy)]
struct Place {
    cursor: Cursor,
    started_at: Timestamp,
    restarts: u32,
}

impl Place {
    /// Whether this is about that process, and not about an earlier one of the same name. One that was started again by itself
    /// has more restarts than before; one that replaced another starts to count anew.
    fn is_of(&self, info: &ProcessInfo) -> bool {
        self.started_at == info.started_at || info.restarts > self.restarts
    }
}

/// The right to relay, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    slot: Arc<Slot>,
    taken: CancellationToken,
    from: Cursor,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Relays {
    /// Takes the relay of a process over from whoever has it.
    pub(super) async fn take(&self, key: &Key, info: &ProcessInfo) -> Held {
        let slot = self.slot(key);
        let taken = CancellationToken::new();
        let before = std::mem::replace(&mut lock(&slot.state).holder, taken.clone());
        before.cancel();
        // It is never closed, so there always is a turn.
        let turn = Arc::clone(&slot.turn).acquire_owned().await.ok();
        let from = lock(&slot.state).begin(info);
        Held { slot, taken, from, _turn: turn }
    }

    /// Forgets a process that has ended.
    pub(super) fn forget(&self, key: &Key) {
        lock(&self.slots).by_key.remove(key);
    }

    fn slot(&self, key: &Key) -> Arc<Slot> {
        let mut slots = lock(&self.slots);
        slots.uses += 1;
        let uses = slots.uses;
        if !slots.by_key.contains_key(key) {
            slots.make_room();
        }
        let slot = slots.by_key.entry(key.clone()).or_insert_with(|| Arc::new(Slot::new()));
        lock(&slot.state).last_use = uses;
        Arc::clone(slot)
    }
}

impl Slots {
    /// Forgets the position that was not asked for the longest, and that nobody holds.
    fn make_room(&mut self) {
        if self.by_key.len() < limits::RELAY_POSITIONS_MAX {
            return;
        }
        let idle = self.by_key.iter().filter(|(_, slot)| slot.turn.available_permits() > 0);
        let oldest = idle.min_by_key(|(_, slot)| lock(&slot.state).last_use).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.by_key.remove(&key);
        }
    }
}

impl Slot {
    fn new() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), state: Mutex::default() }
    }
}

impl State {
    fn begin(&mut self, info: &ProcessInfo) -> Cursor {
        let known = self.place.filter(|place| place.is_of(info));
        let cursor = known.map_or(Cursor::default(), |place| place.cursor);
        self.place = Some(Place { cursor, started_at: info.started_at, restarts: info.restarts });
        cursor
    }
}

impl Held {
    /// Where to go on.
    pub(super) fn from(&self) -> Cursor {
        self.from
    }

    /// Fires when somebody else took over.
    pub(super) fn taken(&self) -> &CancellationToken {
        &self.taken
    }

    /// Remembers that everything up to here was delivered.
    pub(super) fn delivered(&self, cursor: Cursor) {
        if let Some(place) = lock(&self.slot.state).place.as_mut() {
            place.cursor = cursor;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::process;

    fn key(name: &str) -> Key {
        (TenantId::default(), name.parse().unwrap(), ProcessId::default())
    }

    fn at(stdout: u64) -> Cursor {
        Cursor { run: 0, stdout, stderr: 0 }
    }

    #[tokio::test]
    async fn the_next_client_goes_on_where_the_last_one_stopped() {
        let (relays, info) = (Relays::default(), process());
        let first = relays.take(&key("s"), &info).await;
        assert_eq!(first.from(), Cursor::default());
        first.delivered(at(10));
        drop(first);
        assert_eq!(relays.take(&key("s"), &info).await.from(), at(10));
        assert_eq!(relays.take(&key("other"), &info).await.from(), Cursor::default());
    }

    #[tokio::test]
    async fn whoever_attaches_takes_over_once_the_other_has_let_go() {
        let (relays, info) = (Arc::new(Relays::default()), process());
        let first = relays.take(&key("s"), &info).await;
        let (again, same) = (Arc::clone(&relays), info.clone());
        let second = tokio::spawn(async move { again.take(&key("s"), &same).await });
        first.taken().cancelled().await;
        first.delivered(at(5));
        drop(first);
        let second = second.await.unwrap();
        assert_eq!(second.from(), at(5), "what was delivered meanwhile counts");
        assert!(!second.taken().is_cancelled());
    }

    #[tokio::test]
    async fn another_process_of_the_same_name_starts_at_its_beginning() {
        let (relays, info) = (Relays::default(), process());
        relays.take(&key("s"), &info).await.delivered(at(10));
        let restarted = ProcessInfo { started_at: Timestamp::MAX, restarts: info.restarts + 1, ..info.clone() };
        assert_eq!(relays.take(&key("s"), &restarted).await.from(), at(10), "started again by itself");
        let replaced = ProcessInfo { started_at: Timestamp::MIN, ..info };
        assert_eq!(relays.take(&key("s"), &replaced).await.from(), Cursor::default());
    }

    #[tokio::test]
    async fn only_so_many_positions_are_kept_and_held_ones_first() {
        let (relays, info) = (Relays::default(), process());
        let held = relays.take(&key("held"), &info).await;
        for number in 0..limits::RELAY_POSITIONS_MAX + 5 {
            relays.take(&key(&number.to_string()), &info).await;
        }
        let slots = lock(&relays.slots);
        assert_eq!(slots.by_key.len(), limits::RELAY_POSITIONS_MAX);
        assert!(slots.by_key.contains_key(&key("held")) && !slots.by_key.contains_key(&key("0")));
        drop(held);
    }
}
