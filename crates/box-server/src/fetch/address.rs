//! Addresses that strangers name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// Whether a machine is one that anybody can reach: none of ours, and none that only we can reach.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    let is_special = first == 0 || first >= 240 || (first == 192 && second == 0 && third == 0);
    let is_for_benchmarks = first == 198 && (18..20).contains(&second);
    !(is_shared
        || is_special
        || is_for_benchmarks
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Only what is given out to the world; and not what carries an older address inside, or means nobody.
    let is_global = first & 0xe000 == 0x2000;
    let is_carrier = first == 0x2002 || (first == 0x2001 && second == 0);
    let is_documentation = (first == 0x2001 && second == 0x0db8) || first == 0x3fff;
    is_global && !is_carrier && !is_documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_machines_that_anybody_can_reach_are_public() {
        let public = ["1.1.1.1", "140.82.121.4", "2606:4700::1111", "2a00:1450:4001::1", "::ffff:8.8.8.8"];
        assert!(public.into_iter().all(|text| is_public(text.parse().unwrap())));
        let ours = [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "192.0.0.192",
            "198.18.0.1",
            "192.0.2.1",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "fc00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
            "::127.0.0.1",
            "fec0::1",
        ];
        for text in ours {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

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
