//! The name of an image in a registry.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use box_wire::Invalid;

use super::Reference;

/// Longest name as it is written.
const NAME_BYTES_MAX: usize = 512;
/// What a name can look like, for those who wrote another.
const ALLOWED: &str = "a name such as python:3.12-slim, ghcr.io/org/tool:v1 or debian@sha256:…";

/// The name of an image in a registry. What is left out is filled in as everybody does: `python` is
/// `docker.io/library/python:latest`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageName {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// The registry of names that have none, and another name of it.
const USUAL_REGISTRY: &str = "docker.io";
const USUAL_REGISTRY_ALIAS: &str = "index.docker.io";

impl ImageName {
    /// The registry, with its port where it has one.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Where it is in the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, unless there is only a digest.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest that what is pulled must have, where the name pins one: `sha256:` and 64 digits.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// Whether the registry is on this machine, and may hence be asked without encryption.
    pub fn is_loopback(&self) -> bool {
        let host = self.registry().rsplit_once(':').map_or(self.registry(), |(host, _)| host);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl FromStr for ImageName {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new("image", text.chars().take(NAME_BYTES_MAX).collect::<String>(), ALLOWED);
        let Reference { repository, tag, digest } = Reference::parse(text).ok_or_else(refused)?;
        if !digest.as_ref().is_none_or(|digest| digest.starts_with("sha256:")) {
            return Err(Invalid::new("image", text, "a digest of the form sha256:… with small letters"));
        }
        let (registry, path) = match repository.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
            _ => (USUAL_REGISTRY, repository.as_str()),
        };
        let registry = if registry == USUAL_REGISTRY_ALIAS { USUAL_REGISTRY } else { registry };
        let is_official = registry == USUAL_REGISTRY && !path.contains('/');
        let path = if is_official { format!("library/{path}") } else { path.to_owned() };
        Ok(Self { registry: registry.to_owned(), repository: path, tag, digest })
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        self.tag.iter().try_for_each(|tag| write!(f, ":{tag}"))?;
        self.digest.iter().try_for_each(|digest| write!(f, "@{digest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_filled_in() {
        let digest = "a".repeat(64);
        let table = [
            ("python", "docker.io/library/python:latest"),
            ("index.docker.io/org/tool", "docker.io/org/tool:latest"),
            ("ghcr.io/org/tool:v1", "ghcr.io/org/tool:v1"),
            ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
            (&format!("debian@sha256:{digest}"), &format!("docker.io/library/debian@sha256:{digest}")),
        ];
        for (text, whole) in table {
            assert_eq!(text.parse::<ImageName>().unwrap().to_string(), whole);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let sha512 = format!("a@sha512:{}", "a".repeat(128));
        let upper = format!("a@sha256:{}", "A".repeat(64));
        let long = format!("a/{}", "b".repeat(600));
        let bad = ["", "-it", "--privileged", "a b", "a:b:c", "../x", "/x", "a:ä", "UPPER", "a@sha256:12", "a\n", "a:"];
        for text in bad.into_iter().chain([sha512.as_str(), &upper, &long]) {
            assert!(text.parse::<ImageName>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        let is_loopback = |text: &str| text.parse::<ImageName>().unwrap().is_loopback();
        assert!(["localhost:5000/a", "localhost/a", "127.0.0.1:5000/a", "127.8.0.1/a"].into_iter().all(is_loopback));
        assert!(!["localhost.example/a", "127.0.0.1.example.org/a", "a", "10.0.0.1/a"].into_iter().any(is_loopback));
    }
}
