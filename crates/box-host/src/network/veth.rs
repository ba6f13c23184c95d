//! A virtual cable to the host's kernel, with address translation. Needs root.
//!
//! Every box has a network of two addresses out of 10.199.0.0/16. The host's end is named after the network's place in
//! it, so the kernel, which has every name once, is the judge of collisions. The rules speak of all cables at once and
//! live in a table of our own, which goes with the last cable.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use box_core::{Error, Result};
use box_wire::BoxId;
use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

use super::command::{run, run_in_box};
use super::{
    Attachment, Method, Namespaces, Obstacle, Target, failure, open_read, require_program, resolver, routes, shut,
};

/// How the host's ends of all cables are called, before their number.
const PREFIX: &str = "sbx";

/// How many networks of four addresses there are in 10.199.0.0/16.
const NETWORKS: u32 = 1 << 14;

const POOL: Ipv4Addr = Ipv4Addr::new(10, 199, 0, 0);
const POOL_MASK: u32 = 0xFFFF_0000;

/// How many taken names are passed over before we give up.
const ATTEMPTS_MAX: u32 = 64;

/// The whole policy. Replaced in one transaction; the first two lines make that work whether or not the table exists.
const RULES: &str = r#"
table inet strongbox {}
delete table inet strongbox
table inet strongbox {
    chain forward {
        type filter hook forward priority filter; policy accept;
        iifname "sbx*" jump from_box
        oifname "sbx*" jump to_box
    }
    chain from_box {
        oifname "sbx*" drop
        meta nfproto ipv6 drop
        ip saddr != 10.199.0.0/16 drop
        ip daddr { 10.199.0.0/16, 127.0.0.0/8, 169.254.0.0/16 } drop
    }
    chain to_box {
        ct state established,related accept
        drop
    }
    chain input {
        type filter hook input priority filter; policy accept;
        iifname "sbx*" drop
    }
    chain translate {
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr 10.199.0.0/16 oifname != "sbx*" masquerade
    }
}
"#;

const NO_RULES: &str = "table inet strongbox {}\ndelete table inet strongbox\n";

pub(super) fn check() -> Result<(), Obstacle> {
    if !rustix::process::geteuid().is_root() {
        return Err(Obstacle::new("a virtual cable needs root", "run as root, or `apt-get install passt`"));
    }
    require_program("ip", "iproute2")?;
    require_program("nft", "nftables")?;
    let forwards = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap_or_default();
    if forwards.trim() != "1" {
        return Err(Obstacle::new("the kernel does not forward packets", "run `sysctl -w net.ipv4.ip_forward=1`"));
    }
    let overlaps = |route: &routes::Route| {
        let common = u32::from(route.mask) & POOL_MASK;
        common != 0 && u32::from(route.destination) & common == u32::from(POOL) & common
    };
    if let Some(route) = routes::all(routes::OURS).iter().find(|route| !is_ours(&route.interface) && overlaps(route)) {
        let reason = format!("10.199.0.0/16 is in use behind {}", route.interface);
        return Err(Obstacle::new(reason, "use another method: `apt-get install passt`"));
    }
    resolver::of_host(usable_resolver).map(drop)
}

/// A network that is free now. Boxes start looking at different places, so that they seldom meet.
pub(super) fn intent(box_id: &BoxId) -> Attachment {
    let digest = Sha256::digest(box_id.as_str().as_bytes());
    let start = digest.iter().take(4).fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte)) % NETWORKS;
    let taken = routes::interfaces(routes::OURS);
    let number = (0..NETWORKS).map(|step| (start + step) % NETWORKS).find(|number| !taken.contains(&name(*number)));
    planned(number.unwrap_or(start))
}

pub(super) fn attach(attachment: &mut Attachment, namespaces: &Namespaces, target: Target<'_>) -> Result<()> {
    let _lock = lock()?;
    run("nft", &["-f", "-"], RULES)?;
    let number = add_cable(attachment, target.agent_pid)?;
    configure(number, namespaces).inspect_err(|_| {
        // The first error is the one to tell of; the cable goes with the box at the latest.
        let _ = remove_cable(&name(number));
    })
}

pub(super) fn detach(interface: &str) -> Result<()> {
    if !is_ours(interface) {
        return Err(failure(format!("{interface} is not an interface of ours and was left alone")));
    }
    let _lock = lock()?;
    remove_cable(interface)?;
    if routes::interfaces(routes::OURS).iter().any(|interface| is_ours(interface)) {
        return Ok(());
    }
    run("nft", &["-f", "-"], NO_RULES)
}

/// The host's own servers, if they can be reached without speaking to the host or to a metadata service.
pub(super) fn resolv_conf() -> Result<String> {
    let servers = resolver::of_host(usable_resolver).map_err(|obstacle| obstacle.into_error(resolver::WHAT))?;
    Ok(resolver::text(&servers))
}

fn usable_resolver(server: &IpAddr) -> bool {
    server.is_ipv4() && !shut::is_shut(server)
}

fn name(number: u32) -> String {
    format!("{PREFIX}{number}")
}

fn is_ours(interface: &str) -> bool {
    let number = interface.strip_prefix(PREFIX).and_then(|number| number.parse().ok());
    number.is_some_and(|number: u32| number < NETWORKS && name(number) == interface)
}

/// One of the four addresses of a network: 1 is the host's, 2 is the box's.
fn address(number: u32, place: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(POOL) + number * 4 + place)
}

fn planned(number: u32) -> Attachment {
    Attachment {
        method: Method::Veth,
        helper: None,
        interface: Some(name(number)),
        subnet: Some(format!("{}/30", address(number, 0))),
    }
}

/// Whoever changes cables or rules of this network namespace holds this, so that rules never go while a cable comes.
fn lock() -> Result<OwnedFd> {
    let namespace = open_read("/proc/thread-self/ns/net")?;
    rustix::fs::flock(&namespace, FlockOperation::LockExclusive)
        .map_err(|source| Error::io("lock the host's network namespace", source))?;
    Ok(namespace)
}

/// Makes the cable under the planned name, or under the next free one.
fn add_cable(attachment: &mut Attachment, agent_pid: u32) -> Result<u32> {
    let planned_name = attachment.interface.clone().unwrap_or_default();
    let start: u32 = planned_name.strip_prefix(PREFIX).and_then(|number| number.parse().ok()).unwrap_or(0);
    let pid = agent_pid.to_string();
    for step in 0..ATTEMPTS_MAX {
        let number = (start % NETWORKS + step) % NETWORKS;
        let arguments = ["link", "add", "name", &name(number), "type", "veth", "peer", "name", "eth0", "netns", &pid];
        match run("ip", &arguments, "") {
            Ok(()) => {
                *attachment = planned(number);
                return Ok(number);
            }
            Err(error) if error.to_string().contains("File exists") => {}
            Err(error) => return Err(error),
        }
    }
    Err(failure(format!("no free name for a cable after {ATTEMPTS_MAX} attempts; does the box have an eth0 already?")))
}

fn configure(number: u32, namespaces: &Namespaces) -> Result<()> {
    let (host, inside, interface) = (address(number, 1), address(number, 2), name(number));
    let in_box = format!(
        "address add {inside}/30 dev eth0\nlink set dev lo up\nlink set dev eth0 up\nroute add default via {host} dev eth0\n"
    );
    let on_host = format!("address add {host}/30 dev {interface}\nlink set dev {interface} up\n");
    run("ip", &["-batch", "-"], &on_host)?;
    run_in_box(namespaces, "ip", &["-batch", "-"], &in_box)
}

fn remove_cable(interface: &str) -> Result<()> {
    if !routes::interfaces(routes::OURS).iter().any(|present| present == interface) {
        return Ok(());
    }
    match run("ip", &["link", "delete", "dev", interface], "") {
        // It went with its box in the meantime.
        Err(error) if error.to_string().contains("Cannot find device") => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_networks_follow_from_a_number() {
        let last = planned(NETWORKS - 1);
        assert_eq!(last.interface.as_deref(), Some("sbx16383"));
        assert_eq!(last.subnet.as_deref(), Some("10.199.255.252/30"));
        assert!(name(NETWORKS - 1).len() < 16, "the kernel takes 15 characters");
    }

    #[test]
    fn only_our_own_names_are_ours() {
        assert!(is_ours("sbx0") && is_ours("sbx16383"));
        for other in ["", "sbx", "sbx16384", "sbx01", "sbx+1", "eth0", "-sbx1", "sbx-1"] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
