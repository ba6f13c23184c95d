//! What a user holds: an id, what was asked of the box behind it, and a lifetime.

mod id;
mod lease_end;
mod pattern;
mod request;
mod resolve;

use std::collections::BTreeSet;
use std::path::PathBuf;

use box_wire::GuestPath;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::profile::{Account, LockedField};
use crate::volumes::MountedVolume;
use crate::{BackendName, Guarantees, Network};

pub use id::SessionId;
pub use lease_end::LeaseEnd;
pub use pattern::SessionPattern;
pub(crate) use request::check_ttl;
pub use request::{
    AbsentSession, ChangedMounts, Difference, DoorRules, ExtraMount, LoneMountPath, SessionRequest, SkillMounts,
    UnknownImage, VanishedBox,
};
pub use resolve::SessionDefaults;

/// What a session is, fully decided: profile and request taken together. Fixed when the session is made, but for the lifetime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionConfig {
    /// The profile that it was made from.
    pub profile: String,
    /// What the box can reach.
    #[schema(value_type = String, example = "off")]
    pub network: Network,
    /// Root file system, as it was asked for.
    pub image: String,
    /// Directory of the host that is the workspace.
    pub host_path: Option<String>,
    /// What the box may do with it.
    pub host_path_mode: HostPathMode,
    /// Where the workspace is in the box.
    #[schema(value_type = String, example = "/workspace")]
    pub mount_path: GuestPath,
    /// More trees of the host.
    pub extra_mounts: Vec<ExtraMount>,
    /// A directory of the service's own that the box writes to and that outlives it; boxes of MCP servers have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptDirectory>,
    /// Volumes that it mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<MountedVolume>,
    /// Processors.
    pub cpus: f64,
    /// Memory limit.
    pub memory_mb: u64,
    /// Most processes at once.
    pub pids_limit: u64,
    /// Whether everything but the work places is read-only.
    pub read_only_rootfs: bool,
    /// Who its commands are when they do not say. Its profile decides.
    #[serde(default)]
    pub user: Account,
    /// Whether its profile gives root of the box capabilities over what is the box's own. What became of it is told by the
    /// guarantee `identity`.
    #[serde(default)]
    pub root_capabilities: bool,
    /// Most that the box can store, and most that a writable workspace of the host may hold; 0 = the default, and no limit there.
    pub workspace_quota_mb: u64,
    /// Whether the session outlives idleness and a stop of the server.
    pub persistent: bool,
    /// When its box ends itself although something runs in it, if no server is there.
    #[serde(default, skip_serializing_if = "LeaseEnd::is_never")]
    #[schema(ignore)]
    pub lease_end: LeaseEnd,
    /// Idle time after which the session is removed.
    pub ttl_sec: u64,
    /// Deadline of a command that names none.
    pub timeout_sec: u64,
    /// Longest deadline that a command may ask for.
    pub timeout_sec_max: u64,
    /// What a passed deadline does to the session.
    pub on_timeout: OnTimeout,
    /// Environment of every command, before the command's own.
    #[schema(value_type = Vec<Vec<String>>)]
    pub env: Vec<(String, String)>,
    /// Archive of a snapshot from which its box was made, and is made again.
    #[serde(rename = "seed", default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub snapshot: Option<PathBuf>,
    /// The snapshot or template that it was made from, `NAME:TAG` or `ID:TAG`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_snapshot: Option<String>,
    /// What its profile locked when it was made. Kept with it, because the profile may be another one by now; callers see it in
    /// the list of profiles.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(ignore)]
    pub locked: BTreeSet<LockedField>,
}

/// A directory of the service's own, in which a box keeps what outlives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct KeptDirectory {
    /// Its real path on the host.
    pub host_path: String,
    /// Where it is in the box.
    #[schema(value_type = String)]
    pub mount_path: GuestPath,
    /// Most that it may hold.
    pub quota_mb: u64,
    /// What the box may do with it.
    #[serde(default)]
    pub mode: HostPathMode,
}

/// What a box may do with its workspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HostPathMode {
    /// The directory is not mounted.
    None,
    /// Read it.
    Ro,
    /// Read and write it.
    #[default]
    Rw,
}

/// What a passed deadline does to the session of the command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    /// Only the command dies.
    #[default]
    Keep,
    /// The session is destroyed with it.
    Destroy,
}

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Its box is being made.
    Creating,
    /// Its box runs.
    Running,
    /// Its box is stopped where it was.
    Paused,
    /// Its box is being removed.
    Destroying,
    /// Its box is gone without having been asked to; the reason is told.
    Lost,
}

/// A session, as callers see it.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct SessionInfo {
    /// The caller's id.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// How it stands.
    pub state: SessionState,
    /// Where its box lives.
    #[schema(value_type = String, example = "native")]
    pub backend_name: BackendName,
    /// The box behind it.
    pub backend_session_id: String,
    /// What it is.
    #[serde(flatten)]
    pub config: SessionConfig,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it was last used.
    #[schema(value_type = String, format = DateTime)]
    pub last_used_at: Timestamp,
    /// When it will be removed if it is not used; nothing while something keeps it.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// Commands that run now.
    pub execs_running: usize,
    /// Managed processes that run now.
    pub processes_running: usize,
    /// What is enforced, and how strongly.
    #[schema(value_type = Vec<Object>)]
    pub guarantees: Guarantees,
    /// Why it was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_reason: Option<String>,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    /// Only those in this state.
    pub state: Option<SessionState>,
    /// Only those whose id starts like this.
    pub prefix: Option<String>,
    /// Only those after this id, in order of ids: the last of the page before.
    pub after: Option<SessionId>,
    /// At most this many; bounded by [`crate::limits::PAGE_MAX`].
    pub limit: Option<usize>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPage {
    /// The sessions, in order of their ids.
    pub sessions: Vec<SessionInfo>,
    /// Where the next page starts, when there is one.
    pub next: Option<SessionId>,
}
