//! The address policy of every outbound client of the server: MCP servers elsewhere, skills by URL, registries of images.
//!
//! A client resolves a name with [`Reach::resolve`], connects to an address that it returns and to no other, and does the same
//! for every redirect. Two clients are not here, because only the operator says where they go: the API of E2B, and engines.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Azure's host agent. It answers virtual machines with their own configuration, at an address outside of all private ranges.
const AZURE_HOST: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// Metadata services of clouds (Alibaba, AWS, Google) at addresses of private networks.
const PRIVATE_METADATA: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// The addresses that a connection may go to. Who chose the destination decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// A caller or an answer chose it: an MCP server of a tenant, a skill, a registry that a pattern admits, a redirect.
    Public,
    /// The same, where the operator set `skills.allow_loopback_urls`.
    PublicOrLoopback,
    /// A registry on this machine, which is asked without encryption.
    Loopback,
    /// A redirect of a registry that the operator named and that is itself on a private network.
    PublicOrPrivate,
    /// The operator chose it: a registry that the configuration names, `strongbox image pull`.
    Any,
}

impl Reach {
    /// Whether a connection may go to an address.
    pub fn allows(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match self {
            Self::Public => is_public(address),
            Self::PublicOrLoopback => is_public(address) || address.is_loopback(),
            Self::Loopback => address.is_loopback(),
            Self::PublicOrPrivate => is_public(address) || (is_private(address) && !is_own(address)),
            Self::Any => true,
        }
    }

    /// Resolves a name, once. One address that is not allowed refuses the name: who controls a name can mix addresses.
    pub async fn resolve(self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let found: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
        match found.iter().find(|address| !self.allows(address.ip())) {
            Some(refused) => Err(io::Error::new(io::ErrorKind::PermissionDenied, self.refusal(host, refused.ip()))),
            None if found.is_empty() => Err(io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"))),
            None => Ok(found),
        }
    }

    fn refusal(self, host: &str, address: IpAddr) -> String {
        let allowed = match self {
            Self::Public => "a public address",
            Self::PublicOrLoopback => "a public address or a loopback address",
            Self::Loopback => "a loopback address",
            Self::PublicOrPrivate | Self::Any => "a public address or one of a private network",
        };
        if host.parse() == Ok(address) {
            return format!("{host} is not allowed; expected {allowed}");
        }
        format!("{host} resolves to an address that is not allowed; expected {allowed}")
    }
}

/// Whether anybody can reach an address: neither this machine nor one that only this machine can reach.
pub fn is_public(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_global = match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    };
    is_global && !is_own(address)
}

/// Whether an address belongs to a private network that the operator may have machines on.
fn is_private(address: IpAddr) -> bool {
    let is_inside = match address {
        IpAddr::V4(address) => address.is_private() || is_shared(address),
        IpAddr::V6(address) => address.is_unique_local(),
    };
    is_inside && !PRIVATE_METADATA.contains(&address)
}

/// Whether this machine has an address. The kernel chooses from which of its addresses it would speak with another, and speaks
/// with its own from the same. Nothing is sent.
fn is_own(address: IpAddr) -> bool {
    let any = if address.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let chosen = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    chosen.is_ok_and(|chosen| chosen.ip() == address)
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_special = first == 0 || first >= 240 || (first == 192 && second == 0 && third == 0);
    let is_relay_of_6to4 = first == 192 && second == 88 && third == 99;
    let is_for_benchmarks = first == 198 && (18..20).contains(&second);
    !(is_shared(address)
        || is_special
        || is_relay_of_6to4
        || is_for_benchmarks
        || address == AZURE_HOST
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Global unicast, without 6to4 and without what protocols use (Teredo, ORCHID, benchmarks): those carry other addresses.
    let is_global = first & 0xe000 == 0x2000;
    let is_carrier = first == 0x2002 || (first == 0x2001 && second < 0x0200);
    let is_documentation = (first == 0x2001 && second == 0x0db8) || first == 0x3fff;
    is_global && !is_carrier && !is_documentation
}

/// Carrier-grade NAT.
fn is_shared(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 100 && (64..128).contains(&second)
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
            "168.63.129.16",
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
            "192.88.99.1",
            "100.100.100.200",
            "2001:2::1",
            "2001:20::1",
        ];
        for text in ours {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn who_chose_a_destination_decides_where_it_may_be() {
        let table = [
            (Reach::Public, "1.1.1.1", true),
            (Reach::Public, "127.0.0.1", false),
            (Reach::PublicOrLoopback, "::ffff:127.0.0.1", true),
            (Reach::PublicOrLoopback, "169.254.169.254", false),
            (Reach::Loopback, "127.8.0.1", true),
            (Reach::Loopback, "1.1.1.1", false),
            (Reach::PublicOrPrivate, "10.1.2.3", true),
            (Reach::PublicOrPrivate, "fd12::1", true),
            (Reach::PublicOrPrivate, "127.0.0.1", false),
            (Reach::PublicOrPrivate, "169.254.169.254", false),
            (Reach::PublicOrPrivate, "168.63.129.16", false),
            (Reach::PublicOrPrivate, "fd00:ec2::254", false),
            (Reach::PublicOrPrivate, "100.100.100.200", false),
            (Reach::Any, "10.1.2.3", true),
        ];
        for (reach, text, expected) in table {
            assert_eq!(reach.allows(text.parse().unwrap()), expected, "{reach:?} {text}");
        }
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_this_machine_is_refused_before_a_connection() {
        for host in ["localhost", "127.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "0", "2130706433"] {
            let refused = Reach::Public.resolve(host, 80).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{host}: {refused}");
        }
        assert_eq!(Reach::Loopback.resolve("127.0.0.1", 80).await.unwrap(), ["127.0.0.1:80".parse().unwrap()]);
    }

    #[test]
    fn addresses_of_this_machine_are_its_own() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(Ipv4Addr::new(1, 1, 1, 1).into()));
    }
}
