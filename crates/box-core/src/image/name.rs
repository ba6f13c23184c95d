//! The name of an image in a registry.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use box_wire::Invalid;
use oci_spec::distribution::Reference;

/// Longest name as it is written.
const NAME_BYTES_MAX: usize = 512;
/// What a name can look like, for those who wrote another.
const ALLOWED: &str = "a name such as python:3.12-slim, ghcr.io/org/tool:v1 or debian@sha256:…";

/// The name of an image in a registry. What is left out is filled in as everybody does: `python` is
/// `docker.io/library/python:latest`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageName(Reference);

impl ImageName {
    /// The registry, with its port where it has one.
    pub fn registry(&self) -> &str {
        self.0.registry()
    }

    /// Where it is in the registry.
    pub fn repository(&self) -> &str {
        self.0.repository()
    }

    /// The tag, unless there is only a digest.
    pub fn tag(&self) -> Option<&str> {
        self.0.tag()
    }

    /// The digest that what is pulled must have, where the name pins one: `sha256:` and 64 digits.
    pub fn digest(&self) -> Option<&str> {
        self.0.digest()
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
        // The grammar of tags would let letters of all scripts through.
        if text.len() > NAME_BYTES_MAX || !text.is_ascii() {
            return Err(refused());
        }
        let reference = Reference::try_from(text).map_err(|_| refused())?;
        let is_digest = |digest: &str| digest.strip_prefix("sha256:").is_some_and(is_lower_hexadecimal);
        if !reference.digest().is_none_or(is_digest) {
            return Err(Invalid::new("image", text, "a digest of the form sha256:… with small letters"));
        }
        Ok(Self(reference))
    }
}

fn is_lower_hexadecimal(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
