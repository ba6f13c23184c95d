//! The configuration with its meaning: what the parts of the server are given.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use box_core::audit::{AuditOptions, CommandText};
use box_core::mcp::McpServerName;
use box_core::profile::{DraftProblem, ProfileDraft};
use box_core::service::StopMode;
use box_core::{BackendName, ImagePolicy, Profiles, PullPolicy, ServiceConfig};
use box_host::network::{Method, Subnet};
use box_images::ImagesConfig;
use door_e2b::E2bConfig;
use door_http::{ListenConfig, TlsFiles};
use door_langbot::LangBotConfig;
use door_rest::SkillsConfig;
use serde::{Deserialize, Deserializer};

use super::Settings;
use super::backends::{BackendRequest, E2bBackendTable, EngineTable, NsjailTable};
use super::e2b::E2bTable;
use crate::fault::Fault;
use crate::serve::doors::DoorsConfig;

/// The whole configuration. Its fields are the keys of the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) enabled: bool,
    pub(crate) backend: BackendRequest,
    pub(crate) backend_order: Vec<BackendName>,
    pub(crate) network_method: Option<Method>,
    pub(crate) reserved: Vec<Subnet>,
    #[serde(deserialize_with = "unless_none")]
    pub(crate) listen: Option<SocketAddr>,
    #[serde(deserialize_with = "unless_none")]
    pub(crate) unix_socket: Option<PathBuf>,
    pub(crate) state_dir: PathBuf,
    pub(crate) tls: Option<Tls>,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) allowed_origins: Vec<String>,
    pub(crate) session_ttl_sec: u64,
    pub(crate) terminal_unattended_sec: u64,
    pub(crate) max_sessions: usize,
    pub(crate) max_managed_processes: usize,
    pub(crate) output_limit_chars: usize,
    pub(crate) journal_mb: u64,
    pub(crate) journal_session_mb: u64,
    pub(crate) journal_tenant_mb: u64,
    pub(crate) tenant_share_percent: u64,
    pub(crate) disk_reserve_mb: u64,
    pub(crate) default_profile: String,
    #[serde(deserialize_with = "profiles")]
    pub(crate) profiles: Profiles,
    pub(crate) session_template: String,
    pub(crate) forced_session_template: String,
    pub(crate) images: BTreeMap<String, String>,
    pub(crate) allowed_images: Vec<String>,
    pub(crate) image_pull: PullPolicy,
    pub(crate) image_pull_timeout_sec: u64,
    pub(crate) image_auth_file: Option<PathBuf>,
    pub(crate) host_root: Option<PathBuf>,
    pub(crate) default_workspace: Option<PathBuf>,
    pub(crate) allowed_mount_roots: Vec<PathBuf>,
    pub(crate) skills_root: PathBuf,
    pub(crate) skills: SkillsTable,
    pub(crate) workspace_quota_mb: u64,
    pub(crate) langbot: LangBotTable,
    pub(crate) e2b_door: E2bTable,
    pub(crate) docker: EngineTable,
    pub(crate) podman: EngineTable,
    #[serde(default)]
    pub(crate) nsjail: NsjailTable,
    pub(crate) e2b: E2bBackendTable,
    pub(crate) mcp: McpTable,
    pub(crate) audit: Audit,
    pub(crate) on_stop: OnStop,
    pub(crate) log: String,
}

/// Where the certificate is.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Where new skills may come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillsTable {
    pub(crate) allow_urls: bool,
    pub(crate) allow_loopback_urls: bool,
    pub(crate) checkout_roots: Vec<PathBuf>,
}

/// What LangBot's clients may do.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LangBotTable {
    pub(crate) legacy: bool,
    pub(crate) control_token_file: Option<PathBuf>,
    pub(crate) allowed_mount_roots: Option<Vec<PathBuf>>,
    pub(crate) backend_name: Option<String>,
}

/// MCP servers of the operator.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpTable {
    /// Whether there are MCP servers at all, these and those of callers.
    pub(crate) enabled: bool,
    /// Whether servers run on this machine itself where there is no backend.
    pub(crate) host_fallback: bool,
    /// Most that the servers of one box may keep when the box is gone; 0 = nothing is kept.
    pub(crate) kept_mb: u64,
    /// Whether changed tools are held until approved, for servers whose definition does not set it.
    pub(crate) pin_tools: bool,
    /// Definitions by name, secrets included.
    pub(crate) servers: BTreeMap<McpServerName, serde_json::Value>,
}

impl std::fmt::Debug for McpTable {
    /// Without the definitions, which hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let servers: Vec<&McpServerName> = self.servers.keys().collect();
        let mut shown = f.debug_struct("McpTable");
        shown
            .field("enabled", &self.enabled)
            .field("host_fallback", &self.host_fallback)
            .field("kept_mb", &self.kept_mb)
            .field("pin_tools", &self.pin_tools);
        shown.field("servers", &servers).finish()
    }
}

/// What is kept of who did what.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Audit {
    pub(crate) commands: CommandText,
    pub(crate) file_mb: u64,
    pub(crate) files: usize,
    pub(crate) key_file: Option<PathBuf>,
}

/// What becomes of boxes when the server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnStop {
    /// All stay.
    KeepAll,
    /// Persistent sessions stay.
    KeepPersistent,
    /// None stays.
    DestroyAll,
}

impl From<OnStop> for StopMode {
    fn from(on_stop: OnStop) -> Self {
        match on_stop {
            OnStop::KeepPersistent => Self::KeepPersistent,
            OnStop::KeepAll => Self::KeepAll,
            OnStop::DestroyAll => Self::DestroyAll,
        }
    }
}

impl Settings {
    /// Gives the settings their meaning. Their values were checked one by one before.
    pub(crate) fn config(&self) -> Result<Config, Fault> {
        let mut root = serde_json::Map::new();
        for (name, setting) in self.iter() {
            let Some(setting) = setting else { continue };
            let value = setting.value.revealed();
            match name.split_once('.') {
                None => drop(root.insert(name.to_owned(), value)),
                Some((table, key)) => {
                    let table = root.entry(table).or_insert_with(|| serde_json::json!({}));
                    table[key] = value;
                }
            }
        }
        serde_json::from_value(root.into())
            .map_err(|error| Fault::new(format!("the configuration cannot be used: {error}")))
    }
}

impl Config {
    /// What the service is given.
    pub(crate) fn service(&self) -> ServiceConfig {
        ServiceConfig {
            session_ttl_sec: self.session_ttl_sec,
            terminal_unattended: Duration::from_secs(self.terminal_unattended_sec),
            max_sessions: self.max_sessions,
            max_managed_processes: self.max_managed_processes,
            output_limit_chars: self.output_limit_chars,
            journal_bytes_max: self.journal_mb << 20,
            journal_session_bytes_max: self.journal_session_mb << 20,
            journal_tenant_bytes_max: self.journal_tenant_mb << 20,
            tenant_share_percent: self.tenant_share_percent,
            state_dir: Some(self.state_dir.clone()),
            disk_reserve_mb: self.disk_reserve_mb,
            profiles: self.profiles.clone(),
            default_profile: self.default_profile.clone(),
            workspace_quota_mb: self.workspace_quota_mb,
            // The first volumes were E2B's, and sessions remember where theirs are.
            volumes_dir: Some(self.state_dir.join("e2b/volumes")),
            volume_mb: self.e2b_door.volume_mb,
            session_template: self.session_template.clone(),
            forced_session_template: self.forced_session_template.clone(),
            images: self.images.clone(),
            allowed_images: self.allowed_images.clone(),
            engine_images: self.engine_images(),
            ..ServiceConfig::default()
        }
    }

    /// How the native backend keeps and fetches images.
    pub(crate) fn image_store(&self) -> ImagesConfig {
        ImagesConfig {
            pull: self.image_pull,
            timeout: Duration::from_secs(self.image_pull_timeout_sec),
            auth_file: self.image_auth_file.clone(),
            named_registries: Some(self.image_policy().named_registries()),
            ..ImagesConfig::default()
        }
    }

    /// The image that the engine uses anyway. Where an engine is only one of several backends, callers need permission to name its
    /// image: another backend would have to fetch it.
    fn engine_images(&self) -> Vec<String> {
        match self.backend {
            BackendRequest::One(BackendName::Docker) => vec![self.docker.image.clone()],
            BackendRequest::One(BackendName::Podman) => vec![self.podman.image.clone()],
            BackendRequest::One(BackendName::E2b) => vec![self.e2b.template.clone()],
            BackendRequest::One(BackendName::Native | BackendName::Nsjail) | BackendRequest::Auto => Vec::new(),
        }
    }

    /// What names of images mean, and which may be used.
    pub(crate) fn image_policy(&self) -> ImagePolicy<'_> {
        ImagePolicy { names: &self.images, allowed: &self.allowed_images, own: &[] }
    }

    /// What the doors are given, but for the skills themselves, for E2B and for MCP.
    pub(crate) fn doors(&self, langbot: LangBotConfig) -> DoorsConfig {
        let tls = self.tls.clone().map(|Tls { certificate, key }| TlsFiles { certificate, key });
        DoorsConfig {
            listen: ListenConfig {
                listen: self.listen,
                unix_socket: self.unix_socket.clone(),
                tls,
                serves_strangers: false,
            },
            allowed_hosts: self.allowed_hosts.clone(),
            allowed_origins: self.allowed_origins.clone(),
            langbot,
            skills: SkillsConfig {
                stores: None,
                allow_urls: self.skills.allow_urls,
                allow_loopback_urls: self.skills.allow_loopback_urls,
                checkout_roots: self.skills.checkout_roots.clone(),
            },
            e2b: E2bConfig::default(),
            mcp: None,
        }
    }

    /// How the audit log is kept.
    pub(crate) fn audit(&self) -> AuditOptions {
        let Audit { commands, file_mb, files, .. } = self.audit;
        AuditOptions { file_bytes_max: file_mb << 20, files_max: files, commands }
    }

    /// Where the key of the audit log is.
    pub(crate) fn audit_key(&self) -> PathBuf {
        self.audit.key_file.clone().unwrap_or_else(|| self.state_dir.join("audit.key"))
    }
}

/// The profiles of a table, which were checked when it was read.
fn profiles<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Profiles, D::Error> {
    let drafts = BTreeMap::<String, ProfileDraft>::deserialize(deserializer)?;
    let told =
        |problems: Vec<DraftProblem>| problems.into_iter().map(|problem| problem.reason).collect::<Vec<_>>().join("; ");
    Profiles::with_drafts(&drafts).map_err(|problems| serde::de::Error::custom(told(problems)))
}

fn unless_none<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr,
    T::Err: std::fmt::Display,
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    if text == "none" { Ok(None) } else { text.parse().map(Some).map_err(serde::de::Error::custom) }
}
