//! Where the provider and its sandboxes are.

use box_core::{Error, Result};
use box_e2b_wire::{ENVD_PORT, SandboxHost, SandboxId};
use box_wire::Invalid;

use crate::config::E2bSettings;

/// Domains whose sandboxes share one host name and are selected by headers.
const SHARED_HOST_DOMAINS: [&str; 4] = ["e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"];

/// Longest name of a host.
const HOST_BYTES_MAX: usize = 253;

/// Where the provider and its sandboxes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoints {
    /// Where sandboxes are asked for, without a slash at the end.
    pub(crate) api: String,
    /// The address of all sandboxes, if configured.
    sandbox: Option<String>,
    domain: String,
    /// Whether the provider is on this machine.
    pub(crate) is_local: bool,
}

impl Endpoints {
    /// Those that the settings mean.
    pub(crate) fn of(settings: &E2bSettings) -> Result<Self> {
        let domain = settings.domain.trim_matches('.').to_ascii_lowercase();
        if !is_host(&domain) {
            return Err(Invalid::new("e2b.domain", &settings.domain, "a domain such as e2b.app").into());
        }
        let api = match &settings.api_url {
            Some(url) => base("e2b.api_url", url)?,
            None => format!("https://api.{domain}"),
        };
        let is_local = has_address(&api);
        let sandbox = match &settings.sandbox_url {
            Some(url) => Some(base("e2b.sandbox_url", url)?),
            // There are no names below an address.
            None => is_local.then(|| api.clone()),
        };
        Ok(Self { api, sandbox, domain, is_local })
    }

    /// Where the daemon of one sandbox is reached. The provider may say that a sandbox has a domain of its own.
    pub(crate) fn envd(&self, sandbox: &SandboxId, domain: Option<&str>) -> Result<String> {
        if let Some(base) = &self.sandbox {
            return Ok(base.clone());
        }
        let domain = domain.unwrap_or(&self.domain);
        if !is_host(domain) {
            let reason = "the provider names a domain for it that is none".to_owned();
            return Err(Error::Setup { step: "sandbox".to_owned(), reason });
        }
        if SHARED_HOST_DOMAINS.contains(&domain) {
            return Ok(format!("https://sandbox.{domain}"));
        }
        let host = SandboxHost { port: ENVD_PORT, sandbox: sandbox.clone() };
        Ok(format!("https://{}", host.name(domain)))
    }
}

/// A base address: a scheme, a host, perhaps a port and a path.
fn base(field: &'static str, text: &str) -> Result<String> {
    let url = reqwest::Url::parse(text).ok().filter(|url| {
        let is_plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        matches!(url.scheme(), "http" | "https") && url.host_str().is_some() && is_plain && url.password().is_none()
    });
    let url = url.ok_or_else(|| Invalid::new(field, text, "an address such as https://api.e2b.app"))?;
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Whether an address has an IP address or `localhost` as its host.
fn has_address(url: &str) -> bool {
    let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    host == "localhost" || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
}

/// Whether this is the name of a host, with or without a port.
fn is_host(text: &str) -> bool {
    let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
    let is_label = |label: &str| {
        let is_plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        !label.is_empty() && is_plain && !label.starts_with('-')
    };
    text.len() <= HOST_BYTES_MAX && name.split('.').all(is_label) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(api: Option<&str>, sandbox: Option<&str>, domain: &str) -> Result<Endpoints> {
        Endpoints::of(&E2bSettings {
            api_url: api.map(str::to_owned),
            sandbox_url: sandbox.map(str::to_owned),
            domain: domain.to_owned(),
            ..E2bSettings::default()
        })
    }

    #[test]
    fn the_cloud_has_one_host_for_all_sandboxes_and_others_have_one_for_each() {
        let id: SandboxId = "abc".parse().unwrap();
        let cloud = endpoints(None, None, "e2b.app").unwrap();
        assert_eq!(cloud.api, "https://api.e2b.app");
        assert_eq!(cloud.envd(&id, None).unwrap(), "https://sandbox.e2b.app");
        assert_eq!(cloud.envd(&id, Some("own.example")).unwrap(), "https://49983-abc.own.example");
        let own = endpoints(None, None, "box.example").unwrap();
        assert_eq!(own.envd(&id, None).unwrap(), "https://49983-abc.box.example");
        assert!(cloud.envd(&id, Some("evil.example/path")).is_err());
    }

    #[test]
    fn a_server_at_an_address_is_asked_for_everything() {
        let id: SandboxId = "abc".parse().unwrap();
        let local = endpoints(Some("http://127.0.0.1:5410/"), None, "e2b.app").unwrap();
        assert_eq!((local.api.as_str(), local.is_local), ("http://127.0.0.1:5410", true));
        assert_eq!(local.envd(&id, Some("box.example")).unwrap(), "http://127.0.0.1:5410");
        let named = endpoints(Some("https://api.box.example"), Some("https://all.box.example"), "box.example").unwrap();
        assert_eq!(named.envd(&id, None).unwrap(), "https://all.box.example");
    }

    #[test]
    fn what_is_no_address_is_refused_with_its_field() {
        for bad in ["", "e2b.app", "ftp://x", "https://user@x", "https://x?y=1"] {
            let error = endpoints(Some(bad), None, "e2b.app").unwrap_err().to_string();
            assert!(error.contains("e2b.api_url"), "{bad}: {error}");
        }
        for bad in ["", "a/b", "a b", "-a", "a..b"] {
            assert!(endpoints(None, None, bad).is_err(), "{bad}");
        }
    }
}
