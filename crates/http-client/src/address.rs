//! Addresses of web servers.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use http::uri::{Authority, PathAndQuery};

/// Longest address.
const BYTES_MAX: usize = 8 << 10;

/// An absolute `http` or `https` address without a user.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(Uri);

/// Why a text is not an [`Address`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadAddress(&'static str);

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadAddress {}

impl Address {
    /// Parses an absolute address.
    pub fn parse(text: &str) -> Result<Self, BadAddress> {
        if text.len() > BYTES_MAX {
            return Err(BadAddress("it is too long; expected at most 8192 bytes"));
        }
        let uri: Uri = text.parse().map_err(|_| BadAddress("it is not a valid address"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(BadAddress("it must start with https://"));
        }
        match uri.authority() {
            Some(authority) if !authority.as_str().contains('@') && !authority.host().is_empty() => Ok(Self(uri)),
            _ => Err(BadAddress("it must name a machine, and no user")),
        }
    }

    /// Resolves the `Location` of a redirect: a path on the same server, or an absolute address.
    pub fn join(&self, location: &str) -> Result<Self, BadAddress> {
        if location.starts_with('/') && !location.starts_with("//") {
            return Self::parse(&format!("{}{location}", self.origin()));
        }
        Self::parse(location)
    }

    /// Whether the connection uses TLS.
    pub fn is_encrypted(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Whether it names this machine, by `localhost` or by a loopback address.
    pub fn is_loopback(&self) -> bool {
        let host = self.host();
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Whether scheme, host and port are the same.
    pub fn is_same_origin(&self, other: &Self) -> bool {
        (self.is_encrypted(), self.host(), self.port()) == (other.is_encrypted(), other.host(), other.port())
    }

    /// Host name or IP address, without brackets.
    pub fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    /// The port, or the default one of the scheme.
    pub fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 })
    }

    /// Host and port as written.
    pub fn authority(&self) -> &str {
        self.0.authority().map(Authority::as_str).unwrap_or_default()
    }

    /// Path and query.
    pub fn path(&self) -> &str {
        self.0.path_and_query().map_or("/", PathAndQuery::as_str)
    }

    /// The last segment of the path.
    pub fn filename(&self) -> &str {
        self.0.path().rsplit('/').next().unwrap_or_default()
    }

    /// Scheme, host and port, for messages: the path can hold a secret.
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.is_encrypted() { "https" } else { "http" }, self.authority())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let address = Address::parse("https://example.com:8443/a/b.zip?x=1").unwrap();
        assert_eq!((address.host(), address.port(), address.path()), ("example.com", 8443, "/a/b.zip?x=1"));
        assert_eq!((address.filename(), address.origin().as_str()), ("b.zip", "https://example.com:8443"));
        assert_eq!(Address::parse("http://[::1]").unwrap().host(), "::1");
        let bad =
            ["", "x", "/etc/passwd", "file:///etc/passwd", "ftp://a/b", "https://", "https://user@a/", "gopher://a"];
        assert!(bad.into_iter().all(|text| Address::parse(text).is_err()));
        assert!(Address::parse(&format!("https://a/{}", "x".repeat(BYTES_MAX))).is_err());
    }

    #[test]
    fn redirects_are_joined_as_browsers_do() {
        let here = Address::parse("https://registry.example:5000/v2/x").unwrap();
        assert_eq!(here.join("/other?a=b").unwrap().path(), "/other?a=b");
        assert!(here.join("/other").unwrap().is_same_origin(&here));
        let far = here.join("https://cdn.example/blob?signature=secret").unwrap();
        assert!(!far.is_same_origin(&here) && far.port() == 443);
        assert!(!format!("{far:?}").contains("secret"));
        for bad in
            ["", "relative", "//host/x", "ftp://host/x", "file:///etc/passwd", "https://user:word@host/", "https:///x"]
        {
            assert!(here.join(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn another_port_or_less_protection_is_another_origin() {
        let here = Address::parse("https://registry.example/").unwrap();
        for other in ["http://registry.example/", "https://registry.example:444/", "https://registry.example.org/"] {
            assert!(!Address::parse(other).unwrap().is_same_origin(&here), "{other}");
        }
        assert!(Address::parse("http://[::1]:5000/").unwrap().is_loopback());
        assert!(!Address::parse("http://127.0.0.1.example/").unwrap().is_loopback());
    }
}
