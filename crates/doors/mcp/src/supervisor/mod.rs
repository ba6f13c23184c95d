//! Keeps MCP servers running: those of the configuration, and those that callers define, of all tenants.
//!
//! Each server that is to run has a task of its own ([`server_task`]), which makes attempts ([`attempt`]): a session ([`placement`]), what the
//! server depends on, a process, its streams ([`line`]), its first answer. What is connected is shown to the gateway. When we end,
//! processes go on in their boxes, and the next start finds them.

mod approvals;
mod attempt;
mod computer;
mod control;
mod defined;
mod handle;
mod host;
mod kept;
mod line;
mod offered;
mod placement;
mod seen;
mod server_task;
mod servers;
mod stderr;
mod sweep;
#[cfg(test)]
mod tests;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::mcp::{McpServerName, McpSource, McpStatus};
use box_core::store::McpServerKey;
use box_core::tasks::Start as _;
use box_core::{Caller, Result, Service, Store, TenantId};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::gateway::{Registry, Tally, Upstreams};
use crate::upstream::Upstream;
use approvals::Approvals;
use attempt::Parts;
use control::{Control, Order};
use defined::Defined;
use kept::Keep;
use seen::Seen;
use server_task::ServerTask;

pub use computer::ServiceComputer;

/// Tests of definitions at the same time. Each has a box of its own.
const TRIALS_MAX: usize = 4;

/// What the operator says.
#[derive(Clone, Default)]
pub struct SupervisorConfig {
    /// Servers of the configuration, by name, as JSON. They are the default tenant's.
    pub servers: BTreeMap<McpServerName, Value>,
    /// Whether servers of the operator run on the host if no box is available for them.
    pub host_fallback: bool,
    /// Whether changed tools are held until approved, for servers whose definition does not set it.
    pub pin_tools: bool,
    /// Where what servers install outlives their boxes. Without it, nothing does.
    pub kept: Option<KeptPlace>,
}

/// Where what servers install outlives their boxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPlace {
    /// A directory for the server's use alone. It is created if it is missing.
    pub path: PathBuf,
    /// Most that the servers of one box may keep.
    pub quota_mb: u64,
}

impl fmt::Debug for SupervisorConfig {
    /// Definitions hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.servers.keys().collect();
        f.debug_struct("SupervisorConfig")
            .field("servers", &names)
            .field("host_fallback", &self.host_fallback)
            .field("pin_tools", &self.pin_tools)
            .field("kept", &self.kept)
            .finish()
    }
}

/// Keeps servers running. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Supervisor {
    inner: Arc<Inner>,
}

struct Inner {
    parts: Parts,
    store: Arc<dyn Store>,
    registry: Registry,
    servers: Mutex<BTreeMap<McpServerKey, Server>>,
    trials: Semaphore,
}

/// A server that is defined.
#[derive(Debug, Clone)]
struct Server {
    defined: Arc<Defined>,
    seen: Seen,
    /// Who looks after it, if it is to run.
    control: Option<Control>,
}

impl Supervisor {
    /// Starts all servers that are to run, and waits for none. A definition of the configuration that is not good is an error; that there is
    /// nothing to run servers in is not.
    pub async fn open(service: Service, store: Arc<dyn Store>, config: SupervisorConfig) -> Result<Self> {
        let tasks = TaskTracker::new();
        let parts = Parts {
            service,
            tasks: tasks.clone(),
            stop: CancellationToken::new(),
            salt: store.instance_id().await?,
            host_fallback: config.host_fallback,
            keep: open_keep(&config),
            approvals: Approvals::open(Arc::clone(&store), config.pin_tools).await?,
        };
        let inner = Inner {
            parts,
            registry: Registry::new(tasks),
            servers: Mutex::default(),
            trials: Semaphore::new(TRIALS_MAX),
            store,
        };
        let supervisor = Self { inner: Arc::new(inner) };
        if config.host_fallback {
            tracing::warn!(
                "mcp.host_fallback is set: without a backend, MCP servers of the operator run on this machine without a box"
            );
        }
        let defined = supervisor.inner.definitions(&config).await?;
        supervisor.inner.forget_approvals(&defined).await?;
        for defined in defined {
            supervisor.inner.define(defined);
        }
        supervisor.inner.parts.tasks.start(sweep::sweep(Arc::clone(&supervisor.inner)));
        Ok(supervisor)
    }

    /// Looks after no server any more. Processes in boxes are left as they are, and found again by the next start.
    pub async fn close(&self) {
        self.inner.parts.stop.cancel();
        self.inner.parts.tasks.close();
        self.inner.parts.tasks.wait().await;
    }
}

/// Opens the place for what is kept. That nothing can be kept keeps no server from running.
fn open_keep(config: &SupervisorConfig) -> Option<Keep> {
    let KeptPlace { path, quota_mb } = config.kept.as_ref()?;
    let opened = Keep::open(path, *quota_mb);
    opened.inspect_err(|error| tracing::warn!(%error, "what MCP servers install cannot be kept")).ok()
}

impl Inner {
    /// Everything that is defined. What the configuration defines wins over what callers did before it was there.
    async fn definitions(&self, config: &SupervisorConfig) -> Result<Vec<Defined>> {
        let mut all = BTreeMap::new();
        for row in self.store.mcp_servers().await? {
            let key = row.key.clone();
            match Defined::stored(row) {
                Ok(defined) => drop(all.insert(key, defined)),
                Err(invalid) => {
                    tracing::error!(mcp.server = %key.name, reason = %invalid, "the definition of an MCP server cannot be read and is ignored");
                }
            }
        }
        for (name, definition) in &config.servers {
            let defined = Defined::configured(name, definition)?;
            all.insert(defined.key.clone(), defined);
        }
        Ok(all.into_values().collect())
    }

    /// Forgets what was approved of servers that the configuration does not have any more.
    async fn forget_approvals(&self, defined: &[Defined]) -> Result<()> {
        // A stored definition that cannot be read keeps its approvals: a newer version of this program may have written it.
        let stored = self.store.mcp_servers().await?.into_iter().map(|row| row.key);
        let keys: BTreeSet<_> = stored.chain(defined.iter().map(|defined| defined.key.clone())).collect();
        self.parts.approvals.retain(|key| keys.contains(key)).await
    }

    /// Puts a server into the list, replacing one of its name, and starts its task if it is to run.
    fn define(&self, defined: Defined) -> Server {
        let defined = Arc::new(defined);
        let mut servers = self.lock();
        let before = servers.remove(&defined.key).and_then(|server| server.control);
        let server = if defined.definition.enabled {
            let seen = Seen::default();
            let (parts, registry) = (&self.parts, &self.registry);
            let control = ServerTask::start(parts, registry, Arc::clone(&defined), seen.clone(), before);
            Server { defined: Arc::clone(&defined), seen, control: Some(control) }
        } else {
            if let Some(before) = before {
                self.parts.tasks.start(async move { before.end().await });
            }
            Server { defined: Arc::clone(&defined), seen: Seen::disabled(), control: None }
        };
        servers.insert(defined.key.clone(), server.clone());
        server
    }

    /// Takes a server out of the list, and ends it.
    async fn forget(&self, key: &McpServerKey) {
        let removed = self.lock().remove(key);
        if let Some(control) = removed.and_then(|server| server.control) {
            control.end().await;
        }
    }

    fn find(&self, tenant: &TenantId, name: &McpServerName) -> Option<Server> {
        self.lock().get(&McpServerKey { tenant: tenant.clone(), name: name.clone() }).cloned()
    }

    fn of_tenant(&self, tenant: &TenantId) -> Vec<Server> {
        self.lock().values().filter(|server| server.defined.key.tenant == *tenant).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<McpServerKey, Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    fn restart(&self) {
        if let Some(control) = &self.control {
            self.seen.restarts();
            control.order(Order::Restart);
        }
    }

    fn is_fixed(&self) -> bool {
        self.defined.source == McpSource::Config
    }
}

impl Upstreams for Supervisor {
    fn connected(&self, caller: &Caller) -> Vec<Upstream> {
        self.inner.registry.connected(caller)
    }

    fn defined(&self, caller: &Caller) -> Vec<(McpServerName, McpStatus)> {
        let servers = self.inner.of_tenant(&caller.tenant);
        servers.iter().map(|server| (server.defined.key.name.clone(), server.seen.status())).collect()
    }

    fn tally(&self) -> Option<&Tally> {
        self.inner.registry.tally()
    }

    fn changes(&self, caller: &Caller) -> watch::Receiver<u64> {
        self.inner.registry.changes(caller)
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("servers", &self.inner.lock().len()).finish_non_exhaustive()
    }
}
