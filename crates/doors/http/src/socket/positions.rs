//! How far the line relay of each managed process has delivered, and which clients hold it or wait for it.
//!
//! A client that reconnects continues where the last one stopped, so that each message is delivered once. One client
//! holds a relay at a time; the next one chooses whether it waits in a line, is refused, or takes over.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::call::{Cursor, ProcessId, ProcessInfo};
use box_core::{SessionId, TenantId};
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::limits;

/// Which managed process.
pub(super) type Key = (TenantId, SessionId, ProcessId);

/// What a client wants if another one is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// To wait for its turn.
    Wait,
    /// A refusal.
    Refuse,
    /// To detach the other client and have the relay now.
    TakeOver,
}

/// Why a client cannot even wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// Another client is attached.
    Attached,
    /// Too many wait already.
    Crowded,
}

/// The relays of this server.
#[derive(Debug, Default)]
pub struct Relays {
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    by_key: HashMap<Key, Arc<Slot>>,
    uses: u64,
}

#[derive(Debug, Default)]
struct Slot {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    place: Option<RelayPosition>,
    holder: Option<CancellationToken>,
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
    tickets: u64,
    last_use: u64,
}

/// How far the relay of one process came.
#[derive(Debug, Clone, Copy)]
struct RelayPosition {
    cursor: Cursor,
    started_at: Timestamp,
    restarts: u32,
}

impl RelayPosition {
    /// Whether this is about that process, and not about an earlier one of the same name. A process that was restarted
    /// has more restarts than before; a process that replaced another counts from zero.
    fn is_of(&self, info: &ProcessInfo) -> bool {
        self.started_at == info.started_at || info.restarts > self.restarts
    }
}

/// A place in the line for a relay, given up when it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    slot: Arc<Slot>,
    number: u64,
    called: Option<oneshot::Receiver<()>>,
    /// Whether the next client owns the slot now.
    is_handed_on: bool,
}

/// The right to relay, until it is dropped.
#[derive(Debug)]
pub(super) struct RelayLease {
    slot: Arc<Slot>,
    taken: CancellationToken,
    from: Cursor,
}

impl Relays {
    /// Stands in line for the relay of a process.
    pub(super) fn join(&self, key: &Key, info: &ProcessInfo, entry: Entry) -> Result<Ticket, Busy> {
        let mut slots = lock(&self.slots);
        let slot = slots.slot(key);
        let (number, called) = lock(&slot.state).join(info, entry)?;
        Ok(Ticket { slot, number, called, is_handed_on: false })
    }

    /// Forgets a process that has ended, as far as `held` is about it.
    pub(super) fn forget(&self, key: &Key, held: &RelayLease) {
        let mut slots = lock(&self.slots);
        if slots.by_key.get(key).is_some_and(|slot| Arc::ptr_eq(slot, &held.slot)) {
            slots.by_key.remove(key);
        }
    }
}

impl Slots {
    fn slot(&mut self, key: &Key) -> Arc<Slot> {
        self.uses += 1;
        let uses = self.uses;
        if !self.by_key.contains_key(key) {
            self.make_room();
        }
        let slot = self.by_key.entry(key.clone()).or_default();
        lock(&slot.state).last_use = uses;
        Arc::clone(slot)
    }

    /// Drops the position that was unused for the longest time, among those without a client.
    fn make_room(&mut self) {
        if self.by_key.len() < limits::RELAY_POSITIONS_MAX {
            return;
        }
        let idle = self.by_key.iter().filter(|(_, slot)| lock(&slot.state).is_idle());
        let oldest = idle.min_by_key(|(_, slot)| lock(&slot.state).last_use).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.by_key.remove(&key);
        }
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.holder.is_none() && self.waiting.is_empty()
    }

    /// Gives out a number, and what to wait for unless it is its turn at once.
    fn join(&mut self, info: &ProcessInfo, entry: Entry) -> Result<(u64, Option<oneshot::Receiver<()>>), Busy> {
        self.tickets += 1;
        if self.is_idle() {
            self.holder = Some(CancellationToken::new());
            return Ok((self.tickets, None));
        }
        // A client that holds the relay of an earlier process of that name leaves in a moment.
        let is_same = self.place.is_none_or(|place| place.is_of(info));
        if entry == Entry::Refuse && is_same {
            return Err(Busy::Attached);
        }
        if entry != Entry::TakeOver && self.waiting.len() >= limits::RELAY_WAITING_MAX {
            return Err(Busy::Crowded);
        }
        let (call, called) = oneshot::channel();
        if entry == Entry::TakeOver {
            self.waiting.push_front((self.tickets, call));
            self.holder.iter().for_each(CancellationToken::cancel);
        } else {
            self.waiting.push_back((self.tickets, call));
        }
        Ok((self.tickets, Some(called)))
    }

    /// Lets the next one in line have it.
    fn pass_on(&mut self) {
        self.holder = None;
        while let Some((_, call)) = self.waiting.pop_front() {
            self.holder = Some(CancellationToken::new());
            if call.send(()).is_ok() {
                return;
            }
            self.holder = None;
        }
    }

    /// Leaves the line, or gives up what was just got.
    fn leave(&mut self, number: u64) {
        let before = self.waiting.len();
        self.waiting.retain(|(other, _)| *other != number);
        if self.waiting.len() == before {
            self.pass_on();
        }
    }

    fn begin(&mut self, info: &ProcessInfo) -> Cursor {
        let known = self.place.filter(|place| place.is_of(info));
        let cursor = known.map_or(Cursor::default(), |place| place.cursor);
        self.place = Some(RelayPosition { cursor, started_at: info.started_at, restarts: info.restarts });
        cursor
    }
}

impl Ticket {
    /// Waits for its turn. Waiting may be given up and begun again.
    pub(super) async fn turn(&mut self) {
        if let Some(called) = &mut self.called {
            // The other end is only dropped with the line, which holds this ticket.
            let _ = called.await;
            self.called = None;
        }
    }

    /// Begins, when it is its turn.
    pub(super) fn begin(mut self, info: &ProcessInfo) -> RelayLease {
        self.is_handed_on = true;
        let slot = Arc::clone(&self.slot);
        let (taken, from) = {
            let mut state = lock(&slot.state);
            (state.holder.clone().unwrap_or_default(), state.begin(info))
        };
        RelayLease { slot, taken, from }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_handed_on {
            lock(&self.slot.state).leave(self.number);
        }
    }
}

impl RelayLease {
    /// The cursor to resume from.
    pub(super) fn from(&self) -> Cursor {
        self.from
    }

    /// Fires when another client takes over.
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

impl Drop for RelayLease {
    fn drop(&mut self) {
        lock(&self.slot.state).pass_on();
    }
}

/// Whether both are about one process, which may have been started again by itself in between.
pub(super) fn is_same(before: &ProcessInfo, now: &ProcessInfo) -> bool {
    RelayPosition { cursor: Cursor::default(), started_at: before.started_at, restarts: before.restarts }.is_of(now)
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

    async fn enter(relays: &Relays, name: &str, info: &ProcessInfo, entry: Entry) -> RelayLease {
        let mut ticket = relays.join(&key(name), info, entry).unwrap();
        ticket.turn().await;
        ticket.begin(info)
    }

    fn is_called(ticket: &mut Ticket) -> bool {
        let mut turn = std::pin::pin!(ticket.turn());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        turn.as_mut().poll(&mut context).is_ready()
    }

    #[tokio::test]
    async fn the_next_client_goes_on_where_the_last_one_stopped() {
        let (relays, info) = (Relays::default(), process());
        let first = enter(&relays, "s", &info, Entry::Refuse).await;
        assert_eq!(first.from(), Cursor::default());
        first.delivered(at(10));
        drop(first);
        assert_eq!(enter(&relays, "s", &info, Entry::Wait).await.from(), at(10));
        assert_eq!(enter(&relays, "other", &info, Entry::Wait).await.from(), Cursor::default());
    }

    #[tokio::test]
    async fn whoever_takes_over_comes_before_those_who_wait() {
        let (relays, info) = (Relays::default(), process());
        let first = enter(&relays, "s", &info, Entry::Wait).await;
        let mut patient = relays.join(&key("s"), &info, Entry::Wait).unwrap();
        let mut bold = relays.join(&key("s"), &info, Entry::TakeOver).unwrap();
        assert!(first.taken().is_cancelled() && !is_called(&mut bold), "once the other has let go");
        first.delivered(at(5));
        drop(first);
        assert!(is_called(&mut bold) && !is_called(&mut patient));
        let bold = bold.begin(&info);
        assert_eq!(bold.from(), at(5), "what was delivered meanwhile counts");
        assert!(!bold.taken().is_cancelled());
        drop(bold);
        assert!(is_called(&mut patient));
    }

    #[tokio::test]
    async fn those_who_wait_come_in_order_and_whoever_leaves_is_passed_over() {
        let (relays, info) = (Relays::default(), process());
        let first = enter(&relays, "s", &info, Entry::Wait).await;
        let mut line: Vec<_> = (0..4).map(|_| relays.join(&key("s"), &info, Entry::Wait).unwrap()).collect();
        drop(line.remove(1));
        drop(first);
        assert!(!first_is_free(&relays, &info), "the next one has it already");
        let called = |line: &mut Vec<Ticket>| line.iter_mut().map(is_called).collect::<Vec<_>>();
        assert_eq!(called(&mut line), [true, false, false]);
        drop(line.remove(0));
        assert_eq!(called(&mut line), [true, false], "one who was called and did not come");
        drop(line);
        assert!(first_is_free(&relays, &info));
    }

    fn first_is_free(relays: &Relays, info: &ProcessInfo) -> bool {
        relays.join(&key("s"), info, Entry::Refuse).is_ok()
    }

    #[tokio::test]
    async fn whoever_does_not_want_to_wait_is_told_unless_the_other_is_about_to_leave() {
        let (relays, info) = (Relays::default(), process());
        let _first = enter(&relays, "s", &info, Entry::Refuse).await;
        assert_eq!(relays.join(&key("s"), &info, Entry::Refuse).unwrap_err(), Busy::Attached);
        let newer = ProcessInfo { started_at: Timestamp::MAX, ..info };
        assert!(relays.join(&key("s"), &newer, Entry::Refuse).is_ok(), "the first is of a process that ended");
    }

    #[tokio::test]
    async fn only_so_many_wait() {
        let (relays, info) = (Relays::default(), process());
        let _first = enter(&relays, "s", &info, Entry::Wait).await;
        let join = |entry| relays.join(&key("s"), &info, entry);
        let mut line: Vec<_> = (0..limits::RELAY_WAITING_MAX).map(|_| join(Entry::Wait).unwrap()).collect();
        assert_eq!(join(Entry::Wait).unwrap_err(), Busy::Crowded);
        line.pop();
        assert!(join(Entry::Wait).is_ok(), "a client that leaves makes room");
    }

    #[tokio::test]
    async fn another_process_of_the_same_name_starts_at_its_beginning() {
        let (relays, info) = (Relays::default(), process());
        enter(&relays, "s", &info, Entry::Wait).await.delivered(at(10));
        let restarted = ProcessInfo { started_at: Timestamp::MAX, restarts: info.restarts + 1, ..info.clone() };
        let again = enter(&relays, "s", &restarted, Entry::Wait).await;
        assert_eq!(again.from(), at(10), "started again by itself");
        drop(again);
        let replaced = ProcessInfo { started_at: Timestamp::MIN, ..info };
        assert_eq!(enter(&relays, "s", &replaced, Entry::Wait).await.from(), Cursor::default());
    }

    #[tokio::test]
    async fn who_forgets_an_old_process_does_not_forget_the_new_one() {
        let (relays, info) = (Relays::default(), process());
        let old = enter(&relays, "s", &info, Entry::Wait).await;
        relays.forget(&key("s"), &old);
        let new = enter(&relays, "s", &info, Entry::Refuse).await;
        new.delivered(at(7));
        relays.forget(&key("s"), &old);
        drop(new);
        assert_eq!(enter(&relays, "s", &info, Entry::Wait).await.from(), at(7));
    }

    #[tokio::test]
    async fn only_so_many_positions_are_kept_and_held_ones_first() {
        let (relays, info) = (Relays::default(), process());
        let held = enter(&relays, "held", &info, Entry::Wait).await;
        for number in 0..limits::RELAY_POSITIONS_MAX + 5 {
            enter(&relays, &number.to_string(), &info, Entry::Wait).await;
        }
        let slots = lock(&relays.slots);
        assert_eq!(slots.by_key.len(), limits::RELAY_POSITIONS_MAX);
        assert!(slots.by_key.contains_key(&key("held")) && !slots.by_key.contains_key(&key("0")));
        drop(held);
    }
}
