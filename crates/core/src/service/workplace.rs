//! What tools need to know of a session before they use it.

use std::sync::Arc;

use box_wire::GuestPath;

use super::{Service, ServiceConfig};
use crate::Result;
use crate::caller::Caller;
use crate::session::{SessionDefaults, SessionId, SessionRequest};
use crate::store::SessionKey;

impl Service {
    /// Where a session works, or would if it were made now. Nothing is made.
    pub(crate) fn workplace(&self, caller: &Caller, id: &SessionId, request: &SessionRequest) -> Result<GuestPath> {
        caller.check_session(id)?;
        let key = SessionKey { tenant: caller.tenant.clone(), id: id.clone() };
        let existing = self.inner.lock_sessions().get(&key).cloned();
        let settings = self.settings();
        let would_be = || {
            let defaults = SessionDefaults::new(&settings, &caller.tenant);
            let request = SessionRequest { volumes: None, ..request.clone() };
            request.resolve(&defaults, caller.profile.as_deref())
        };
        let config = existing.map_or_else(would_be, |session| Ok(session.config()))?;
        Ok(config.mount_path)
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
