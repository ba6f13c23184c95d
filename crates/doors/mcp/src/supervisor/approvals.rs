//! Approved tools of the servers that pin their tools: in memory for listing, and in the store.
//!
//! Tools that a server offers when it is first connected are approved. They are stored before a client sees them: after a
//! crash, the server must not be trusted for a second time.

use std::collections::BTreeMap;
use std::sync::Arc;

use box_core::mcp::McpServerName;
use box_core::store::{Change, McpApprovalsRow, McpServerKey, Wait};
use box_core::{Error, Result, Store};
use box_wire::Invalid;
use jiff::Timestamp;
use tokio::sync::Mutex;

use crate::upstream::{Fingerprints, Pins, Upstream, fingerprints};

/// Approved tools of all servers. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(super) struct Approvals {
    store: Arc<dyn Store>,
    /// A lock serializes changes, so that memory and store agree.
    known: Arc<Mutex<BTreeMap<McpServerKey, Pins>>>,
    /// The default for servers whose definition does not set `pin_tools`.
    by_default: bool,
}

impl Approvals {
    /// Loads approvals from the store.
    pub(super) async fn open(store: Arc<dyn Store>, by_default: bool) -> Result<Self> {
        let rows = store.mcp_approvals().await?;
        let known = rows.into_iter().map(|row| (row.key, Pins::new(row.tools))).collect();
        Ok(Self { store, known: Arc::new(Mutex::new(known)), by_default })
    }

    /// Restricts a newly connected server to approved tools, if its definition requires that.
    pub(super) async fn pin(&self, key: &McpServerKey, wanted: Option<bool>, upstream: &Upstream) -> Result<()> {
        if !wanted.unwrap_or(self.by_default) {
            return Ok(());
        }
        let mut known = self.known.lock().await;
        if !known.contains_key(key) {
            let first = fingerprints(&upstream.lists().offered);
            self.remember(key, first.clone()).await?;
            known.insert(key.clone(), Pins::new(first));
        }
        let pins = known.get(key).cloned().unwrap_or_default();
        upstream.pin(pins);
        Ok(())
    }

    /// Approves tools as a server offers them now: those with these fingerprints, or all.
    pub(super) async fn approve(
        &self,
        key: &McpServerKey,
        upstream: &Upstream,
        tools: Option<&Fingerprints>,
    ) -> Result<Vec<String>> {
        let known = self.known.lock().await;
        let Some(pins) = known.get(key).filter(|_| upstream.is_pinned()) else { return Err(not_pinned(&key.name)) };
        let offered = fingerprints(&upstream.lists().offered);
        let mut approved = pins.approved();
        // Approvals cover current tools only: a tool that disappears is new when it returns.
        approved.retain(|name, _| offered.contains_key(name));
        for (name, fingerprint) in tools.unwrap_or(&offered) {
            match offered.get(name) {
                Some(now) if now == fingerprint => drop(approved.insert(name.clone(), now.clone())),
                Some(_) => return Err(changed_again(name)),
                None => return Err(not_offered(name, &offered)),
            }
        }
        let before = pins.approved();
        self.remember(key, approved.clone()).await?;
        let new = approved.iter().filter(|(name, print)| before.get(*name) != Some(*print));
        let new = new.map(|(name, _)| name.clone()).collect();
        pins.replace(approved);
        upstream.sort_out();
        Ok(new)
    }

    /// Forgets all servers but these.
    pub(super) async fn retain(&self, is_defined: impl Fn(&McpServerKey) -> bool) -> Result<()> {
        let gone: Vec<_> = self.known.lock().await.keys().filter(|key| !is_defined(key)).cloned().collect();
        for key in gone {
            self.forget(&key).await?;
        }
        Ok(())
    }

    /// Forgets a server.
    pub(super) async fn forget(&self, key: &McpServerKey) -> Result<()> {
        self.known.lock().await.remove(key);
        self.store.write(Change::DeleteMcpApprovals(key.clone()), Wait::Committed).await
    }

    async fn remember(&self, key: &McpServerKey, tools: Fingerprints) -> Result<()> {
        let row = McpApprovalsRow { key: key.clone(), tools, approved_at: Timestamp::now() };
        self.store.write(Change::PutMcpApprovals(Box::new(row)), Wait::Committed).await
    }
}

fn not_pinned(name: &McpServerName) -> Error {
    let what = format!("the MCP server {name} does not pin its tools");
    Error::Conflict { what, fix: "set pin_tools = true in its definition or in [mcp]".to_owned() }
}

/// The error for a server without known tools.
pub(super) fn not_connected(name: &McpServerName) -> Error {
    let what = format!("the MCP server {name} is not connected, so its tools are unknown");
    Error::Conflict { what, fix: "enable or restart it first".to_owned() }
}

fn changed_again(name: &str) -> Error {
    let what = format!("the tool {name} is not what it was when it was looked at");
    Error::Conflict { what, fix: "run `strongbox mcp show` again before approving it".to_owned() }
}

fn not_offered(name: &str, offered: &Fingerprints) -> Error {
    const NAMED_MAX: usize = 32;
    let names: Vec<_> = offered.keys().take(NAMED_MAX).map(String::as_str).collect();
    Invalid::new("tools", name, format!("tools that the server has: {}", names.join(", "))).into()
}
