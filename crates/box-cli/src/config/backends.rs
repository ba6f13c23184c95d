//! The configuration of where boxes live.

use std::path::PathBuf;

use box_core::BackendName;
use box_core::backend::Pick;
use serde::{Deserialize, Deserializer};

use super::Config;

/// Which backend is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The first that works.
    Auto,
    /// This one or none.
    One(BackendName),
}

impl std::str::FromStr for Wanted {
    type Err = box_wire::Invalid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::One) }
    }
}

impl<'de> Deserialize<'de> for Wanted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// How an engine is used.
#[expect(dead_code, reason = "the engines that read it are not in this program yet")]
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EngineTable {
    pub(crate) address: Option<String>,
    pub(crate) image: String,
    pub(crate) runtime: Option<String>,
    pub(crate) pull: Pull,
    pub(crate) pull_timeout_sec: u64,
    pub(crate) network: Option<String>,
    pub(crate) pool_size: usize,
    pub(crate) on_drift: Drift,
}

impl Default for EngineTable {
    fn default() -> Self {
        Self {
            address: None,
            image: "python:3.12-slim".to_owned(),
            runtime: None,
            pull: Pull::Missing,
            pull_timeout_sec: 300,
            network: None,
            pool_size: 0,
            on_drift: Drift::Keep,
        }
    }
}

/// When images are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pull {
    Always,
    Missing,
    Never,
}

/// What becomes of a box that was made under another configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Drift {
    Keep,
    Replace,
}

/// How nsjail is used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NsjailTable {
    pub(crate) program: Option<PathBuf>,
}

impl Config {
    /// On which backend boxes live that name none.
    pub(crate) fn pick(&self) -> Pick {
        match self.backend {
            Wanted::Auto => Pick::First(self.backend_order.clone()),
            Wanted::One(name) => Pick::Forced(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Settings};

    #[test]
    fn a_named_backend_is_forced_and_auto_follows_the_order() {
        let load = |text: &str, table: &[(&str, &str)]| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            Settings::load(Some(file.path()), &Environment::of(table), &[]).unwrap().config().unwrap()
        };
        assert_eq!(load("", &[]).pick(), Pick::First(BackendName::ALL.to_vec()));
        let order = "backend_order = [\"docker\", \"native\"]\n";
        assert_eq!(load(order, &[]).pick(), Pick::First(vec![BackendName::Docker, BackendName::Native]));
        let forced = load(order, &[("STRONGBOX_BACKEND", "podman"), ("STRONGBOX_PODMAN_RUNTIME", "crun")]);
        assert_eq!(forced.pick(), Pick::Forced(BackendName::Podman));
        assert_eq!((forced.podman.runtime.as_deref(), forced.docker.runtime), (Some("crun"), None));
    }
}
