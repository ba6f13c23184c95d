//! Looks from time to time for what nobody uses any more.

use std::sync::Arc;

use crate::tasks::Start as _;
use jiff::{SignedDuration, Timestamp};

use super::Inner;
use super::session::{Session, lock};
use crate::limits;

/// Starts to look.
pub(super) fn start(inner: &Arc<Inner>) {
    let inner = Arc::clone(inner);
    inner.tasks.clone().start(async move {
        loop {
            tokio::select! {
                () = inner.stopping.cancelled() => return,
                () = tokio::time::sleep(inner.config().reap_every) => {}
            }
            reap(&inner).await;
            if let Some(audit) = inner.audit.as_ref().filter(|audit| audit.file_error().is_some()) {
                audit.retry().await;
            }
        }
    });
}

async fn reap(inner: &Arc<Inner>) {
    let now = Timestamp::now();
    let sessions: Vec<_> = inner.lock_sessions().values().cloned().collect();
    let (expired, living): (Vec<_>, Vec<_>) = sessions.into_iter().partition(|session| session.is_expired(now));
    for session in &expired {
        tracing::info!(session.id = %session.key.id, "a session expired");
        inner.watched.sessions_expired.add();
    }
    if let Err(error) = inner.remove_all(expired).await {
        tracing::error!(error = %error, "an expired session cannot be removed");
    }
    for session in living {
        inner.end_unattended(&session, now);
        forget_exited(inner, &session, now).await;
    }
}

/// Forgets managed processes that ended long ago, and the oldest where there are too many.
async fn forget_exited(inner: &Arc<Inner>, session: &Session, now: Timestamp) {
    let ttl = SignedDuration::try_from(inner.config().exited_process_ttl).unwrap_or(SignedDuration::MAX);
    let mut exited: Vec<_> = lock(&session.processes)
        .values()
        .filter_map(|process| Some((process.state().exited_at?, Arc::clone(process))))
        .collect();
    exited.sort_by_key(|(at, _)| *at);
    let surplus = exited.len().saturating_sub(limits::EXITED_PROCESSES_MAX);
    for (index, (at, process)) in exited.into_iter().enumerate() {
        if index < surplus || at.checked_add(ttl).is_ok_and(|until| until <= now) {
            inner.forget_process(session, &process).await;
        }
    }
}
