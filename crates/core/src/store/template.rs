//! What is remembered of a saved box: one that others begin with.

use std::collections::BTreeMap;
use std::fmt;

use box_wire::GuestPath;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::caller::TenantId;
use crate::limits;
use crate::session::{HostPathMode, SessionConfig};

/// Which saved box: ids are unique.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TemplateKey {
    /// Whose it is.
    pub tenant: TenantId,
    /// Lowercase letters and digits. Its archive has the same name.
    pub id: String,
}

/// A saved box, and how boxes are made from it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct TemplateRow {
    /// Which one.
    pub key: TemplateKey,
    /// The template that it is a version of: the id of the first one of that name.
    pub template: String,
    /// The same saved box in the form in which clients expect the id of a build.
    pub build: String,
    /// What its maker calls the template.
    pub name: Option<String>,
    /// Which versions of the template it is.
    pub tags: Vec<String>,
    /// How it came about.
    pub origin: TemplateOrigin,
    /// How far it is.
    pub state: TemplateState,
    /// What the box was made from, which its archive does not hold.
    pub base: TemplateBase,
    /// Bytes of the archive.
    pub archive_bytes: u64,
    /// Variables of everything that runs in a box that is made from it.
    pub env: BTreeMap<String, String>,
    /// What holds in such a box where nobody says otherwise.
    pub defaults: TemplateDefaults,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// What holds in a box where nobody says otherwise, and what begins with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateDefaults {
    /// Who runs its commands.
    #[serde(default)]
    pub user: Option<String>,
    /// Where they run.
    #[serde(default)]
    pub workdir: Option<String>,
    /// What is started in a new box.
    #[serde(default)]
    pub start_command: Option<String>,
    /// What succeeds once that is ready.
    #[serde(default)]
    pub ready_command: Option<String>,
}

/// How a saved box came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplateOrigin {
    /// It was a sandbox of this id.
    Snapshot(String),
    /// Steps were carried out.
    Build,
}

/// How far a saved box is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplateState {
    /// Nobody said yet what is to be done.
    Waiting,
    /// It is being made.
    Building,
    /// Boxes can be made from it.
    Ready,
    /// It was not made.
    Failed {
        /// Why.
        message: String,
        /// At which step.
        step: Option<String>,
    },
}

/// What a sandbox is made from: a profile of ours, and what differs from it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TemplateBase {
    /// The profile.
    pub profile: Option<String>,
    /// The root file system.
    pub image: Option<String>,
    /// Processors.
    pub cpus: Option<f64>,
    /// Memory limit.
    pub memory_mb: Option<u64>,
    /// Most that the box can store.
    pub disk_mb: Option<u64>,
    /// Whether the root file system is read-only. Rows of older versions have none: the profile decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_rootfs: Option<bool>,
    /// Where the box's own workspace is, when not in the usual place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_path: Option<GuestPath>,
}

impl TemplateBase {
    /// What the box of a session is, which its archive does not hold.
    pub fn of(config: &SessionConfig) -> Self {
        let is_mounted = config.host_path.is_some() && config.host_path_mode != HostPathMode::None;
        let is_usual = is_mounted || config.mount_path.as_str() == limits::WORKSPACE;
        Self {
            profile: Some(config.profile.clone()),
            image: Some(config.image.clone()),
            cpus: Some(config.cpus),
            memory_mb: Some(config.memory_mb),
            disk_mb: Some(config.workspace_quota_mb).filter(|disk_mb| *disk_mb > 0),
            read_only_rootfs: Some(config.read_only_rootfs),
            mount_path: (!is_usual).then(|| config.mount_path.clone()),
        }
    }
}

impl fmt::Debug for TemplateRow {
    /// Without variables and commands, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, template, name, tags, origin, state, archive_bytes, .. } = self;
        let mut shown = f.debug_struct("TemplateRow");
        shown.field("key", key).field("template", template).field("name", name).field("tags", tags);
        shown.field("origin", origin).field("state", state).field("archive_bytes", archive_bytes);
        shown.finish_non_exhaustive()
    }
}
