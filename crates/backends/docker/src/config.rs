//! How an engine is used, as the operator says it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use box_core::{BackendName, MountPolicy, PullPolicy};
use box_host::InstanceKind;
use box_host::network::Subnet;
use box_wire::Invalid;
use serde::{Deserialize, Serialize};

/// How a backend on an engine is set up.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Which engine it is.
    pub kind: EngineKind,
    /// The state directory of all backends; this one uses a directory of its own below it.
    pub state_dir: PathBuf,
    /// Which trees of the host boxes may see.
    pub mount_policy: MountPolicy,
    /// Whether the boxes outlive this process.
    pub instance: InstanceKind,
    /// How the engine is used.
    pub settings: EngineSettings,
}

/// The engines that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Docker.
    Docker,
    /// Podman, by the interface that it shares with Docker.
    Podman,
}

impl EngineKind {
    /// The name of the backend.
    pub fn backend(self) -> BackendName {
        match self {
            Self::Docker => BackendName::Docker,
            Self::Podman => BackendName::Podman,
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backend().as_str())
    }
}

/// How an engine is used.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineSettings {
    /// Where it listens: `unix:///path`, `tcp://host:port` or `https://host:port`. None = where the engine's own
    /// programs would go, then its usual sockets; for Podman, when none answers, a private service that this backend
    /// starts.
    pub address: Option<String>,
    /// The image of boxes that ask for none.
    pub image: String,
    /// The runtime that the engine uses for our containers, such as `runsc`; none = its default.
    pub runtime: Option<String>,
    /// When images are fetched.
    pub pull: PullPolicy,
    /// How long fetching an image may take.
    pub pull_timeout_sec: u64,
    /// The network of boxes that have one; none = one that this backend creates.
    pub network: Option<String>,
    /// Reserved networks that boxes may reach; see `docs/config.md`.
    pub reserved: Vec<Subnet>,
    /// Containers that are started ahead of being wanted; 0 = none.
    pub pool_size: usize,
    /// What to do with a box that was made under another configuration.
    pub on_drift: OnDrift,
    /// Arguments that stand before `system service` when we start Podman ourselves, such as `--root`.
    pub podman_arguments: Vec<String>,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            address: None,
            image: "python:3.12-slim".to_owned(),
            runtime: None,
            pull: PullPolicy::Missing,
            pull_timeout_sec: 300,
            network: None,
            reserved: Vec::new(),
            pool_size: 0,
            on_drift: OnDrift::Keep,
            podman_arguments: Vec::new(),
        }
    }
}

/// What to do with a box that was made under another configuration, when it is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDrift {
    /// It is used as it is.
    Keep,
    /// It is lost, and its session gets a new one.
    Replace,
}

impl OnDrift {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Keep, Self::Replace];

    /// The policy as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
        }
    }
}

impl FromStr for OnDrift {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let named = |policy: &Self| policy.as_str() == text;
        let all = || Self::ALL.map(Self::as_str).join(", ");
        Self::ALL.into_iter().find(named).ok_or_else(|| Invalid::new("on_drift", text, format!("one of {}", all())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_as_they_are_written() {
        for policy in PullPolicy::ALL {
            assert_eq!(policy.as_str().parse::<PullPolicy>().unwrap(), policy);
        }
        for policy in OnDrift::ALL {
            assert_eq!(policy.as_str().parse::<OnDrift>().unwrap(), policy);
        }
        assert!("sometimes".parse::<PullPolicy>().unwrap_err().to_string().contains("always, missing, never"));
    }
}
