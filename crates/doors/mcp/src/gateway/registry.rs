//! Servers by tenant and name, in memory. The supervisor adds them; they leave by themselves when they end.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::mcp::{McpServerName, McpStatus};
use box_core::tasks::Start as _;
use box_core::{Caller, TenantId};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::{Tally, Upstreams};
use crate::upstream::Upstream;

/// Servers that are connected. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Registry {
    tenants: Arc<Mutex<HashMap<TenantId, Servers>>>,
    tally: Arc<Tally>,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct Servers {
    by_name: BTreeMap<McpServerName, Upstream>,
    ticks: watch::Sender<u64>,
}

impl Registry {
    /// An empty one, whose tasks are tracked.
    pub fn new(tasks: TaskTracker) -> Self {
        Self { tenants: Arc::default(), tally: Arc::default(), tasks }
    }

    /// Shows a server to the callers of a tenant until it ends. One of the same name that was there before is closed.
    pub fn insert(&self, tenant: &TenantId, upstream: Upstream) {
        let before = {
            let mut tenants = self.lock();
            let servers = tenants.entry(tenant.clone()).or_default();
            let before = servers.by_name.insert(upstream.name().clone(), upstream.clone());
            tick(&servers.ticks);
            before
        };
        if let Some(before) = before {
            before.close();
        }
        self.tasks.start(self.clone().follow(tenant.clone(), upstream));
    }

    /// Takes a server away. Its connection goes on; close it when it is not needed.
    pub fn remove(&self, tenant: &TenantId, name: &McpServerName) -> Option<Upstream> {
        let mut tenants = self.lock();
        let servers = tenants.get_mut(tenant)?;
        let removed = servers.by_name.remove(name)?;
        tick(&servers.ticks);
        Some(removed)
    }

    /// Something that the callers of a tenant see has changed, such as what they may use.
    pub fn announce(&self, tenant: &TenantId) {
        if let Some(servers) = self.lock().get(tenant) {
            tick(&servers.ticks);
        }
    }

    /// Announces what changes about a server, until it ends.
    async fn follow(self, tenant: TenantId, upstream: Upstream) {
        let mut changes = upstream.changes();
        loop {
            tokio::select! {
                () = upstream.closed() => break,
                () = changes.changed() => self.announce(&tenant),
            }
        }
        let mut tenants = self.lock();
        let Some(servers) = tenants.get_mut(&tenant) else { return };
        // Another one may have its name by now.
        if servers.by_name.get(upstream.name()).is_some_and(Upstream::is_closed) {
            servers.by_name.remove(upstream.name());
            tick(&servers.ticks);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Servers>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tick(ticks: &watch::Sender<u64>) {
    ticks.send_modify(|ticks| *ticks = ticks.wrapping_add(1));
}

impl Upstreams for Registry {
    fn connected(&self, caller: &Caller) -> Vec<Upstream> {
        self.lock().get(&caller.tenant).map(|servers| servers.by_name.values().cloned().collect()).unwrap_or_default()
    }

    /// Whatever is not connected is unknown here.
    fn defined(&self, caller: &Caller) -> Vec<(McpServerName, McpStatus)> {
        let connected = self.connected(caller);
        connected.into_iter().map(|server| (server.name().clone(), McpStatus::Connected)).collect()
    }

    fn tally(&self) -> Option<&Tally> {
        Some(&self.tally)
    }

    fn changes(&self, caller: &Caller) -> watch::Receiver<u64> {
        self.lock().entry(caller.tenant.clone()).or_default().ticks.subscribe()
    }
}
