//! The supervisor as the service sees it: a weak handle, because the supervisor owns the service.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use box_core::mcp::{
    McpImported, McpLogLine, McpNumbers, McpServerInfo, McpServerName, McpServers, McpSwitch, McpTestReport, McpTested,
};
use box_core::{Caller, Error, Result};
use serde_json::Value;

use super::{Inner, Supervisor};

/// Asks the supervisor while there is one.
#[derive(Debug)]
struct Handle(Weak<Inner>);

impl Supervisor {
    /// What the service is given. It refuses everything once the supervisor is gone.
    pub fn handle(&self) -> Arc<dyn McpServers> {
        Arc::new(Handle(Arc::downgrade(&self.inner)))
    }
}

impl Handle {
    fn supervisor(&self) -> Result<Supervisor> {
        self.0.upgrade().map(|inner| Supervisor { inner }).ok_or(Error::Stopping)
    }
}

#[async_trait]
impl McpServers for Handle {
    async fn list(&self, caller: &Caller) -> Result<Vec<McpServerInfo>> {
        self.supervisor()?.list(caller).await
    }

    async fn get(&self, caller: &Caller, name: &McpServerName) -> Result<Option<McpServerInfo>> {
        self.supervisor()?.get(caller, name).await
    }

    async fn put(&self, caller: &Caller, name: &McpServerName, definition: Value) -> Result<McpServerInfo> {
        self.supervisor()?.put(caller, name, definition).await
    }

    async fn remove(&self, caller: &Caller, name: &McpServerName) -> Result<()> {
        self.supervisor()?.remove(caller, name).await
    }

    async fn set_enabled(&self, caller: &Caller, name: &McpServerName, switch: McpSwitch) -> Result<McpServerInfo> {
        self.supervisor()?.set_enabled(caller, name, switch).await
    }

    async fn import(&self, caller: &Caller, document: Value, room: usize) -> Result<McpImported> {
        self.supervisor()?.import(caller, document, room).await
    }

    async fn test(&self, caller: &Caller, tested: McpTested) -> Result<McpTestReport> {
        self.supervisor()?.test(caller, tested).await
    }

    async fn restart(&self, caller: &Caller, name: &McpServerName) -> Result<McpServerInfo> {
        self.supervisor()?.restart(caller, name).await
    }

    async fn approve(
        &self,
        caller: &Caller,
        name: &McpServerName,
        tools: Option<BTreeMap<String, String>>,
    ) -> Result<McpServerInfo> {
        self.supervisor()?.approve(caller, name, tools).await
    }

    fn numbers(&self) -> McpNumbers {
        self.supervisor().map(|supervisor| supervisor.numbers()).unwrap_or_default()
    }

    async fn logs(&self, caller: &Caller, name: &McpServerName, lines: usize) -> Result<Vec<McpLogLine>> {
        self.supervisor()?.logs(caller, name, lines).await
    }
}
