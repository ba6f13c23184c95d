//! What a box with a network must not reach: the host, other boxes, metadata services, and reserved networks.
//!
//! A packet filter table in the box's own network namespace refuses it. The table exists before the box's interface
//! does, and no process of a box has the capability to change it. Routes are not enough: to a socket that is bound to
//! an interface, the kernel takes every address without a route for a neighbor on that interface.

use std::fs::read_to_string;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use box_core::{Error, Result};

use super::command::change_rules_inside;
use super::filter::{Batch, Fact, Step};
use super::routes;
use super::subnet::Subnet;

/// Link-local addresses, where most clouds keep their metadata services, and those that are elsewhere: Azure's wire
/// server, Alibaba's, Oracle's.
pub(super) const METADATA: [&str; 4] = ["169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32"];

/// The same by IPv6: Amazon's and Google's.
pub(super) const METADATA6: [&str; 2] = ["fd00:ec2::254/128", "fd20:ce::254/128"];

/// Private networks of the operator: closed unless the configuration opens them.
pub(super) const RESERVED: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];

/// The same by IPv6.
const RESERVED6: [&str; 1] = ["fc00::/7"];

/// What no configuration opens, besides metadata services: this network, loopback, boxes behind a veth pair, multicast
/// and reserved addresses.
const NEVER: [&str; 4] = ["0.0.0.0/8", "127.0.0.0/8", "10.199.0.0/16", "224.0.0.0/3"];

/// The same by IPv6: link-local addresses and multicast.
const NEVER6: [&str; 2] = ["fe80::/10", "ff00::/8"];

/// Where a gateway between the families has the whole of IPv4.
const TRANSLATED: &str = "64:ff9b::";
const TRANSLATED_BITS: u8 = 96;

const TABLE: &str = "strongbox";
const CHAIN: &str = "output";
const HOST4: &str = "host4";
const HOST6: &str = "host6";

/// What one box may reach of what is closed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Openings<'a> {
    /// Name servers, which it may ask for names and nothing else.
    pub(super) resolvers: &'a [IpAddr],
    /// Parts of reserved networks.
    pub(super) reserved: &'a [Subnet],
}

/// Addresses of the host, without loopback and link-local ones, which are closed anyway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HostAddresses {
    v4: Vec<Ipv4Addr>,
    v6: Vec<Ipv6Addr>,
}

impl HostAddresses {
    /// Those that the host has now.
    pub(super) fn now() -> Self {
        Self { v4: ipv4_addresses(routes::OURS), v6: ipv6_addresses(routes::OURS) }
    }

    /// Makes these the addresses that are closed for a box. Fails with `ENOENT` for a box that has no rules.
    pub(super) fn refresh(&self, user: Option<&OwnedFd>, net: &OwnedFd) -> io::Result<()> {
        let mut batch = Batch::new(TABLE);
        self.write(&mut batch);
        change_rules_inside(user, net, batch.finish())
    }

    fn write(&self, batch: &mut Batch) {
        let (v4, v6) =
            (self.v4.iter().map(|one| one.octets().to_vec()), self.v6.iter().map(|one| one.octets().to_vec()));
        batch.replace_elements(HOST4, &v4.collect::<Vec<_>>());
        batch.replace_elements(HOST6, &v6.collect::<Vec<_>>());
    }
}

/// Closes everything but the openings for a box. A box that has rules keeps its openings; only the host's addresses in them are renewed.
pub(super) fn apply(
    user: Option<&OwnedFd>,
    net: &OwnedFd,
    host: &HostAddresses,
    openings: &Openings<'_>,
) -> Result<()> {
    let made = change_rules_inside(user, net, rules(host, openings).finish());
    let exists = rustix::io::Errno::EXIST.raw_os_error();
    let made = made.or_else(|error| match error.raw_os_error() {
        Some(code) if code == exists => host.refresh(user, net),
        _ => Err(error),
    });
    made.map_err(|error| Error::io("write the packet rules of a box (the kernel needs nf_tables)", error))
}

fn rules(host: &HostAddresses, openings: &Openings<'_>) -> Batch {
    const LOOPBACK_INDEX: u32 = 1;
    const ICMP6: u8 = 58;
    const NEIGHBOR_SOLICITATION: u8 = 135;
    const NEIGHBOR_ADVERTISEMENT: u8 = 136;
    const NAMES_PORT: u16 = 53;
    /// What `nft` calls the values of the two sets.
    const IPV4_ADDRESS: u32 = 7;
    const IPV6_ADDRESS: u32 = 8;
    let mut batch = Batch::new(TABLE);
    batch.make_table();
    batch.make_set(HOST4, IPV4_ADDRESS, 4);
    batch.make_set(HOST6, IPV6_ADDRESS, 16);
    host.write(&mut batch);
    batch.make_output_chain(CHAIN);
    let mut add = |steps: Vec<Step>| batch.add_rule(CHAIN, &steps);
    let loopback = LOOPBACK_INDEX.to_ne_bytes().to_vec();
    add(vec![Step::Load(Fact::OutInterface), Step::Equals(loopback), Step::Accept]);
    // How the next hop is found. No program of a box can send these.
    let neighbors = Step::Between(vec![NEIGHBOR_SOLICITATION], vec![NEIGHBOR_ADVERTISEMENT]);
    let icmp = [Step::Load(Fact::Protocol), Step::Equals(vec![ICMP6]), Step::Load(Fact::IcmpType)];
    add([&icmp[..], &[neighbors, Step::Accept]].concat());
    add([&family(IPV4)[..], &[Step::In(HOST4), Step::Reject]].concat());
    add([&family(IPV6)[..], &[Step::In(HOST6), Step::Reject]].concat());
    for resolver in openings.resolvers {
        let port = [Step::Load(Fact::DestinationPort), Step::Equals(NAMES_PORT.to_be_bytes().to_vec())];
        add([&to(*resolver, *resolver)[..], &port, &[Step::Accept]].concat());
    }
    let translated = [&METADATA[..], &RESERVED, &NEVER].concat();
    let translated: Vec<Subnet> = translated.iter().filter_map(|text| translate(text)).collect();
    let networks =
        |lists: &[&[&str]]| lists.concat().iter().filter_map(|text| text.parse().ok()).collect::<Vec<Subnet>>();
    let never = networks(&[&METADATA, &METADATA6, &NEVER, &NEVER6]);
    let reserved = networks(&[&RESERVED, &RESERVED6]);
    for (list, verdict) in [
        (&never[..], Step::Reject),
        (openings.reserved, Step::Accept),
        (&reserved, Step::Reject),
        (&translated, Step::Reject),
    ] {
        for subnet in list {
            let (first, last) = subnet.range();
            add([&to(first, last)[..], std::slice::from_ref(&verdict)].concat());
        }
    }
    batch
}

/// Where a gateway between the families has a network of IPv4.
fn translate(text: &str) -> Option<Subnet> {
    let (first, bits) = text.split_once('/')?;
    format!("{TRANSLATED}{first}/{}", bits.parse::<u8>().ok()?.checked_add(TRANSLATED_BITS)?).parse().ok()
}

const IPV4: u8 = 2;
const IPV6: u8 = 10;

/// Goes on for one family, with the destination loaded.
fn family(number: u8) -> [Step; 3] {
    let destination = if number == IPV4 { Fact::Destination4 } else { Fact::Destination6 };
    [Step::Load(Fact::Family), Step::Equals(vec![number]), Step::Load(destination)]
}

/// Goes on for destinations between two addresses of one family.
fn to(first: IpAddr, last: IpAddr) -> Vec<Step> {
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut steps = family(if first.is_ipv4() { IPV4 } else { IPV6 }).to_vec();
    steps.push(Step::Between(bytes(first), bytes(last)));
    steps
}

/// Whether an address belongs to the host or to a metadata service.
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
    addresses.sort_unstable();
    addresses.dedup();
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
    fn every_network_of_the_lists_can_be_read() {
        for text in [&METADATA[..], &METADATA6, &RESERVED, &RESERVED6, &NEVER, &NEVER6].concat() {
            assert!(text.parse::<Subnet>().is_ok(), "{text}");
        }
        assert_eq!(translate("172.16.0.0/12").unwrap().to_string(), "64:ff9b::ac10:0/108");
    }

    #[test]
    fn metadata_services_are_shut() {
        for address in ["169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fe80::1"] {
            assert!(is_shut(&address.parse().unwrap()), "{address}");
        }
        assert!(!is_shut(&"192.0.2.53".parse().unwrap()));
    }
}
