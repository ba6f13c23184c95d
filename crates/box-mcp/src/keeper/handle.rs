//! The keeper, as the service knows it: the service does not keep the keeper, which has it.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use box_core::mcp::{
    McpImported, McpLogLine, McpServerInfo, McpServerName, McpServers, McpSwitch, McpTestReport, McpTested,
};
use box_core::{Caller, Error, Result};
use serde_json::Value;

use super::{Inner, Keeper};

/// Asks the keeper while there is one.
#[derive(Debug)]
struct Handle(Weak<Inner>);

impl Keeper {
    /// What the service is given. It refuses everything once the keeper is gone.
    pub fn handle(&self) -> Arc<dyn McpServers> {
        Arc::new(Handle(Arc::downgrade(&self.inner)))
    }
}

impl Handle {
    fn keeper(&self) -> Result<Keeper> {
        self.0.upgrade().map(|inner| Keeper { inner }).ok_or(Error::Stopping)
    }
}

#[async_trait]
impl McpServers for Handle {
    async fn list(&self, caller: &Caller) -> Result<Vec<McpServerInfo>> {
        self.keeper()?.list(caller).await
    }

    async fn get(&self, caller: &Caller, name: &McpServerName) -> Result<Option<McpServerInfo>> {
        self.keeper()?.get(caller, name).await
    }

    async fn put(&self, caller: &Caller, name: &McpServerName, definition: Value) -> Result<McpServerInfo> {
        self.keeper()?.put(caller, name, definition).await
    }

    async fn remove(&self, caller: &Caller, name: &McpServerName) -> Result<()> {
        self.keeper()?.remove(caller, name).await
    }

    async fn set_enabled(&self, caller: &Caller, name: &McpServerName, switch: McpSwitch) -> Result<McpServerInfo> {
        self.keeper()?.set_enabled(caller, name, switch).await
    }

    async fn import(&self, caller: &Caller, document: Value, room: usize) -> Result<McpImported> {
        self.keeper()?.import(caller, document, room).await
    }

    async fn test(&self, caller: &Caller, tested: McpTested) -> Result<McpTestReport> {
        self.keeper()?.test(caller, tested).await
    }

    async fn restart(&self, caller: &Caller, name: &McpServerName) -> Result<McpServerInfo> {
        self.keeper()?.restart(caller, name).await
    }

    async fn logs(&self, caller: &Caller, name: &McpServerName, lines: usize) -> Result<Vec<McpLogLine>> {
        self.keeper()?.logs(caller, name, lines).await
    }
}
