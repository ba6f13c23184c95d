//! What the operator says of the door for E2B's clients.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use box_core::snapshots::SnapshotConfig;
use box_core::store::TemplateBase;

/// Longest domain.
const DOMAIN_BYTES_MAX: usize = 200;

/// The default template of code interpreter clients. A tenant can build a template of this name.
const STARTER: &str = "code-interpreter-v1";

/// What the door for E2B's clients is given.
#[derive(Debug, Clone, PartialEq)]
pub struct E2bConfig {
    /// Whether there is a door.
    pub enabled: bool,
    /// The domain below which sandboxes have names, with a port where it is not the usual one. Where none is set, a server on
    /// loopback uses `localhost:PORT`; elsewhere sandboxes have no names.
    pub domain: Option<String>,
    /// How long a sandbox lives whose maker does not say.
    pub default_timeout_sec: u64,
    /// How long one may live, counted from when somebody last said.
    pub max_timeout_sec: u64,
    /// What sandboxes can be made from, by name.
    pub templates: BTreeMap<String, TemplateBase>,
    /// Where snapshots and built templates are kept; there are none without it.
    pub snapshots: Option<PathBuf>,
    /// Most that all snapshots and built templates of a tenant may have together.
    pub saved_mb_max: u64,
}

impl Default for E2bConfig {
    fn default() -> Self {
        let template = || TemplateBase::default();
        Self {
            enabled: true,
            domain: None,
            default_timeout_sec: 300,
            max_timeout_sec: 24 * 60 * 60,
            templates: ["base", "code-interpreter-v1", "desktop"].map(|name| (name.to_owned(), template())).into(),
            snapshots: None,
            saved_mb_max: 20 << 10,
        }
    }
}

impl E2bConfig {
    /// Refuses what makes no sense, with the reason.
    pub fn check(&self) -> Result<(), String> {
        if let Some(domain) = &self.domain {
            let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:".contains(&byte);
            let (host, port) =
                domain.split_once(':').map_or((domain.as_str(), None), |(host, port)| (host, Some(port)));
            let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
            let is_host =
                !host.is_empty() && !host.starts_with('.') && !host.ends_with('.') && host.len() <= DOMAIN_BYTES_MAX;
            if !(is_host && is_port && domain.bytes().all(good)) {
                return Err(format!("e2b_door.domain {domain:?} is not the name of a domain, such as box.example"));
            }
        }
        if !(1..=self.max_timeout_sec).contains(&self.default_timeout_sec) {
            return Err("e2b_door.default_timeout_sec must be from 1 to e2b_door.max_timeout_sec".to_owned());
        }
        Ok(())
    }

    /// Names sandboxes below `localhost` where no domain is set and the server listens on loopback: such names lead to this
    /// machine without any DNS record.
    pub fn name_sandboxes(&mut self, listens: Option<SocketAddr>) {
        let loopback = listens.filter(|address| address.ip().to_canonical().is_loopback());
        if let (None, Some(address)) = (&self.domain, loopback) {
            self.domain = Some(format!("localhost:{}", address.port()));
        }
    }

    /// Where the service keeps snapshots, and which names are the operator's.
    pub fn snapshot_config(&self) -> SnapshotConfig {
        SnapshotConfig {
            directory: self.snapshots.clone(),
            bytes_max: self.saved_mb_max << 20,
            reserved: self.templates.keys().filter(|name| !self.is_starter(name)).cloned().collect(),
        }
    }

    /// Whether callers may build a template of this name, because the operator does not define it.
    pub(crate) fn is_starter(&self, name: &str) -> bool {
        name == STARTER && self.templates.get(name) == Some(&TemplateBase::default())
    }

    /// The domain without its port.
    pub(crate) fn domain_host(&self) -> Option<&str> {
        let domain = self.domain.as_deref()?;
        Some(domain.split_once(':').map_or(domain, |(host, _)| host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_name_with_or_without_a_port() {
        let with = |domain: &str| E2bConfig { domain: Some(domain.to_owned()), ..E2bConfig::default() };
        for good in ["box.example", "box.example:8443", "localhost:5410", "e2b.box-1.example"] {
            assert_eq!(with(good).check(), Ok(()), "{good}");
        }
        for bad in ["", ".box", "box.", "Box.example", "http://box", "box:x", "box:0", "a b", "box/"] {
            assert!(with(bad).check().is_err(), "{bad}");
        }
        assert_eq!(with("box.example:8443").domain_host(), Some("box.example"));
    }

    #[test]
    fn sandboxes_of_a_server_on_loopback_are_named_below_localhost() {
        let named = |domain: Option<&str>, listens: Option<&str>| {
            let mut config = E2bConfig { domain: domain.map(str::to_owned), ..E2bConfig::default() };
            config.name_sandboxes(listens.map(|address| address.parse().unwrap()));
            config.domain
        };
        assert_eq!(named(None, Some("127.0.0.1:5410")).as_deref(), Some("localhost:5410"));
        assert_eq!(named(None, Some("[::1]:80")).as_deref(), Some("localhost:80"));
        assert_eq!(named(Some("box.example"), Some("127.0.0.1:5410")).as_deref(), Some("box.example"));
        assert_eq!(
            (named(None, Some("192.0.2.1:5410")), named(None, Some("0.0.0.0:1")), named(None, None)),
            (None, None, None)
        );
    }

    #[test]
    fn nobody_lives_longer_than_allowed_by_saying_nothing() {
        let config = E2bConfig { default_timeout_sec: 301, max_timeout_sec: 300, ..E2bConfig::default() };
        assert!(config.check().unwrap_err().contains("default_timeout_sec"));
    }
}
