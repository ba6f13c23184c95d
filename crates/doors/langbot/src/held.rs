//! What clients of this door hold, and how it is dropped.

use box_core::session::{SessionFilter, SessionInfo};
use box_core::{Caller, Error, Service, SessionId, TenantId};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::LangBot;
use super::fault::{Class, Fault};
use super::tenancy::{LEGACY_TENANT, TenancyScope, WORKSPACE_TENANT_PREFIX, generation_of};

/// Sessions that are dropped at the same time.
const REMOVALS_MAX: usize = 16;

impl LangBot {
    /// The caller as the service knows it, with the limit on all clients of this door together.
    pub(crate) fn caller(&self, place: &TenancyScope) -> Result<Caller, Fault> {
        Ok(Caller { ceiling: Some(self.settings().ceiling()), ..place.caller()? })
    }

    /// The sessions of a place.
    pub(super) async fn sessions_of(&self, place: &TenancyScope) -> Result<Vec<SessionInfo>, Fault> {
        self.list(&place.caller()?, place.session_prefix()).await
    }

    /// The sessions of all generations of a workspace.
    pub(super) async fn sessions_of_workspace(&self, namespace: &str) -> Result<Vec<SessionInfo>, Fault> {
        let place = TenancyScope::Workspace { namespace: namespace.to_owned(), generation: 0 };
        self.list(&place.caller()?, String::new()).await
    }

    /// How many sessions all clients of this door hold.
    pub(super) async fn sessions_held(&self) -> Result<usize, Fault> {
        let mut count = 0;
        for tenant in self.tenants() {
            count += self.list(&caller_of(tenant), String::new()).await?.len();
        }
        Ok(count)
    }

    /// The highest generation that has left a session behind.
    pub(super) async fn generation_left(&self, namespace: &str) -> Result<Option<u64>, Fault> {
        let sessions = self.sessions_of_workspace(namespace).await?;
        Ok(sessions.iter().filter_map(|session| generation_of(&session.session_id)).max())
    }

    /// Drops what generations before this one have left.
    pub(super) async fn drop_before(&self, namespace: &str, generation: u64) -> Result<(), Fault> {
        self.drop_of_workspace(namespace, |session| {
            generation_of(&session.session_id).is_some_and(|made_in| made_in < generation)
        })
        .await
    }

    /// Drops everything that a workspace has.
    pub(super) async fn drop_workspace(&self, namespace: &str) -> Result<(), Fault> {
        self.drop_of_workspace(namespace, |_| true).await
    }

    /// Drops all sessions of workspaces.
    pub(super) async fn drop_all_workspaces(&self) -> Result<(), Fault> {
        let tenants = self.tenants().into_iter();
        for tenant in tenants.filter(|tenant| tenant.as_str().starts_with(WORKSPACE_TENANT_PREFIX)) {
            self.drop_of(&caller_of(tenant), |_| true).await?;
        }
        Ok(())
    }

    /// Drops all sessions of legacy clients, except persistent ones, which those clients expect to find again.
    pub(super) async fn drop_legacy(&self) -> Result<(), Fault> {
        self.drop_of(&TenancyScope::Legacy.caller()?, |session| !session.config.persistent).await
    }

    async fn drop_of_workspace(&self, namespace: &str, goes: impl Fn(&SessionInfo) -> bool) -> Result<(), Fault> {
        let place = TenancyScope::Workspace { namespace: namespace.to_owned(), generation: 0 };
        self.drop_of(&place.caller()?, goes).await
    }

    async fn drop_of(&self, caller: &Caller, goes: impl Fn(&SessionInfo) -> bool) -> Result<(), Fault> {
        let sessions = self.list(caller, String::new()).await?;
        let removals = sessions.into_iter().filter(goes).map(|session| async move {
            match self.service().delete_session(caller, &session.session_id).await {
                Err(Error::SessionNotFound { .. }) => Ok(()),
                removed => removed.map_err(|error| failed(&error)),
            }
        });
        stream::iter(removals).buffer_unordered(REMOVALS_MAX).try_collect().await
    }

    /// The tenants of this door.
    fn tenants(&self) -> Vec<TenantId> {
        let is_ours = |tenant: &TenantId| {
            tenant.as_str().starts_with(WORKSPACE_TENANT_PREFIX) || tenant.as_str() == LEGACY_TENANT
        };
        self.service().tenants().into_iter().filter(is_ours).collect()
    }

    async fn list(&self, caller: &Caller, prefix: String) -> Result<Vec<SessionInfo>, Fault> {
        list(self.service(), caller, prefix).await.map_err(|error| failed(&error))
    }
}

/// All sessions of a caller whose ids begin like this.
async fn list(service: &Service, caller: &Caller, prefix: String) -> box_core::Result<Vec<SessionInfo>> {
    let mut filter = SessionFilter { prefix: Some(prefix), ..SessionFilter::default() };
    let mut sessions = Vec::new();
    loop {
        let page = service.list_sessions(caller, &filter).await?;
        sessions.extend(page.sessions);
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return Ok(sessions),
        }
    }
}

/// The sessions of a place that are shown under this id. Several can be: first comes the one that is literally called that, then
/// the one that was used last.
pub(super) async fn called(
    service: &Service,
    caller: &Caller,
    place: &TenancyScope,
    shown: &str,
) -> box_core::Result<Vec<SessionId>> {
    let mut found = list(service, caller, place.session_prefix()).await?;
    found.retain(|info| place.shown(place.logical(&info.session_id)) == shown);
    let is_literal = |info: &SessionInfo| place.logical(&info.session_id) == shown;
    found.sort_by_key(|info| std::cmp::Reverse((is_literal(info), info.last_used_at)));
    Ok(found.into_iter().map(|info| info.session_id).collect())
}

/// LangBot with this tenant. The boxes of MCP servers are not for it: its session ids come from its own clients.
pub(super) fn caller_of(tenant: TenantId) -> Caller {
    Caller { subject: "langbot".to_owned(), tenant, opens_server_boxes: false, ..Caller::local() }
}

fn failed(error: &Error) -> Fault {
    let class = match error {
        Error::Unavailable { .. } | Error::MissingFacility { .. } | Error::Disabled => Class::BackendUnavailable,
        _ => Class::Box,
    };
    Fault::new(class, error.to_string())
}
