//! The configuration with its meaning: what the parts of the server are given.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use box_core::audit::AuditOptions;
use box_core::profile::{DraftProblem, ProfileDraft};
use box_core::service::StopMode;
use box_core::{BackendName, ImagePolicy, Profiles, ServiceConfig};
use box_images::ImagesConfig;
use door_e2b::E2bConfig;
use door_http::{ListenConfig, TlsFiles};
use door_langbot::LangBotConfig;
use door_rest::SkillsConfig;
use serde::{Deserialize, Deserializer};

use super::Settings;
use super::backends::BackendRequest;
use super::key::KEYS;
use super::kind::Kind;
use super::schema::{AuditTable, Config, Tls};
use super::value::Value;
use crate::fault::Fault;
use crate::serve::doors::DoorsConfig;

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
        for key in KEYS.iter() {
            let Some(setting) = self.get(&key.name) else { continue };
            let is_none = matches!(key.kind, Kind::Address | Kind::Socket) && setting.value == Value::text("none");
            let value = if is_none { serde_json::Value::Null } else { setting.value.revealed() };
            match key.name.split_once('.') {
                None => drop(root.insert(key.name.clone(), value)),
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
        let AuditTable { commands, file_mb, files, .. } = self.audit;
        AuditOptions { file_bytes_max: file_mb << 20, files_max: files, commands }
    }

    /// Where the key of the audit log is.
    pub(crate) fn audit_key(&self) -> PathBuf {
        self.audit.key_file.clone().unwrap_or_else(|| self.state_dir.join("audit.key"))
    }
}

/// The profiles of a table, which were checked when it was read.
pub(super) fn profiles<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Profiles, D::Error> {
    let drafts = BTreeMap::<String, ProfileDraft>::deserialize(deserializer)?;
    let told =
        |problems: Vec<DraftProblem>| problems.into_iter().map(|problem| problem.reason).collect::<Vec<_>>().join("; ");
    Profiles::with_drafts(&drafts).map_err(|problems| serde::de::Error::custom(told(problems)))
}
