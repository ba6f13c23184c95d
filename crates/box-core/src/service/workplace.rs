//! What tools need to know of a session before they use it.

use std::sync::Arc;

use box_wire::GuestPath;

use super::{Service, ServiceConfig};
use crate::Result;
use crate::caller::Caller;
use crate::session::{SessionDefaults, SessionId, SessionRequest};
use crate::store::SessionKey;

/// Where and how long the commands of a session work.
#[derive(Debug, Clone)]
pub(crate) struct Workplace {
    /// Its workspace.
    pub(crate) root: GuestPath,
    /// Deadline of a command that names none.
    pub(crate) timeout_sec: u64,
    /// Longest deadline that a command may ask for.
    pub(crate) timeout_sec_max: u64,
}

impl Service {
    /// Where a session works, or would if it were made now. Nothing is made.
    pub(crate) fn workplace(&self, caller: &Caller, id: &SessionId, request: &SessionRequest) -> Result<Workplace> {
        caller.check_session(id)?;
        let key = SessionKey { tenant: caller.tenant.clone(), id: id.clone() };
        let existing = self.inner.lock_sessions().get(&key).cloned();
        let settings = self.settings();
        let would_be = || {
            let defaults = SessionDefaults::new(&settings, &caller.tenant);
            request.resolve(&defaults, caller.profile.as_deref())
        };
        let config = existing.map_or_else(would_be, |session| Ok(session.config()))?;
        Ok(Workplace {
            root: config.mount_path,
            timeout_sec: config.timeout_sec,
            timeout_sec_max: config.timeout_sec_max,
        })
    }

    /// What the operator has set.
    pub(crate) fn settings(&self) -> Arc<ServiceConfig> {
        self.inner.config()
    }

    /// Remembers that a tool was refused.
    pub(crate) async fn noting_tool<T>(&self, caller: &Caller, id: &SessionId, outcome: Result<T>) -> Result<T> {
        self.inner.noting(caller, "tool", id, outcome).await
    }
}
