//! What is counted and remembered for those who watch the service.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use super::{Counters, RecentError};
use crate::caller::TenantId;
use crate::session::SessionId;
use crate::{Error, limits};

/// Numbers since the start, and the latest errors.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) sessions_created: Count,
    pub(super) sessions_failed: Count,
    pub(super) sessions_expired: Count,
    pub(super) sessions_lost: Count,
    pub(super) execs_started: Count,
    pub(super) execs_timed_out: Count,
    pub(super) processes_restarted: Count,
    errors: Mutex<HashMap<TenantId, VecDeque<RecentError>>>,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Watched {
    pub(super) fn counters(&self) -> Counters {
        Counters {
            sessions_created: self.sessions_created.get(),
            sessions_failed: self.sessions_failed.get(),
            sessions_expired: self.sessions_expired.get(),
            sessions_lost: self.sessions_lost.get(),
            execs_started: self.execs_started.get(),
            execs_timed_out: self.execs_timed_out.get(),
            processes_restarted: self.processes_restarted.get(),
            ..Counters::default()
        }
    }

    /// Remembers an error; the oldest of that tenant is forgotten, and where too many have some, the tenant that had none for longest.
    pub(super) fn remember(
        &self,
        tenant: &TenantId,
        query_id: Option<&str>,
        operation: &str,
        session: Option<&SessionId>,
        error: &Error,
    ) {
        let one = RecentError {
            at: Timestamp::now(),
            operation: operation.to_owned(),
            session_id: session.cloned(),
            code: error.code().to_owned(),
            message: error.to_string().chars().take(limits::ERROR_CHARS_MAX).collect(),
            query_id: query_id.map(|id| id.chars().take(limits::QUERY_ID_CHARS_MAX).collect()),
        };
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() >= limits::RECENT_ERRORS_TENANTS_MAX && !errors.contains_key(tenant) {
            let quietest = errors.iter().min_by_key(|(_, errors)| errors.back().map(|error| error.at));
            if let Some(quietest) = quietest.map(|(tenant, _)| tenant.clone()) {
                errors.remove(&quietest);
            }
        }
        let errors = errors.entry(tenant.clone()).or_default();
        if errors.len() >= limits::RECENT_ERRORS_MAX {
            errors.pop_front();
        }
        errors.push_back(one);
    }

    pub(super) fn errors_of(&self, tenant: &TenantId) -> Vec<RecentError> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.get(tenant).map(|errors| errors.iter().rev().cloned().collect()).unwrap_or_default()
    }
}
