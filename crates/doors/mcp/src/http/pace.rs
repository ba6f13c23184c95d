//! How often a caller may ask.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use box_core::{Caller, TenantId};
use tokio::time::Instant;

/// Most callers whose pace is remembered. Those who have rested longest are forgotten first, which costs nobody anything.
const CALLERS_MAX: usize = 10_000;

/// How often a caller may ask.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Requests in a second, in the long run.
    pub requests_per_sec: f64,
    /// Requests at once.
    pub burst: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { requests_per_sec: 200.0, burst: 4000.0 }
    }
}

/// How far all callers are.
#[derive(Debug)]
pub(super) struct Paces {
    pace: Pace,
    callers: Mutex<HashMap<(TenantId, String), Left>>,
}

/// What a caller may still ask, as of a moment.
#[derive(Debug, Clone, Copy)]
struct Left {
    requests: f64,
    at: Instant,
}

impl Paces {
    pub(super) fn new(pace: Pace) -> Self {
        Self { pace, callers: Mutex::default() }
    }

    /// One more request; or how long to wait.
    pub(super) fn take(&self, caller: &Caller) -> Result<(), Duration> {
        let now = Instant::now();
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if callers.len() >= CALLERS_MAX {
            callers.retain(|_, left| self.refilled(*left, now) < self.pace.burst);
        }
        let fresh = Left { requests: self.pace.burst, at: now };
        let left = callers.entry((caller.tenant.clone(), caller.subject.clone())).or_insert(fresh);
        let requests = self.refilled(*left, now);
        *left = Left { requests, at: now };
        if requests < 1.0 {
            let missing = (1.0 - requests) / self.pace.requests_per_sec;
            return Err(Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX));
        }
        left.requests -= 1.0;
        Ok(())
    }

    fn refilled(&self, left: Left, now: Instant) -> f64 {
        let rested = now.duration_since(left.at).as_secs_f64();
        (left.requests + rested * self.pace.requests_per_sec).min(self.pace.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_too_often_is_told_how_long_to_wait() {
        let paces = Paces::new(Pace { requests_per_sec: 2.0, burst: 3.0 });
        let caller = Caller::local();
        for _ in 0..3 {
            assert!(paces.take(&caller).is_ok());
        }
        assert_eq!(paces.take(&caller), Err(Duration::from_millis(500)));
        let other = Caller { subject: "other".into(), ..Caller::local() };
        assert!(paces.take(&other).is_ok());
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(paces.take(&caller).is_ok() && paces.take(&caller).is_err());
    }
}
