//! Requests to the provider and its responses, as JSON. Unknown fields are ignored.

use std::collections::BTreeMap;

use box_e2b_wire::SandboxId;
use serde::{Deserialize, Serialize};

/// Asks for a sandbox.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateRequest {
    #[serde(rename = "templateID")]
    pub(crate) template_id: String,
    /// Seconds that it lives.
    pub(crate) timeout: u64,
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(rename = "allow_internet_access")]
    pub(crate) allow_internet_access: bool,
    /// Whether its daemon requires a token; the second version of the API always does, and has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secure: Option<bool>,
}

/// A sandbox, as the provider describes it when it is created or connected to.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    #[serde(rename = "sandboxID")]
    pub(crate) id: SandboxId,
    #[serde(default)]
    pub(crate) envd_version: String,
    #[serde(default)]
    pub(crate) envd_access_token: Option<String>,
    #[serde(default)]
    pub(crate) domain: Option<String>,
}

/// A sandbox in all detail.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detail {
    #[serde(flatten)]
    pub(crate) sandbox: Sandbox,
    #[serde(default)]
    pub(crate) cpu_count: Option<f64>,
    #[serde(default, rename = "memoryMB")]
    pub(crate) memory_mb: Option<u64>,
    #[serde(default, rename = "diskSizeMB")]
    pub(crate) disk_size_mb: Option<u64>,
    pub(crate) state: State,
}

/// Whether a sandbox goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Running,
    Paused,
    #[serde(other)]
    Unknown,
}

/// A sandbox in a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed {
    #[serde(rename = "sandboxID")]
    pub(crate) id: SandboxId,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
}

/// What a sandbox consumes at one moment.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metric {
    #[serde(default)]
    pub(crate) mem_used: Option<u64>,
}
