//! Addresses that registries lead to.

use std::fmt;
use std::net::IpAddr;

use http::Uri;

use crate::failure::Failure;
use crate::limits::ADDRESS_BYTES_MAX;

/// An address of a web server. Shown without its path, which can carry secrets.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address(Uri);

impl Address {
    /// Reads an address that is complete.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let refused = || Failure::from("its registry names an address that is none of the web");
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(refused());
        }
        let uri: Uri = text.parse().map_err(|_| refused())?;
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        let is_web =
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
        if is_web && !has_user { Ok(Self(uri)) } else { Err(refused()) }
    }

    /// The address that a text means when it is said here.
    pub(crate) fn join(&self, text: &str) -> Result<Self, Failure> {
        if text.starts_with('/') && !text.starts_with("//") {
            let scheme = if self.is_encrypted() { "https" } else { "http" };
            return Self::parse(&format!("{scheme}://{}{text}", self.authority()));
        }
        Self::parse(text)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Whether it is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.host();
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Whether both are the same server.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        (self.is_encrypted(), self.host(), self.port()) == (other.is_encrypted(), other.host(), other.port())
    }

    /// The name of the machine.
    pub(crate) fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    /// The port, given or usual.
    pub(crate) fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 })
    }

    /// The machine and the port as they are written.
    pub(crate) fn authority(&self) -> &str {
        self.0.authority().map(http::uri::Authority::as_str).unwrap_or_default()
    }

    /// The path of the request.
    pub(crate) fn path(&self) -> &str {
        self.0.path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
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
    fn addresses_are_joined_as_browsers_do() {
        let here = Address::parse("https://registry.example:5000/v2/x").unwrap();
        assert_eq!(here.join("/other?a=b").unwrap().path(), "/other?a=b");
        assert!(here.join("/other").unwrap().is_same_place(&here));
        let far = here.join("https://cdn.example/blob?signature=secret").unwrap();
        assert!(!far.is_same_place(&here) && far.port() == 443);
        assert!(!format!("{far:?}").contains("secret"));
        for bad in
            ["", "relative", "//host/x", "ftp://host/x", "file:///etc/passwd", "https://user:word@host/", "https:///x"]
        {
            assert!(here.join(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn another_port_or_less_protection_is_another_place() {
        let here = Address::parse("https://registry.example/").unwrap();
        for other in ["http://registry.example/", "https://registry.example:444/", "https://registry.example.org/"] {
            assert!(!Address::parse(other).unwrap().is_same_place(&here), "{other}");
        }
        assert!(Address::parse("http://[::1]:5000/").unwrap().is_loopback());
        assert!(!Address::parse("http://127.0.0.1.example/").unwrap().is_loopback());
    }
}
