//! Places for connections: strangers have their own, and none of them keeps a caller with a token out.
//!
//! A TCP connection is a stranger's until a request on it shows a good token. When all places of strangers are taken, a new
//! connection takes the place of another stranger, of the address that has the most: of one that asks for nothing if there is
//! one, of the oldest otherwise. Callers that showed a token and callers by the Unix socket have places that strangers cannot take.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Extensions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::limits;

/// All places of a server.
#[derive(Debug, Clone)]
pub struct Seats {
    strangers: Arc<Mutex<Strangers>>,
    callers: Arc<Semaphore>,
    local: Arc<Semaphore>,
}

/// Connections on which no token was shown, oldest first.
#[derive(Debug, Default)]
struct Strangers {
    next: u64,
    seated: BTreeMap<u64, Stranger>,
}

#[derive(Debug)]
struct Stranger {
    address: IpAddr,
    /// No request of it is being answered.
    is_waiting: bool,
    leave: CancellationToken,
}

/// The place of one connection. It is free again when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Seat(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    seats: Seats,
    number: u64,
    leave: CancellationToken,
    /// The place of a caller, once the connection has one.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Seats {
    pub(crate) fn new() -> Self {
        Self {
            strangers: Arc::default(),
            callers: Arc::new(Semaphore::new(limits::CONNECTIONS_MAX)),
            local: Arc::new(Semaphore::new(limits::LOCAL_CONNECTIONS_MAX)),
        }
    }

    /// A place for a new TCP connection, at the cost of another stranger's where all are taken.
    pub fn take(&self, address: IpAddr) -> Seat {
        let leave = CancellationToken::new();
        let mut strangers = lock(&self.strangers);
        if strangers.seated.len() >= limits::STRANGERS_MAX
            && let Some(left) = strangers.least_wanted().and_then(|number| strangers.seated.remove(&number))
        {
            left.leave.cancel();
        }
        let number = strangers.next;
        strangers.next += 1;
        let stranger = Stranger { address: address.to_canonical(), is_waiting: true, leave: leave.clone() };
        strangers.seated.insert(number, stranger);
        drop(strangers);
        Seat(Arc::new(Inner { seats: self.clone(), number, leave, permit: Mutex::new(None) }))
    }

    /// A place for a connection by the Unix socket, as soon as there is one.
    pub async fn take_local(&self) -> Seat {
        let Ok(permit) = Arc::clone(&self.local).acquire_owned().await else {
            // It is never closed.
            return std::future::pending().await;
        };
        let (seats, leave) = (self.clone(), CancellationToken::new());
        Seat(Arc::new(Inner { seats, number: u64::MAX, leave, permit: Mutex::new(Some(permit)) }))
    }
}

impl Strangers {
    fn least_wanted(&self) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for stranger in self.seated.values() {
            *counts.entry(stranger.address).or_default() += 1;
        }
        let (crowded, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let of_crowd = || self.seated.iter().filter(|(_, stranger)| stranger.address == crowded);
        let waiting = of_crowd().find(|(_, stranger)| stranger.is_waiting);
        waiting.or_else(|| of_crowd().next()).map(|(number, _)| *number)
    }
}

impl Seat {
    /// Moves the connection to the places of callers. While those are all taken, it stays among strangers.
    pub fn trust(&self) {
        let mut permit = lock(&self.0.permit);
        if permit.is_none() {
            *permit = Arc::clone(&self.0.seats.callers).try_acquire_owned().ok();
            if permit.is_some() {
                lock(&self.0.seats.strangers).seated.remove(&self.0.number);
            }
        }
    }

    /// Whether a good token was shown on the connection.
    pub fn is_trusted(&self) -> bool {
        lock(&self.0.permit).is_some()
    }

    /// Tells whether a request of the connection is being answered.
    pub fn set_waiting(&self, is_waiting: bool) {
        if let Some(stranger) = lock(&self.0.seats.strangers).seated.get_mut(&self.0.number) {
            stranger.is_waiting = is_waiting;
        }
    }

    /// Ends when another connection takes the place.
    pub fn lost(&self) -> WaitForCancellationFutureOwned {
        self.0.leave.clone().cancelled_owned()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        lock(&self.seats.strangers).seated.remove(&self.number);
    }
}

/// Notes that a request came from a caller with a good token, so that its connection is kept.
pub fn trust(request: &Extensions) {
    if let Some(seat) = request.get::<Seat>() {
        seat.trust();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CROWDED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const ALONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn is_lost(seat: &Seat) -> bool {
        seat.0.leave.is_cancelled()
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_most_crowded_address() {
        let seats = Seats::new();
        let alone = seats.take(ALONE);
        let crowd: Vec<Seat> = (1..limits::STRANGERS_MAX).map(|_| seats.take(CROWDED)).collect();
        crowd[0].set_waiting(false);
        let newcomers: Vec<Seat> = (0..3).map(|_| seats.take(CROWDED)).collect();
        assert!(!is_lost(&alone), "a client with one connection keeps it");
        assert!(!is_lost(&crowd[0]), "a request is being answered");
        assert!(crowd[1..4].iter().all(is_lost) && !crowd[4..].iter().any(is_lost));
        assert!(!newcomers.iter().any(is_lost));
    }

    #[test]
    fn strangers_that_are_all_busy_keep_nobody_out() {
        let seats = Seats::new();
        let busy: Vec<Seat> = (0..limits::STRANGERS_MAX).map(|_| seats.take(CROWDED)).collect();
        for seat in &busy {
            seat.set_waiting(false);
        }
        let newcomer = seats.take(ALONE);
        assert!(is_lost(&busy[0]) && !is_lost(&newcomer));
    }

    #[test]
    fn a_caller_with_a_token_has_a_place_that_no_stranger_takes() {
        let seats = Seats::new();
        let caller = seats.take(CROWDED);
        caller.trust();
        assert!(caller.is_trusted());
        let _strangers: Vec<Seat> = (0..limits::STRANGERS_MAX * 2).map(|_| seats.take(CROWDED)).collect();
        assert!(!is_lost(&caller));
    }

    #[test]
    fn places_are_free_again_when_connections_end() {
        let seats = Seats::new();
        for _ in 0..limits::STRANGERS_MAX * 3 {
            seats.take(CROWDED).trust();
        }
        assert!(lock(&seats.strangers).seated.is_empty());
        assert_eq!(seats.callers.available_permits(), limits::CONNECTIONS_MAX);
    }
}
