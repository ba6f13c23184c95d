//! What can be asked of MCP servers: who may, how many there may be, and what is written down of it. Whoever runs them does the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::sessions::Created;
use super::{Inner, Service};
use crate::audit::{AuditEntry, Outcome};
use crate::caller::{Caller, Scope};
use crate::mcp::{
    McpError, McpImported, McpLogLine, McpNumbers, McpServerInfo, McpServerName, McpServers, McpSource, McpSwitch,
    McpTestReport, McpTested,
};
use crate::session::{DoorRules, SessionInfo, UnknownImage};
use crate::{Error, ImageProgram, Result, limits};

/// Who runs MCP servers.
#[derive(Debug, Clone)]
pub(super) struct Mcp {
    servers: Arc<dyn McpServers>,
    /// Whoever adds some takes turns, so that no two find the last place free.
    turn: Arc<Semaphore>,
}

impl Service {
    /// Gives the service somebody who runs MCP servers. Only the first one that it is given counts.
    #[must_use]
    pub fn with_mcp(self, servers: Arc<dyn McpServers>) -> Self {
        let mcp = Mcp { servers, turn: Arc::new(Semaphore::new(1)) };
        if self.inner.mcp.set(mcp).is_err() {
            tracing::warn!("the service has MCP servers already; others are ignored");
        }
        self
    }

    /// Metrics of MCP servers; none without an MCP runtime.
    pub fn mcp_numbers(&self) -> Option<McpNumbers> {
        self.inner.mcp.get().map(|mcp| mcp.servers.numbers())
    }

    /// The default program of the image of an existing session.
    #[boxed]
    pub async fn image_program(&self, session: &SessionInfo) -> Result<Option<ImageProgram>> {
        let settings = self.inner.config();
        let images = settings.image_policy();
        let spec = session.config.box_spec(&settings.profiles, &images, &DoorRules::default())?;
        self.inner.backend_of(session.backend_name).image_program(&spec).await
    }

    /// Why no box can have this image, if the configuration refuses it.
    pub fn image_refusal(&self, image: &str) -> Option<Error> {
        let settings = self.inner.config();
        settings.image_policy().decide(image, UnknownImage::Refused).err()
    }

    /// The MCP servers of the caller's tenant, by name.
    #[boxed]
    pub async fn mcp_servers(&self, caller: &Caller) -> Result<Vec<McpServerInfo>> {
        let mut servers = self.inner.mcp(caller, Scope::Exec)?.servers.list(caller).await?;
        servers.retain(|server| caller.mcp.allows_some_of(server.name.as_str()));
        Ok(servers)
    }

    /// One MCP server.
    #[boxed]
    pub async fn mcp_server(&self, caller: &Caller, name: &McpServerName) -> Result<McpServerInfo> {
        self.inner.mcp(caller, Scope::Exec)?.find(caller, name).await
    }

    /// The last lines that were said by an MCP server, or about it.
    #[boxed]
    pub async fn mcp_server_logs(
        &self,
        caller: &Caller,
        name: &McpServerName,
        lines: Option<usize>,
    ) -> Result<Vec<McpLogLine>> {
        let mcp = self.inner.mcp(caller, Scope::Exec)?;
        mcp.find(caller, name).await?;
        // What others asked of it may be in there.
        check_all_of(caller, name)?;
        let lines = lines.unwrap_or(limits::MCP_LOG_LINES).min(limits::MCP_LOG_LINES_MAX);
        mcp.servers.logs(caller, name, lines).await
    }

    /// Defines an MCP server, or defines one anew.
    #[boxed]
    pub async fn put_mcp_server(
        &self,
        caller: &Caller,
        name: &McpServerName,
        definition: Value,
    ) -> Result<(McpServerInfo, Created)> {
        let asked = ServerChange::of(self, caller, name);
        self.changing(caller, "mcp_put", Some(name), async move {
            let ServerChange { mcp, caller, name } = asked?;
            check_all_of(&caller, &name)?;
            let _turn = mcp.take_turn().await?;
            let created = mcp.make_room(&caller, &name).await?;
            Ok((mcp.servers.put(&caller, &name, definition).await?, created))
        })
        .await
    }

    /// Ends an MCP server and forgets it.
    #[boxed]
    pub async fn remove_mcp_server(&self, caller: &Caller, name: &McpServerName) -> Result<()> {
        let asked = ServerChange::of(self, caller, name);
        self.changing(caller, "mcp_remove", Some(name), async move {
            let ServerChange { mcp, caller, name } = asked?;
            mcp.find_changeable(&caller, &name).await?;
            mcp.servers.remove(&caller, &name).await
        })
        .await
    }

    /// Lets an MCP server run, or ends it and keeps its definition.
    #[boxed]
    pub async fn switch_mcp_server(
        &self,
        caller: &Caller,
        name: &McpServerName,
        switch: McpSwitch,
    ) -> Result<McpServerInfo> {
        let operation = match switch {
            McpSwitch::Enabled => "mcp_enable",
            McpSwitch::Disabled => "mcp_disable",
        };
        let asked = ServerChange::of(self, caller, name);
        self.changing(caller, operation, Some(name), async move {
            let ServerChange { mcp, caller, name } = asked?;
            mcp.find_changeable(&caller, &name).await?;
            mcp.servers.set_enabled(&caller, &name, switch).await
        })
        .await
    }

    /// Ends an MCP server and starts it anew.
    #[boxed]
    pub async fn restart_mcp_server(&self, caller: &Caller, name: &McpServerName) -> Result<McpServerInfo> {
        let asked = ServerChange::of(self, caller, name);
        self.changing(caller, "mcp_restart", Some(name), async move {
            let ServerChange { mcp, caller, name } = asked?;
            mcp.find(&caller, &name).await?;
            check_all_of(&caller, &name)?;
            mcp.servers.restart(&caller, &name).await
        })
        .await
    }

    /// Approves held tools of an MCP server: those with these fingerprints, or all.
    #[boxed]
    pub async fn approve_mcp_tools(
        &self,
        caller: &Caller,
        name: &McpServerName,
        tools: Option<BTreeMap<String, String>>,
    ) -> Result<McpServerInfo> {
        let asked = ServerChange::of(self, caller, name);
        self.changing(caller, "mcp_approve", Some(name), async move {
            let ServerChange { mcp, caller, name } = asked?;
            mcp.find(&caller, &name).await?;
            check_all_of(&caller, &name)?;
            mcp.servers.approve(&caller, &name, tools).await
        })
        .await
    }

    /// Defines all servers of an `mcpServers` document of a desktop client.
    #[boxed]
    pub async fn import_mcp_servers(&self, caller: &Caller, document: Value) -> Result<McpImported> {
        let (mcp, asker) = (self.inner.mcp(caller, Scope::Mcp), caller.clone());
        self.changing(caller, "mcp_import", None, async move {
            let mcp = mcp?;
            let _turn = mcp.take_turn().await?;
            let room = limits::MCP_SERVERS_MAX.saturating_sub(mcp.servers.list(&asker).await?.len());
            mcp.servers.import(&asker, document, room).await
        })
        .await
    }

    /// Tries a definition, or a server that is defined, apart from all others.
    #[boxed]
    pub async fn test_mcp_server(&self, caller: &Caller, tested: McpTested) -> Result<McpTestReport> {
        let (mcp, asker) = (self.inner.mcp(caller, Scope::Mcp), caller.clone());
        let name = match &tested {
            McpTested::Named(name) => Some(name.clone()),
            McpTested::Definition(_) => None,
        };
        self.changing(caller, "mcp_test", name.as_ref(), async move {
            let mcp = mcp?;
            if let McpTested::Named(name) = &tested {
                mcp.find(&asker, name).await?;
                check_all_of(&asker, name)?;
            }
            mcp.servers.test(&asker, tested).await
        })
        .await
    }

    /// Does something to its end, whether or not whoever asked for it stays, and writes down what came of it.
    async fn changing<T: Send + 'static>(
        &self,
        caller: &Caller,
        operation: &'static str,
        name: Option<&McpServerName>,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (inner, caller, target) = (Arc::clone(&self.inner), caller.clone(), name.map(ToString::to_string));
        let noted = async move {
            let done = work.await;
            let verdict = if done.is_ok() { Outcome::Completed } else { Outcome::Refused };
            // An error may repeat a part of what was sent, and that holds secrets: the log gets its word only.
            let detail = done.as_ref().err().map(|error| error.code().to_owned());
            let entry = AuditEntry::new(&caller, operation, verdict, Timestamp::now());
            inner.audit(AuditEntry { target, detail, ..entry }).await;
            done
        };
        self.inner.to_the_end(noted).await
    }
}

/// What a change of one server works with.
struct ServerChange {
    mcp: Mcp,
    caller: Caller,
    name: McpServerName,
}

impl ServerChange {
    fn of(service: &Service, caller: &Caller, name: &McpServerName) -> Result<Self> {
        let mcp = service.inner.mcp(caller, Scope::Mcp)?;
        Ok(Self { mcp, caller: caller.clone(), name: name.clone() })
    }
}

impl Inner {
    /// Who runs MCP servers, for a caller with this right.
    fn mcp(&self, caller: &Caller, scope: Scope) -> Result<Mcp> {
        caller.require(scope)?;
        Ok(self.mcp.get().cloned().ok_or(McpError::Unavailable)?)
    }
}

impl Mcp {
    async fn take_turn(&self) -> Result<tokio::sync::OwnedSemaphorePermit> {
        // Nobody closes it.
        Arc::clone(&self.turn).acquire_owned().await.map_err(|_| Error::Stopping)
    }

    async fn find(&self, caller: &Caller, name: &McpServerName) -> Result<McpServerInfo> {
        let found = self.servers.get(caller, name).await?;
        match found.filter(|_| caller.mcp.allows_some_of(name.as_str())) {
            Some(server) => Ok(server),
            None => Err(McpError::not_found(caller, name, &self.servers.list(caller).await?).into()),
        }
    }

    /// A server that callers may change.
    async fn find_changeable(&self, caller: &Caller, name: &McpServerName) -> Result<()> {
        let server = self.find(caller, name).await?;
        check_all_of(caller, name)?;
        changeable(&server)
    }

    /// Refuses to define what is the operator's, and one server too many.
    async fn make_room(&self, caller: &Caller, name: &McpServerName) -> Result<Created> {
        if let Some(server) = self.servers.get(caller, name).await? {
            return changeable(&server).map(|()| Created::Existing);
        }
        if self.servers.list(caller).await?.len() < limits::MCP_SERVERS_MAX {
            return Ok(Created::New);
        }
        Err(Error::Capacity {
            what: "MCP server".to_owned(),
            limit: limits::MCP_SERVERS_MAX,
            fix: "remove one that is not needed any more".to_owned(),
        })
    }
}

/// Refuses a server of which the caller's token may use nothing, or only a part.
fn check_all_of(caller: &Caller, name: &McpServerName) -> Result<()> {
    if caller.mcp.allows_all_of(name.as_str()) {
        return Ok(());
    }
    Err(McpError::Denied { name: name.clone() }.into())
}

fn changeable(server: &McpServerInfo) -> Result<()> {
    match server.source {
        McpSource::Config => Err(McpError::Fixed { name: server.name.clone() }.into()),
        McpSource::Stored => Ok(()),
    }
}

#[cfg(test)]
mod tests;
