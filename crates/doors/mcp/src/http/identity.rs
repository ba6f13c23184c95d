//! Whose session it is.

use std::collections::BTreeSet;

use box_core::mcp::McpAccess;
use box_core::session::SessionPattern;
use box_core::{Caller, Scope, SessionId, TenantId};

use crate::gateway::View;

/// An address, as a session is bound to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// Servers of the tenant.
    Servers(View),
    /// Our own tools, in a session.
    Own(SessionId),
}

/// Who holds a session, and where. Whoever differs in anything finds no such session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    subject: String,
    tenant: TenantId,
    /// Two tokens of one name may differ in what they may do.
    scopes: BTreeSet<Scope>,
    profile: Option<String>,
    bound: Option<SessionPattern>,
    mcp: McpAccess,
    endpoint: Endpoint,
}

impl Owner {
    pub(super) fn new(caller: &Caller, endpoint: Endpoint) -> Self {
        Self {
            subject: caller.subject.clone(),
            tenant: caller.tenant.clone(),
            scopes: caller.scopes.clone(),
            profile: caller.profile.clone(),
            bound: caller.session.clone(),
            mcp: caller.mcp.clone(),
            endpoint,
        }
    }

    /// Whether both are the same caller, at whatever address.
    pub(super) fn is_same_caller(&self, other: &Self) -> bool {
        self.subject == other.subject && self.tenant == other.tenant
    }
}
