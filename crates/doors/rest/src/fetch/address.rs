//! Addresses that strangers name.

use http::Uri;
use http::uri::Scheme;

/// An address of something that can be fetched.
#[derive(Debug, Clone)]
pub(super) struct Address {
    uri: Uri,
    encrypted: bool,
}

impl Address {
    /// Takes an address of `https` or `http`, without a user.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let uri: Uri = text.trim().parse().map_err(|_| "it is no address")?;
        let encrypted = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err("it must start with https://"),
        };
        match uri.authority() {
            Some(authority) if !authority.as_str().contains('@') && !authority.host().is_empty() => {}
            _ => return Err("it must name a machine, and no user"),
        }
        Ok(Self { uri, encrypted })
    }

    /// Where this one leads on to.
    pub(super) fn join(&self, location: &str) -> Result<Self, &'static str> {
        if location.starts_with('/') && !location.starts_with("//") {
            let scheme = if self.encrypted { "https" } else { "http" };
            return Self::parse(&format!("{scheme}://{}{location}", self.authority()));
        }
        Self::parse(location)
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// The machine, without the brackets of a number.
    pub(super) fn host(&self) -> &str {
        self.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    pub(super) fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.encrypted { 443 } else { 80 })
    }

    pub(super) fn authority(&self) -> &str {
        self.uri.authority().map(http::uri::Authority::as_str).unwrap_or_default()
    }

    /// Path and query.
    pub(super) fn path(&self) -> &str {
        self.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
    }

    /// The last part of the path.
    pub(super) fn filename(&self) -> String {
        self.uri.path().rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// The machine, as errors name it. Paths may hold what is secret.
    pub(super) fn shown(&self) -> String {
        format!("{}://{}", if self.encrypted { "https" } else { "http" }, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let address = Address::parse("https://example.com:8443/a/b.zip?x=1").unwrap();
        assert_eq!((address.host(), address.port(), address.path()), ("example.com", 8443, "/a/b.zip?x=1"));
        assert_eq!((address.filename().as_str(), address.shown().as_str()), ("b.zip", "https://example.com:8443"));
        assert_eq!(Address::parse("http://[::1]").unwrap().host(), "::1");
        let bad =
            ["", "x", "/etc/passwd", "file:///etc/passwd", "ftp://a/b", "https://", "https://user@a/", "gopher://a"];
        assert!(bad.into_iter().all(|text| Address::parse(text).is_err()));
    }

    #[test]
    fn a_redirection_leads_on_from_where_it_was_said() {
        let address = Address::parse("https://a.example/x").unwrap();
        assert_eq!(address.join("/y?z").unwrap().path(), "/y?z");
        assert_eq!(address.join("https://b.example/").unwrap().host(), "b.example");
        for bad in ["//b.example/", "y", "", "file:///x"] {
            assert!(address.join(bad).is_err(), "{bad}");
        }
    }
}
