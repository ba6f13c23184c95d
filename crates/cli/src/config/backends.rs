//! The configuration of where boxes live.

use box_core::BackendName;
use box_core::backend::Pick;
use box_docker::EngineSettings;
use box_e2b::{E2bSettings, Secret};
use serde::{Deserialize, Deserializer};

use super::schema::{Config, E2bBackendTable, EngineTable};

/// Which backend is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackendRequest {
    /// The first that works.
    Auto,
    /// This one or none.
    One(BackendName),
}

impl std::str::FromStr for BackendRequest {
    type Err = box_wire::Invalid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::One) }
    }
}

impl<'de> Deserialize<'de> for BackendRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl EngineTable {
    /// As the engine is told.
    pub(crate) fn settings(&self) -> EngineSettings {
        let Self { address, image, runtime, pull, pull_timeout_sec, network, pool_size, on_drift } = self.clone();
        let settings = EngineSettings::default();
        EngineSettings { address, image, runtime, pull, pull_timeout_sec, network, pool_size, on_drift, ..settings }
    }
}

impl E2bBackendTable {
    /// As the backend is told.
    pub(crate) fn settings(&self) -> E2bSettings {
        let Self { api_key, api_url, sandbox_url, domain, template, lifetime_sec } = self.clone();
        E2bSettings { api_key, api_url, sandbox_url, domain, template, lifetime_sec }
    }
}

/// A secret as the file has it.
pub(super) fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(Secret::new))
}

impl Config {
    /// On which backend boxes live that name none.
    pub(crate) fn pick(&self) -> Pick {
        match self.backend {
            BackendRequest::Auto => Pick::First(self.backend_order.clone()),
            BackendRequest::One(name) => Pick::Forced(name),
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
        assert_eq!(load("", &[]).pick(), Pick::First(BackendName::USUAL.to_vec()));
        let order = "backend_order = [\"docker\", \"native\"]\n";
        assert_eq!(load(order, &[]).pick(), Pick::First(vec![BackendName::Docker, BackendName::Native]));
        let forced = load(order, &[("STRONGBOX_BACKEND", "podman"), ("STRONGBOX_PODMAN_RUNTIME", "crun")]);
        assert_eq!(forced.pick(), Pick::Forced(BackendName::Podman));
        assert_eq!((forced.podman.runtime.as_deref(), forced.docker.runtime), (Some("crun"), None));
    }
}
