//! What can be asked of the servers of a tenant.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use box_core::mcp::{
    McpError, McpImported, McpKind, McpLogLine, McpLogSource, McpNumbers, McpRemark, McpRenamed, McpServerInfo,
    McpServerName, McpServers, McpSkipped, McpStatus, McpSwitch, McpTestReport, McpTested,
};
use box_core::store::{Change, Wait};
use box_core::{Caller, Error, Result};
use box_wire::Invalid;
use jiff::Timestamp;
use serde_json::Value;

use super::approvals::not_connected;
use super::attempt::Parts;
use super::defined::{Author, Defined};
use super::line::Line;
use super::placement::{directory_remarks, process_id};
use super::seen::Seen;
use super::{Server, Supervisor, trial};
use crate::definition::{Kind, ServerDefinition, shorten};
use crate::gateway::{Tally, Upstreams as _};
use crate::import::{Remark, import};
use crate::limits::STDERR_LINE_CHARS_MAX;
use crate::text::clean;

/// Most held tools of one server in a list of servers.
const HELD_TOOLS_LISTED: usize = 32;
/// Bytes of standard error to read for each requested line of the log.
const BYTES_PER_LINE: usize = 256;
/// Most that is read of it.
const STDERR_BYTES_MAX: usize = 1 << 20;

#[async_trait]
impl McpServers for Supervisor {
    async fn list(&self, caller: &Caller) -> Result<Vec<McpServerInfo>> {
        let mut servers: Vec<_> = self.inner.of_tenant(&caller.tenant).iter().map(Server::info).collect();
        for server in &mut servers {
            shorten(&mut server.definition);
            server.runtime_info.held_tools.truncate(HELD_TOOLS_LISTED);
            server.runtime_info.held_tools.iter_mut().for_each(|tool| tool.description.clear());
        }
        Ok(servers)
    }

    async fn get(&self, caller: &Caller, name: &McpServerName) -> Result<Option<McpServerInfo>> {
        Ok(self.inner.find(&caller.tenant, name).as_ref().map(Server::info))
    }

    async fn put(&self, caller: &Caller, name: &McpServerName, definition: Value) -> Result<McpServerInfo> {
        let defined = Defined::by(caller, name, &definition)?;
        self.keep(defined).await
    }

    async fn remove(&self, caller: &Caller, name: &McpServerName) -> Result<()> {
        let server = self.need(caller, name)?;
        let key = server.defined.key.clone();
        // First the store: a server that was reported as removed must not return at the next start.
        self.inner.store.write(Change::DeleteMcpServer(key.clone()), Wait::Committed).await?;
        self.inner.forget(&key).await;
        // After the definition: if this fails, a later server of this name has its tools held, which is safe.
        self.inner.parts.approvals.forget(&key).await?;
        self.inner.vacate(&server).await;
        Ok(())
    }

    async fn set_enabled(&self, caller: &Caller, name: &McpServerName, switch: McpSwitch) -> Result<McpServerInfo> {
        let server = self.need(caller, name)?;
        let enabled = switch == McpSwitch::Enabled;
        if server.defined.definition.enabled == enabled {
            return Ok(server.info());
        }
        let definition = ServerDefinition { enabled, ..server.defined.definition.clone() };
        let updated_at = Some(Timestamp::now());
        let info = self.keep(Defined { definition, updated_at, ..(*server.defined).clone() }).await?;
        if let Some(control) = server.control {
            control.end().await;
        }
        Ok(info)
    }

    async fn import(&self, caller: &Caller, document: Value, room: usize) -> Result<McpImported> {
        let read = import(&document.to_string(), &BTreeSet::new())?;
        let mut told = McpImported::default();
        let mut room = room;
        told.skipped.extend(read.refused.iter().map(|(name, invalid)| skipped(name, &invalid.to_string())));
        for definition in read.definitions {
            let name = definition.name.clone();
            match self.import_one(caller, &name, definition, &mut room).await {
                Ok(info) => {
                    let written = read.renamed.iter().find(|(_, to)| *to == name).map(|(from, _)| from.as_str());
                    let texts = self.remarks_on(caller, &name).into_iter();
                    told.remarks.extend(texts.map(|text| remark(written.unwrap_or(name.as_str()), text)));
                    told.servers.push(info);
                }
                Err(error) => told.skipped.push(skipped(name.as_str(), &error.to_string())),
            }
        }
        let is_taken = |remark: &Remark| told.skipped.iter().all(|skipped| skipped.name != remark.server);
        let said =
            read.remarks.into_iter().filter(is_taken).map(|one| remark(&one.server, one.text)).collect::<Vec<_>>();
        told.remarks.splice(..0, said);
        for (from, to) in read.renamed {
            if told.servers.iter().any(|server| server.name == to) {
                told.renamed.push(McpRenamed { from, to });
            }
        }
        Ok(told)
    }

    async fn test(&self, caller: &Caller, tested: McpTested) -> Result<McpTestReport> {
        let defined = match tested {
            McpTested::Named(name) => (*self.need(caller, &name)?.defined).clone(),
            McpTested::Definition(definition) => tried(caller, &definition)?,
        };
        let _turn = self.inner.trials.acquire().await.map_err(|_| Error::Stopping)?;
        trial::run(&self.inner.parts, defined).await
    }

    async fn restart(&self, caller: &Caller, name: &McpServerName) -> Result<McpServerInfo> {
        let server = self.need(caller, name)?;
        if server.control.is_none() {
            let what = format!("the MCP server {name} is disabled");
            return Err(Error::Conflict { what, fix: "enable it first".to_owned() });
        }
        server.restart();
        Ok(server.info())
    }

    async fn approve(
        &self,
        caller: &Caller,
        name: &McpServerName,
        tools: Option<BTreeMap<String, String>>,
    ) -> Result<McpServerInfo> {
        let server = self.need(caller, name)?;
        let upstream = server.seen.upstream().ok_or_else(|| not_connected(name))?;
        let approved = self.inner.parts.approvals.approve(&server.defined.key, &upstream, tools.as_ref()).await?;
        if !approved.is_empty() {
            server.seen.note(McpLogSource::Supervisor, &format!("approved: {}", approved.join(" ")));
        }
        Ok(server.info())
    }

    fn numbers(&self) -> McpNumbers {
        let mut servers = McpStatus::ALL.map(|status| (status, 0));
        for server in self.inner.lock().values() {
            let status = server.seen.status();
            servers.iter_mut().filter(|(known, _)| *known == status).for_each(|(_, count)| *count += 1);
        }
        let calls = self.tally().map(Tally::numbers).unwrap_or_default();
        McpNumbers { servers: servers.to_vec(), ..calls }
    }

    async fn logs(&self, caller: &Caller, name: &McpServerName, lines: usize) -> Result<Vec<McpLogLine>> {
        let server = self.need(caller, name)?;
        let mut log = server.seen.log();
        log.extend(stderr(&self.inner.parts, &server, lines).await);
        log.drain(..log.len().saturating_sub(lines));
        Ok(log)
    }
}

impl Supervisor {
    fn need(&self, caller: &Caller, name: &McpServerName) -> Result<Server> {
        let found = self.inner.find(&caller.tenant, name);
        let infos = || self.inner.of_tenant(&caller.tenant).iter().map(Server::info).collect::<Vec<_>>();
        found.ok_or_else(|| McpError::not_found(caller, name, &infos()).into())
    }

    /// Remembers a definition, and puts it into effect.
    async fn keep(&self, defined: Defined) -> Result<McpServerInfo> {
        let row = Change::PutMcpServer(Box::new(defined.row()));
        self.inner.store.write(row, Wait::Committed).await?;
        Ok(self.inner.define(defined).info())
    }

    /// What to know of an imported server that its file does not say.
    fn remarks_on(&self, caller: &Caller, name: &McpServerName) -> Vec<String> {
        let Ok(Server { defined, .. }) = self.need(caller, name) else { return Vec::new() };
        let image = defined.definition.options.image.as_deref();
        let refused = image.and_then(|image| self.inner.parts.service.image_refusal(image));
        refused.map(|error| error.to_string()).into_iter().chain(directory_remarks(&defined)).collect()
    }

    async fn import_one(
        &self,
        caller: &Caller,
        name: &McpServerName,
        definition: ServerDefinition,
        room: &mut usize,
    ) -> Result<McpServerInfo> {
        if !caller.mcp.allows_all_of(name.as_str()) {
            return Err(McpError::Denied { name: name.clone() }.into());
        }
        match self.inner.find(&caller.tenant, name) {
            Some(server) if server.is_fixed() => return Err(McpError::Fixed { name: name.clone() }.into()),
            Some(_) => {}
            None => {
                let full =
                    || Invalid::new("mcpServers", name.as_str(), "fewer servers; remove some that are not needed");
                *room = room.checked_sub(1).ok_or_else(full)?;
            }
        }
        self.keep(Defined::by(caller, name, &definition.revealed())?).await
    }
}

/// A definition that is only tried. It may have a name or none.
fn tried(caller: &Caller, definition: &Value) -> Result<Defined> {
    let name = definition.get("name").and_then(Value::as_str).unwrap_or("test").parse()?;
    let defined = Defined::by(caller, &name, definition)?;
    Ok(Defined { author: Author::of(caller), ..defined })
}

fn skipped(name: &str, reason: &str) -> McpSkipped {
    McpSkipped { name: name.to_owned(), reason: reason.to_owned() }
}

fn remark(name: &str, text: String) -> McpRemark {
    McpRemark { name: name.to_owned(), text }
}

impl Server {
    pub(super) fn info(&self) -> McpServerInfo {
        let Self { defined, seen, .. } = self;
        McpServerInfo {
            name: defined.key.name.clone(),
            kind: kind(&defined.definition),
            enabled: defined.definition.enabled,
            source: defined.source,
            status: seen.status(),
            tools: seen.tools(),
            runtime_info: seen.runtime(),
            definition: serde_json::to_value(&defined.definition).unwrap_or_default(),
            updated_at: defined.updated_at,
        }
    }

    /// The process of the server, where it has one in a session.
    pub(super) fn line(&self, parts: &Parts) -> Option<Line> {
        let session = self.session()?;
        let process = process_id(&self.defined).ok()?;
        Some(Line::new(parts.service.clone(), self.defined.caller(), session, process))
    }

    /// The session that it is, or last was, in.
    pub(super) fn session(&self) -> Option<box_core::SessionId> {
        self.seen.runtime().box_session_id
    }
}

/// What a server is.
pub(super) fn kind(definition: &ServerDefinition) -> McpKind {
    match definition.kind {
        Kind::Stdio(_) => McpKind::Stdio,
        Kind::Remote(_) => McpKind::Remote,
    }
}

/// Standard error of the server's process. A server without a process has none, and one on the host only its last
/// lines.
async fn stderr(parts: &Parts, server: &Server, lines: usize) -> Vec<McpLogLine> {
    let line = |text: String| McpLogLine { source: McpLogSource::Stderr, text };
    let Some(process) = server.line(parts) else { return last_words(&server.seen).into_iter().map(line).collect() };
    let bytes_max = lines.saturating_mul(BYTES_PER_LINE).min(STDERR_BYTES_MAX);
    let said = process.stderr(bytes_max).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&said);
    let shown = text.lines().map(|text| clean(text, STDERR_LINE_CHARS_MAX)).filter(|text| !text.trim().is_empty());
    shown.map(line).collect()
}

fn last_words(seen: &Seen) -> Vec<String> {
    seen.runtime().stderr_tail
}
