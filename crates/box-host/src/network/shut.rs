//! Places that a box behind a user-space helper must not reach: metadata services and the host's own addresses.
//!
//! A helper's sockets are the host's, so it would lead there. The box's own routing table says no before a packet gets to
//! the helper, and nobody in a box has the capability to change that table. Addresses that the host is given later are
//! not covered.

use std::fs::read_to_string;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use box_core::Result;

use super::{command, routes};

/// Link-local addresses, where most clouds keep their metadata services, and those that are elsewhere: Azure's wire
/// server, Alibaba's, Oracle's.
pub(super) const METADATA: [&str; 4] = ["169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32"];

/// The same by IPv6: Amazon's and Google's.
pub(super) const METADATA6: [&str; 2] = ["fd00:ec2::254/128", "fd20:ce::254/128"];

/// Makes these places unreachable for a box whose interface is up, but for those at which its helper itself answers names. Its user namespace
/// is our own where none is named.
pub(super) fn apply(user: Option<&OwnedFd>, net: &OwnedFd, pid: u32, open: &[Ipv4Addr]) -> Result<()> {
    let process = format!("/proc/{pid}");
    let has_ipv6 = !ipv6_addresses(&process).is_empty();
    let mut places: Vec<String> = METADATA.iter().map(ToString::to_string).collect();
    places.extend(ipv4_addresses(routes::OURS).iter().map(|address| format!("{address}/32")));
    if has_ipv6 {
        places.extend(METADATA6.iter().map(ToString::to_string));
        places.extend(ipv6_addresses(routes::OURS).iter().map(|address| format!("{address}/128")));
    }
    let mut lines: Vec<String> = places.iter().map(|place| format!("route replace unreachable {place}\n")).collect();
    if let Some(way) = routes::all(&process).iter().find(|route| route.is_default()) {
        lines.extend(open.iter().map(|address| format!("route replace {address}/32 dev {}\n", way.interface)));
    }
    command::ask_inside(user, net, "ip", &["-batch", "-"], &lines.concat()).map(drop)
}

/// Whether an address belongs to a place that is shut.
pub(super) fn is_shut(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let listed = METADATA.iter().any(|place| place.strip_suffix("/32") == Some(v4.to_string().as_str()));
            v4.is_link_local() || listed || ipv4_addresses(routes::OURS).contains(v4)
        }
        IpAddr::V6(v6) => v6.is_unicast_link_local() || ipv6_addresses(routes::OURS).contains(v6),
    }
}

/// The addresses of a network namespace, without loopback.
fn ipv4_addresses(process: &str) -> Vec<Ipv4Addr> {
    let table = read_to_string(format!("{process}/net/fib_trie")).unwrap_or_default();
    let mut addresses = local_addresses(&table);
    addresses.retain(|address| !address.is_loopback());
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The table names an address on one line and says on the next ones what it is.
fn local_addresses(table: &str) -> Vec<Ipv4Addr> {
    let mut named: Option<Ipv4Addr> = None;
    let mut found = Vec::new();
    for line in table.lines().map(str::trim) {
        match line.strip_prefix("|-- ") {
            Some(address) => named = address.parse().ok(),
            None if line == "/32 host LOCAL" => found.extend(named),
            None => {}
        }
    }
    found
}

/// The addresses of a network namespace, without loopback and link-local ones.
fn ipv6_addresses(process: &str) -> Vec<Ipv6Addr> {
    let table = read_to_string(format!("{process}/net/if_inet6")).unwrap_or_default();
    let address = |line: &str| u128::from_str_radix(line.split_whitespace().next()?, 16).ok().map(Ipv6Addr::from);
    let mut addresses: Vec<Ipv6Addr> = table.lines().filter_map(address).collect();
    addresses.retain(|address| !address.is_loopback() && !address.is_unicast_link_local());
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_told_from_broadcasts() {
        let table = "Local:\n  +-- 0.0.0.0/0 3 0 4\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.5\n        \
            /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n";
        assert_eq!(local_addresses(table), [Ipv4Addr::new(10, 0, 0, 5)]);
    }

    #[test]
    fn metadata_services_are_shut() {
        for address in ["169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fe80::1"] {
            assert!(is_shut(&address.parse().unwrap()), "{address}");
        }
        assert!(!is_shut(&"192.0.2.53".parse().unwrap()));
    }
}
