//! What concerns one session happens one after another: clients of some doors rely on it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use box_core::{SessionId, TenantId};
use tokio::sync::OwnedMutexGuard;

/// The turn of each session with a request that runs or waits.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<(TenantId, SessionId), Weak<Turn>>>);

/// The turn of one session.
type Turn = tokio::sync::Mutex<()>;

impl Turns {
    /// Waits until all earlier callers are done. The turn lasts as long as the returned guard.
    pub async fn take(&self, tenant: &TenantId, session: &SessionId) -> OwnedMutexGuard<()> {
        self.of(tenant, session).lock_owned().await
    }

    fn of(&self, tenant: &TenantId, session: &SessionId) -> Arc<Turn> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Requests are limited and each holds one, so there are never many.
        turns.retain(|_, turn| turn.strong_count() > 0);
        let key = (tenant.clone(), session.clone());
        if let Some(turn) = turns.get(&key).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::default();
        turns.insert(key, Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn one_session_has_one_turn_and_leaves_nothing() {
        let turns = Turns::default();
        let (tenant, other) = (TenantId::default(), "other".parse().unwrap());
        let (one, two) = ("one".parse().unwrap(), "two".parse().unwrap());
        let first = turns.take(&tenant, &one).await;
        assert!(turns.take(&tenant, &one).now_or_never().is_none(), "it waits");
        assert!(turns.take(&tenant, &two).now_or_never().is_some(), "another session does not");
        assert!(turns.take(&other, &one).now_or_never().is_some(), "nor does that of another tenant");
        drop(first);
        drop(turns.take(&tenant, &one).now_or_never().expect("it is free again"));
        drop(turns.take(&tenant, &two).await);
        assert!(turns.0.lock().unwrap().len() <= 1);
    }
}
