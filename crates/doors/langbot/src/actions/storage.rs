//! How much a workspace stores, on the host and in its sandboxes.

mod host;
mod sandbox;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{Answer, Call};
use crate::standing::blocking;
use crate::tenancy::TenancyScope;
use crate::{LangBot, fault::Fault};

/// Counts below a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    /// Whether there is such a directory.
    exists: bool,
    /// Bytes of all files.
    size_bytes: u64,
    /// How many files.
    file_count: u64,
    /// How often something could not be looked at.
    error_count: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.exists |= other.exists;
        self.size_bytes = self.size_bytes.saturating_add(other.size_bytes);
        self.file_count = self.file_count.saturating_add(other.file_count);
        self.error_count = self.error_count.saturating_add(other.error_count);
    }
}

/// A directory in the reply.
#[derive(Debug)]
struct Entry {
    key: &'static str,
    path: String,
    parent_key: Option<&'static str>,
    scope: &'static str,
    tally: Tally,
}

impl Entry {
    fn shown(&self) -> Value {
        let mut shown = Map::new();
        shown.insert("key".to_owned(), json!(self.key));
        shown.insert("path".to_owned(), json!(self.path));
        shown.insert("kind".to_owned(), json!(if self.parent_key.is_none() { "root" } else { "detail" }));
        if let Some(parent_key) = self.parent_key {
            shown.insert("parent_key".to_owned(), json!(parent_key));
        }
        shown.insert("exists".to_owned(), json!(self.tally.exists));
        shown.insert("size_bytes".to_owned(), json!(self.tally.size_bytes));
        shown.insert("file_count".to_owned(), json!(self.tally.file_count));
        shown.insert("error_count".to_owned(), json!(self.tally.error_count));
        shown.insert("scope".to_owned(), json!(self.scope));
        Value::Object(shown)
    }
}

/// How much a workspace stores.
pub(super) async fn analysis(call: &Call<'_>) -> Answer {
    let sessions = call.door.sessions_of(&call.place).await?;
    let mut entries = on_host(call.door, &call.place).await?;
    if !sessions.is_empty() {
        entries.extend(sandbox::entries(call, &sessions).await?);
    }
    let roots = entries.iter().filter(|entry| entry.parent_key.is_none());
    let size_bytes = roots.fold(0_u64, |sum, entry| sum.saturating_add(entry.tally.size_bytes));
    let analysis = json!({
        "size_bytes": size_bytes,
        "directories": entries.iter().map(Entry::shown).collect::<Vec<_>>(),
        "active_sessions": sessions.len(),
        "managed_processes": sessions.iter().map(|session| session.processes_running).sum::<usize>(),
    });
    Ok(analysis.as_object().cloned().unwrap_or_default())
}

async fn on_host(door: &LangBot, place: &TenancyScope) -> Result<Vec<Entry>, Fault> {
    let settings = door.settings();
    let Some(base) = settings.default_workspace() else { return Ok(Vec::new()) };
    let below = match place {
        TenancyScope::Legacy => String::new(),
        TenancyScope::Workspace { namespace, .. } => format!("tenants/{namespace}"),
    };
    let base = base.to_owned();
    blocking(move || {
        let tree = |key, name: &str, parent_key| {
            let path: PathBuf = Path::new(&below).join(name).components().collect();
            let tally = host::measure(&base, &path);
            let path = base.components().chain(path.components()).collect::<PathBuf>().display().to_string();
            Entry { key, path, parent_key, scope: "runtime_host", tally }
        };
        vec![
            tree("workspace", "", None),
            tree("mcp", ".mcp", Some("workspace")),
            tree("inbox", "inbox", Some("workspace")),
            tree("outbox", "outbox", Some("workspace")),
        ]
    })
    .await
}

impl LangBot {
    /// The directory of a workspace on the host, when there are any.
    pub(crate) fn workspace_of(&self, place: &TenancyScope) -> Option<PathBuf> {
        let settings = self.settings();
        let base = settings.default_workspace()?;
        Some(match place {
            TenancyScope::Legacy => base.to_owned(),
            TenancyScope::Workspace { namespace, .. } => base.join("tenants").join(namespace),
        })
    }
}
