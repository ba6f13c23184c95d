//! The door as a whole: its settings, how it stands, and the end of what its clients hold.

use std::io::Read;
use std::path::Path;

use box_core::SafeRoot;
use box_core::hexadecimal::sha256;
use box_core::session::SessionInfo;
use rustix::fs::{FileType, fstat};
use serde_json::{Map, Value, json};

use super::{Answer, Call, HostCall, told};
use crate::Client;
use crate::fault::{Class, Fault};
use crate::standing::blocking;
use crate::tenancy::TenancyScope;

/// How the names of files begin that show whether a volume is shared.
const MARKER_PREFIX: &str = ".langbot-box-volume-probe-";
/// Most bytes of such a file.
const MARKER_BYTES_MAX: u64 = 1024;

/// Lays settings over those that hold.
pub(super) async fn init(call: HostCall<'_>) -> Answer {
    call.door.change_settings(call.data).await?;
    Ok(told("initialized", true))
}

/// Whether sandboxes can be made.
pub(super) async fn health(call: &HostCall<'_>) -> Answer {
    match call.door.readiness().await {
        None => Ok(call.door.backend_info().await),
        Some(readiness) if readiness.is_ready() => Ok(readiness.shown()),
        Some(_) => Err(Fault::new(Class::Readiness, "managed sandbox isolation is not ready")),
    }
}

/// The backend of sandboxes.
pub(super) async fn backend_info(call: &HostCall<'_>) -> Answer {
    let mut info = call.door.backend_info().await;
    if let Some(readiness) = call.door.readiness().await {
        info.insert("readiness".to_owned(), Value::Object(readiness.shown()));
    }
    Ok(info)
}

/// How a workspace stands.
pub(super) async fn status(call: &Call<'_>) -> Answer {
    let (door, settings) = (call.door, call.door.settings());
    let WorkspaceUsage { sessions, used, by_all } = WorkspaceUsage::look(call).await?;
    let max_sessions = settings.limits().max_sessions;
    let limit =
        door.sessions_granted(&call.place).map_or(max_sessions, |granted| usize::try_from(granted).unwrap_or(0));
    let left = max_sessions.saturating_sub(by_all);
    let caller = call.caller()?;
    let ttl_sec = door.service().status(&caller).await.map(|status| status.session_ttl_sec).unwrap_or_default();
    let status = json!({
        "backend": door.backend_info().await,
        "active_sessions": sessions.len(),
        "managed_processes": sessions.iter().map(|session| session.processes_running).sum::<usize>(),
        "session_ttl_sec": ttl_sec,
        "limits": settings.limits().shown(),
        "capacity": { "limit": limit, "used": used, "remaining": limit.saturating_sub(used).min(left) },
    });
    Ok(status.as_object().cloned().unwrap_or_default())
}

/// Sessions of a workspace and of all clients.
#[derive(Default)]
struct WorkspaceUsage {
    sessions: Vec<SessionInfo>,
    /// Sessions of all its generations.
    used: usize,
    /// Sessions of all clients.
    by_all: usize,
}

impl WorkspaceUsage {
    /// Counts sessions; there are none without a backend.
    async fn look(call: &Call<'_>) -> Result<Self, Fault> {
        let door = call.door;
        if door.service().presence().is_err() {
            return Ok(Self::default());
        }
        let sessions = door.sessions_of(&call.place).await?;
        let used = match &call.place {
            TenancyScope::Legacy => sessions.len(),
            TenancyScope::Workspace { namespace, .. } => door.sessions_of_workspace(namespace).await?.len(),
        };
        Ok(Self { sessions, used, by_all: door.sessions_held().await? })
    }
}

/// Drops what the clients of this kind hold. The server stays.
pub(super) async fn shutdown(call: &HostCall<'_>) -> Answer {
    match &call.connection.client {
        Client::Tenant(_) => call.door.drop_all_workspaces().await?,
        Client::Legacy => call.door.drop_legacy().await?,
    }
    Ok(Map::new())
}

/// Shows that we see a file that LangBot has put into the directory of workspaces.
pub(super) async fn verify_shared_workspace(call: &HostCall<'_>) -> Answer {
    let name = call.data.get("marker_name").and_then(Value::as_str).filter(|name| is_marker(name));
    let name = name.ok_or_else(|| not_ready("Invalid Box shared Workspace probe basename"))?.to_owned();
    let workspace = call.door.settings().default_workspace().map(ToOwned::to_owned);
    let workspace = workspace.ok_or_else(|| not_ready("Box shared Workspace is not configured"))?;
    let marker = name.clone();
    let bytes = blocking(move || read_marker(&workspace, &marker)).await??;
    let seen = json!({ "marker_name": name, "sha256": sha256(&bytes), "size": bytes.len() });
    Ok(seen.as_object().cloned().unwrap_or_default())
}

fn is_marker(name: &str) -> bool {
    let digits = name.strip_prefix(MARKER_PREFIX);
    digits.is_some_and(|digits| {
        digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The bytes of a regular file of a sensible size. Links are not followed.
fn read_marker(workspace: &Path, name: &str) -> Result<Vec<u8>, Fault> {
    let unreadable = |_| not_ready("Box shared Workspace probe cannot be read");
    let file = SafeRoot::open_path(workspace).and_then(|root| root.open(name)).map_err(unreadable)?;
    let found = fstat(&file).map_err(|_| not_ready("Box shared Workspace probe cannot be examined"))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(not_ready("Box shared Workspace probe is not a regular file"));
    }
    let mut bytes = Vec::new();
    let read = file.take(MARKER_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|_| not_ready("Box shared Workspace probe cannot be read"))?;
    if bytes.is_empty() || bytes.len() as u64 > MARKER_BYTES_MAX {
        return Err(not_ready("Box shared Workspace probe must have 1 to 1024 bytes"));
    }
    Ok(bytes)
}

fn not_ready(text: &str) -> Fault {
    Fault::new(Class::Readiness, text)
}
