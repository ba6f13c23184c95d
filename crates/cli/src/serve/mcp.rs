//! MCP: who keeps servers running, and the door to them.

use std::sync::Arc;

use box_core::{Service, Store};
use door_mcp::http::{Door, Pace};
use door_mcp::supervisor::{KeptPlace, ServiceComputer, Supervisor, SupervisorConfig};
use tokio_util::task::TaskTracker;

use super::doors::DoorsConfig;
use crate::config::Config;
use crate::fault::Fault;

/// Where what servers install is kept, below the state directory.
const KEPT: &str = "mcp/kept";

/// MCP servers, and the door to them and to our own tools.
pub(super) struct Mcp {
    supervisor: Supervisor,
    door: Door,
    tasks: TaskTracker,
}

impl Mcp {
    /// Starts all servers and waits for none. Nothing, where the operator wants none.
    pub(super) async fn open(
        config: &Config,
        service: &Service,
        store: &Arc<dyn Store>,
    ) -> Result<Option<Self>, Fault> {
        if !config.mcp.enabled {
            return Ok(None);
        }
        let settings = settings(config);
        let supervisor = Supervisor::open(service.clone(), Arc::clone(store), settings).await;
        let supervisor = supervisor.map_err(|error| {
            Fault::new(format!("an MCP server of the configuration cannot be used: {error}"))
                .hint("correct it in [mcp.servers]")
        })?;
        drop(service.clone().with_mcp(supervisor.handle()));
        let (tasks, computer) = (TaskTracker::new(), Arc::new(ServiceComputer::new(service.clone())));
        let door = Door::new(Arc::new(supervisor.clone()), computer, Pace::default(), tasks.clone());
        Ok(Some(Self { supervisor, door, tasks }))
    }

    /// Puts the door among those of a server, which lets callers in.
    pub(super) fn join(&self, doors: &mut DoorsConfig) {
        doors.mcp = Some(self.door.router());
    }

    /// Ends what clients have open, and leaves servers alone. They go on in their boxes.
    pub(super) async fn close(&self) {
        self.door.close().await;
        self.supervisor.close().await;
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn settings(config: &Config) -> SupervisorConfig {
    let kept = KeptPlace { path: config.state_dir.join(KEPT), quota_mb: config.mcp.kept_mb };
    let servers = config.mcp.servers.iter().map(|(name, definition)| (name.clone(), definition.revealed()));
    SupervisorConfig {
        servers: servers.collect(),
        host_fallback: config.mcp.host_fallback,
        pin_tools: config.mcp.pin_tools,
        kept: Some(kept).filter(|kept| kept.quota_mb > 0),
    }
}
