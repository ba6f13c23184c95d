//! What is remembered of a saved box: one that others begin with.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::caller::TenantId;

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
