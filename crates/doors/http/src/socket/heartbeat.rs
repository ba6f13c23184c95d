//! Pings a peer to notice when it is gone.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::{Instant, sleep_until};

use crate::limits;

/// State that the reading half shares with the writing half.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    heard: AtomicBool,
    busy: AtomicBool,
}

impl Pulse {
    /// Records that a message arrived.
    pub(super) fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Runs work during which the socket is not read, so that silence does not count.
    pub(super) async fn busy<T>(&self, work: impl Future<Output = T>) -> T {
        self.busy.store(true, Ordering::Relaxed);
        let done = work.await;
        self.busy.store(false, Ordering::Relaxed);
        self.hear();
        done
    }

    fn is_silent(&self) -> bool {
        !self.heard.load(Ordering::Relaxed) && !self.busy.load(Ordering::Relaxed)
    }
}

/// The next action.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beat {
    /// Send a ping.
    Ping,
    /// The last ping was not answered.
    Dead,
}

/// When to ping, and until when the answer must have come.
#[derive(Debug)]
pub(super) struct Heartbeat<'a> {
    pulse: &'a Pulse,
    ping_at: Instant,
    pong_until: Option<Instant>,
}

impl<'a> Heartbeat<'a> {
    /// Begins to count.
    pub(super) fn new(pulse: &'a Pulse) -> Self {
        Self { pulse, ping_at: Instant::now() + limits::PING_EVERY, pong_until: None }
    }

    /// Waits for what is due. Waiting may be given up and begun again.
    pub(super) async fn beat(&mut self) -> Beat {
        while let Some(until) = self.pong_until {
            sleep_until(until).await;
            self.pong_until = None;
            if self.pulse.is_silent() {
                return Beat::Dead;
            }
        }
        sleep_until(self.ping_at).await;
        let now = Instant::now();
        self.ping_at = now + limits::PING_EVERY;
        self.pong_until = Some(now + limits::PONG_TIME_MAX);
        self.pulse.heard.store(false, Ordering::Relaxed);
        Beat::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_answers_lives_and_one_that_does_not_is_dead() {
        let pulse = Pulse::default();
        let mut heart = Heartbeat::new(&pulse);
        let started = Instant::now();
        assert_eq!(heart.beat().await, Beat::Ping);
        assert_eq!(started.elapsed(), limits::PING_EVERY);
        pulse.hear();
        assert_eq!(heart.beat().await, Beat::Ping);
        assert_eq!(heart.beat().await, Beat::Dead);
        assert_eq!(started.elapsed(), limits::PING_EVERY * 2 + limits::PONG_TIME_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_a_command_to_read_is_not_taken_for_dead() {
        let pulse = Pulse::default();
        let mut heart = Heartbeat::new(&pulse);
        let endless = pulse.busy(std::future::pending::<()>());
        let beats = async {
            for _ in 0..3 {
                assert_eq!(heart.beat().await, Beat::Ping);
            }
        };
        tokio::select! {
            () = endless => unreachable!("it is endless"),
            () = beats => {}
        }
    }
}
