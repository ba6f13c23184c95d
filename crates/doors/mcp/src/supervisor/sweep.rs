//! Removes leftovers: tests that the end of this process interrupted, and servers that are no longer defined.

use std::collections::BTreeSet;
use std::sync::Arc;

use box_core::session::{SessionFilter, SessionInfo};
use box_core::{Caller, Result, Scope, SessionId, TenantId};

use super::defined::Defined;
use super::kept::Needed;
use super::placement::{Placement, SHARED, Stay, TRIAL};
use super::{Inner, Server};
use crate::definition::Kind;
use crate::limits::HEALTH_INTERVAL;

/// Hexadecimal digits behind the prefix of a test's name. They tell tests from sessions of users with that prefix.
const TRIAL_CHARS: usize = 32;

/// Removes what was left behind, as soon as boxes can be asked for.
pub(super) async fn sweep(inner: Arc<Inner>) {
    while inner.parts.service.presence().is_err() {
        tokio::select! {
            () = inner.parts.stop.cancelled() => return,
            () = tokio::time::sleep(HEALTH_INTERVAL) => {}
        }
    }
    for tenant in inner.parts.service.tenants() {
        if let Err(error) = sweep_tenant(&inner, &tenant).await {
            tracing::warn!(%tenant, %error, "what MCP servers left behind cannot be removed");
        }
    }
    let Some(keep) = inner.parts.keep.clone() else { return };
    let tenants = inner.parts.tasks.spawn_blocking(move || keep.tenants()).await;
    for tenant in tenants.into_iter().flatten().flatten() {
        discard_kept(&inner, &tenant).await;
    }
}

/// Removes what is kept for boxes that no server of a tenant wants any more.
async fn discard_kept(inner: &Arc<Inner>, tenant: &TenantId) {
    let Some(keep) = inner.parts.keep.clone() else { return };
    let (asked, tenant) = (Arc::clone(inner), tenant.clone());
    let removed = inner.parts.tasks.spawn_blocking(move || keep.retain(&tenant, || needed(&asked, &tenant))).await;
    if let Ok(Err(error)) = removed {
        tracing::warn!(%error, "what MCP servers had installed cannot be removed; the next start tries again");
    }
}

/// The sessions that servers of a tenant want, whether they run or not. None if that is unknown for one of them,
/// because its directory is missing.
fn needed(inner: &Inner, tenant: &TenantId) -> Option<Needed> {
    let servers = inner.of_tenant(tenant);
    let sessions = servers.iter().filter_map(|server| session_of(&server.defined)).collect::<Result<_>>().ok()?;
    let (service, caller) = (inner.parts.service.clone(), caller(tenant));
    let exists = move |session: &SessionId| service.has_session(&caller, session).unwrap_or(true);
    Some(Needed { sessions, exists: Box::new(exists) })
}

/// Whether servers may want a session.
async fn is_needed(inner: &Arc<Inner>, tenant: &TenantId, session: &SessionId) -> bool {
    let (asked, tenant, session) = (Arc::clone(inner), tenant.clone(), session.clone());
    let told = move || needed(&asked, &tenant).is_none_or(|needed| needed.sessions.contains(&session));
    inner.parts.tasks.spawn_blocking(told).await.unwrap_or(true)
}

fn session_of(defined: &Defined) -> Option<Result<SessionId>> {
    let Kind::Stdio(stdio) = &defined.definition.kind else { return None };
    Some(Placement::of(defined, stdio, Stay::Shared).map(|placement| placement.session))
}

async fn sweep_tenant(inner: &Arc<Inner>, tenant: &TenantId) -> Result<()> {
    let caller = caller(tenant);
    let service = &inner.parts.service;
    for session in sessions(inner, &caller, TRIAL).await? {
        let session = session.session_id;
        let rest = session.as_str().strip_prefix(TRIAL).unwrap_or_default();
        if rest.len() == TRIAL_CHARS && rest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            service.delete_session(&caller, &session).await?;
        }
    }
    for session in sessions(inner, &caller, SHARED).await? {
        // Only the supervisor creates sessions with a persistent directory.
        let (is_ours, session) = (session.config.kept.is_some(), session.session_id);
        let processes = service.list_processes(&caller, &session).await?;
        // Asked afterwards: who was defined in the meantime is among them.
        let wanted = wanted(inner, tenant).await;
        for process in processes {
            if !wanted.contains(&(session.clone(), process.process_id.to_string())) {
                service.stop_process(&caller, &session, &process.process_id).await?;
            }
        }
        if is_ours && !is_needed(inner, tenant, &session).await {
            inner.delete_idle(tenant, &session).await;
        }
    }
    Ok(())
}

/// The processes of servers that are to run, each in its session.
async fn wanted(inner: &Inner, tenant: &TenantId) -> BTreeSet<(SessionId, String)> {
    let servers = inner.of_tenant(tenant);
    let find = move || servers.iter().filter_map(|server| process_of(&server.defined)).collect();
    inner.parts.tasks.spawn_blocking(find).await.unwrap_or_default()
}

fn process_of(defined: &Defined) -> Option<(SessionId, String)> {
    let Kind::Stdio(stdio) = defined.definition.enabled.then_some(&defined.definition.kind)? else { return None };
    let placement = Placement::of(defined, stdio, Stay::Shared).ok()?;
    Some((placement.session, defined.key.name.to_string()))
}

async fn sessions(inner: &Inner, caller: &Caller, prefix: &str) -> Result<Vec<SessionInfo>> {
    let filter = SessionFilter { prefix: Some(prefix.to_owned()), ..SessionFilter::default() };
    let page = inner.parts.service.list_sessions(caller, &filter).await?;
    Ok(page.sessions)
}

fn caller(tenant: &TenantId) -> Caller {
    Caller {
        subject: "mcp".to_owned(),
        token_id: None,
        tenant: tenant.clone(),
        // Sessions of servers are for admins only.
        scopes: [Scope::Exec, Scope::Admin].into(),
        ceiling: None,
        profile: None,
        session: None,
        mcp: box_core::mcp::McpAccess::default(),
        opens_server_boxes: true,
        query_id: None,
    }
}

impl Inner {
    /// Removes the session of a server that is gone, if no other server of its tenant is in it and nothing runs there, and what was kept for it.
    pub(super) async fn vacate(self: &Arc<Self>, gone: &Server) {
        let tenant = &gone.defined.key.tenant;
        if let Some(session) = gone.session()
            && !self.of_tenant(tenant).iter().any(|server| server.session().as_ref() == Some(&session))
        {
            self.delete_idle(tenant, &session).await;
        }
        discard_kept(self, tenant).await;
    }

    async fn delete_idle(&self, tenant: &TenantId, session: &SessionId) {
        let (service, caller) = (&self.parts.service, caller(tenant));
        let is_idle = service.list_processes(&caller, session).await.is_ok_and(|processes| processes.is_empty());
        if is_idle && let Err(error) = service.delete_session(&caller, session).await {
            tracing::warn!(session.id = %session, %error, "a session that no MCP server is in any more cannot be removed");
        }
    }
}
