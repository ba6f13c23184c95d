//! Ends terminals that no client uses any more. A terminal without a deadline whose client vanished would otherwise run forever,
//! and keep its session. Sessions notice when a client goes: a door drops its follower when the connection ends or a ping stays
//! unanswered.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::tasks::Start as _;
use box_wire::SignalScope;
use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;

use super::Inner;
use super::exec::Exec;
use super::session::{Phase, Session, Standing, lock};
use crate::{Result, link};

/// How long a terminal may take to end after SIGHUP before it is killed.
const HANG_UP_WAIT: Duration = Duration::from_secs(5);

/// Counts the clients of a terminal that ends without any.
#[derive(Debug)]
pub(super) struct Attendance(Mutex<Clients>);

#[derive(Debug)]
struct Clients {
    count: usize,
    /// When the last one left. A server that starts gives clients the same time to come back.
    left_at: Timestamp,
}

/// A client that is attached until this is dropped.
#[derive(Debug)]
pub(super) struct Attached(Arc<Attendance>);

impl Attendance {
    pub(super) fn new(now: Timestamp) -> Self {
        Self(Mutex::new(Clients { count: 0, left_at: now }))
    }

    pub(super) fn attach(self: &Arc<Self>) -> Attached {
        lock(&self.0).count += 1;
        Attached(Arc::clone(self))
    }

    /// Counts from now again, as if a client had just left.
    fn touch(&self, now: Timestamp) {
        lock(&self.0).left_at = now;
    }

    /// Whether there was no client for so long. Whoever is answered yes ends the terminal; the next yes comes as much later.
    fn gives_up(&self, now: Timestamp, patience: SignedDuration) -> bool {
        let mut clients = lock(&self.0);
        let is_over = clients.count == 0 && clients.left_at.checked_add(patience).is_ok_and(|until| until <= now);
        if is_over {
            clients.left_at = now;
        }
        is_over
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut clients = lock(&self.0.0);
        clients.count = clients.count.saturating_sub(1);
        clients.left_at = Timestamp::now();
    }
}

impl Inner {
    /// Ends the terminals of a session that have been without a client for too long. What is paused does not wait for one.
    pub(super) fn end_unattended(self: &Arc<Self>, session: &Arc<Session>, now: Timestamp) {
        let patience = SignedDuration::try_from(self.config().terminal_unattended).unwrap_or(SignedDuration::MAX);
        let execs: Vec<_> = lock(&session.execs).values().filter(|exec| exec.is_running()).cloned().collect();
        let phase = session.phase();
        for exec in execs {
            let Some(attendance) = exec.attendance() else { continue };
            match &phase {
                Phase::Running(standing) => {
                    if attendance.gives_up(now, patience) {
                        self.start_hang_up(session, standing, &exec);
                    }
                }
                _ => attendance.touch(now),
            }
        }
    }

    fn start_hang_up(self: &Arc<Self>, session: &Arc<Session>, standing: &Arc<Standing>, exec: &Arc<Exec>) {
        tracing::info!(exec.id = %exec.id, session.id = %session.key.id, "ending a terminal without an attached client");
        let (inner, standing, exec) = (Arc::clone(self), Arc::clone(standing), Arc::clone(exec));
        self.tasks.start(async move {
            tokio::select! {
                () = inner.stopping.cancelled() => {}
                ended = inner.hang_up(&standing, &exec) => {
                    if let Err(error) = ended && exec.is_running() {
                        tracing::warn!(exec.id = %exec.id, error = %error, "failed to end a terminal; trying again later");
                    }
                }
            }
        });
    }

    /// Does what a closed terminal does: SIGHUP to what runs on it. What is still there later is killed.
    async fn hang_up(&self, standing: &Standing, exec: &Exec) -> Result<()> {
        let stream = self.backend.dial(&standing.handle).await?;
        link::signal(stream, exec.id.clone(), Signal::HUP.as_raw(), SignalScope::Tree).await?;
        if tokio::time::timeout(HANG_UP_WAIT, exec.ended()).await.is_err() {
            link::kill(self.backend.dial(&standing.handle).await?, exec.id.clone()).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_given_up_once_no_client_was_there_for_so_long() {
        let start = Timestamp::now();
        let after = |seconds| start + SignedDuration::from_secs(seconds);
        let patience = SignedDuration::from_secs(60);
        let attendance = Arc::new(Attendance::new(start));
        assert!(!attendance.gives_up(after(59), patience));
        let (one, other) = (attendance.attach(), attendance.attach());
        assert!(!attendance.gives_up(after(100_000), patience), "clients are there");
        drop(one);
        assert!(!attendance.gives_up(after(100_000), patience), "one still is");
        drop(other);
        assert!(!attendance.gives_up(start, patience), "it counts from when the last one left");
        attendance.touch(after(1000));
        assert!(!attendance.gives_up(after(1059), patience));
        assert!(attendance.gives_up(after(1060), patience));
        assert!(!attendance.gives_up(after(1061), patience), "it is being ended");
        assert!(attendance.gives_up(after(1120), patience), "and it still runs");
        assert!(!attendance.gives_up(after(9999), SignedDuration::MAX), "no time is too long");
    }
}
