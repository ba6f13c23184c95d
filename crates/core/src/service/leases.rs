//! Shows each box that its server is there. When no server returns, a box that is not persistent ends itself when nothing has
//! run in it for its idle time, and at its end whatever runs in it: that of its session, or a day after its server left. So only
//! what is persistent stays after a stop or a `kill -9`.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::session::{Phase, Session, Standing};
use crate::link::{Lease, LeaseTerms};
use crate::session::{LeaseEnd, SessionConfig};
use crate::tasks::Start as _;
use crate::{Handle, Journal, Result, limits, link};
use box_wire::version::Feature;
use jiff::Timestamp;

/// How long to wait before renewing a lease that ended by itself.
const RETRY_AFTER: Duration = Duration::from_secs(2);

impl Inner {
    /// Holds the lease of a box while its session has that box. Remote boxes are ended by their provider.
    pub(super) fn hold_lease(self: &Arc<Self>, session: &Arc<Session>, standing: &Arc<Standing>) {
        if !self.ends_itself(&standing.handle) {
            return;
        }
        let (inner, session, standing) = (Arc::clone(self), Arc::clone(session), Arc::clone(standing));
        self.tasks.start(async move {
            let mut phases = session.phases();
            let has_box = |phase: &Phase| matches!(phase, Phase::Creating | Phase::Running(_) | Phase::Paused(_));
            tokio::select! {
                () = inner.stopping.cancelled() => {}
                _ = phases.wait_for(|phase| !has_box(phase)) => {}
                () = inner.renew(&session, &standing.handle) => {}
            }
        });
    }

    /// Whether the agent of a box ends it when no server returns.
    fn ends_itself(&self, handle: &Handle) -> bool {
        !self.backend_of(handle.backend).ends_boxes_itself() && handle.agent.has(Feature::Lease)
    }

    /// Sends a box the terms of a paused or running one. The held lease is renewed only after the phase has changed: a server
    /// that is killed behind the answer to a pause must not leave a box that ends at its time.
    pub(super) async fn send_terms(&self, session: &Session, handle: &Handle, is_paused: bool) {
        if !self.ends_itself(handle) {
            return;
        }
        let sent = async { link::lease(self.backend.dial(handle).await?, terms(&session.config(), is_paused)).await };
        if let Err(error) = sent.await {
            tracing::warn!(session.id = %session.key.id, %error, "failed to send a box how long it may wait for its server");
        }
    }

    /// Renews the lease without end. A box that may wait for its server forever needs none.
    async fn renew(&self, session: &Session, handle: &Handle) {
        let mut held = None;
        loop {
            if held.is_none() && session.with_config(waits_forever) {
                session.terms_changed().await;
                continue;
            }
            if self.hold_until_changed(session, handle, &mut held).await.is_err() {
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }

    /// Holds one lease until its terms change or it has to be renewed.
    async fn hold_until_changed(&self, session: &Session, handle: &Handle, held: &mut Option<Lease>) -> Result<()> {
        let mut phases = session.phases();
        let is_paused = matches!(*phases.borrow_and_update(), Phase::Paused(_));
        let config = session.config();
        let lease = link::lease(self.backend.dial(handle).await?, terms(&config, is_paused)).await?;
        // The lease from before ends only now: a box whose end has passed may not be without one.
        let lease = held.insert(lease);
        let renewal = async {
            match config.unattended_end().renew_after() {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = lease.ended() => Err(error),
            () = session.terms_changed() => Ok(()),
            () = renewal => Ok(()),
            _ = phases.wait_for(|phase| matches!(phase, Phase::Paused(_)) != is_paused) => Ok(()),
        }
    }

    /// Why a box is gone: what its agent recorded, else what was found.
    pub(super) async fn why_lost(&self, handle: &Handle, config: &SessionConfig, found: &str) -> String {
        let backend = self.backend_of(handle.backend);
        if backend.journal_in_box(handle).is_some() {
            return found.to_owned();
        }
        let is_left_alone = backend.journal(handle).await.is_ok_and(|journal| Journal::open(journal).says_left_alone());
        if !is_left_alone {
            return found.to_owned();
        }
        let why = if config.persistent || matches!(config.lease_end, LeaseEnd::At(_)) {
            "its time was over, and no server was there".to_owned()
        } else {
            let hours = limits::UNATTENDED_BOX_SEC / 3600;
            let idle_sec = config.ttl_sec;
            format!(
                "no server was there for its idle time (ttl_sec {idle_sec}) while nothing ran in it, or for {hours} hours"
            )
        };
        format!("its box ended itself: {why}")
    }
}

/// Whether a box may wait for its server forever, whatever runs in it or not.
fn waits_forever(config: &SessionConfig) -> bool {
    config.persistent && config.unattended_end() == LeaseEnd::Never
}

/// How long a box may be without its server. One that is paused waits: what is stopped was meant to be kept.
fn terms(config: &SessionConfig, is_paused: bool) -> LeaseTerms {
    LeaseTerms {
        idle: if config.persistent { Duration::MAX } else { Duration::from_secs(config.ttl_sec) },
        left: if is_paused { None } else { config.unattended_end().left(Timestamp::now()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{SessionDefaults, SessionRequest};

    #[test]
    fn what_runs_keeps_a_box_without_a_server_for_a_day_unless_it_is_persistent_or_paused() {
        let config = |persistent| {
            let request = SessionRequest { persistent: Some(persistent), ..SessionRequest::default() };
            request.resolve(&SessionDefaults::default(), None).unwrap()
        };
        let (fleeting, lasting) = (config(false), config(true));
        let left = |config, is_paused| terms(config, is_paused).left;
        assert_eq!(left(&fleeting, false), Some(Duration::from_hours(24)));
        assert_eq!([left(&fleeting, true), left(&lasting, false)], [None; 2]);
        assert!(waits_forever(&lasting) && !waits_forever(&fleeting));
    }
}
