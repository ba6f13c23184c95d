//! Isolates containers on an engine's bridge from each other and from the host. Needs root, `ip`, `nft`.
//!
//! An engine promises the first by rules of its packet filter, which an operator may have switched off and which cannot
//! be checked here. The kernel does it for each port of the bridge, and can be asked. A bridge has an address of the
//! host, at which everything answers that listens on all addresses. The rules live in a table of their own beside those
//! of the engine, which they can only narrow. They stay as long as the bridge may be used, as the engine's own do.

use std::fmt::Write;

use std::os::fd::OwnedFd;

use box_core::Result;
use serde::Deserialize;

use super::command::{ask, ask_inside, run};
use super::{failure, shut};

/// Longest name of an interface.
const NAME_BYTES_MAX: usize = 15;

/// An interface, as `ip` prints it.
#[derive(Debug, Deserialize)]
struct Link {
    #[serde(rename = "ifname")]
    name: String,
    #[serde(rename = "ifindex")]
    index: u32,
    /// The number that its other end has where that is.
    #[serde(rename = "link_index")]
    peer: Option<u32>,
    linkinfo: Option<LinkInfo>,
}

#[derive(Debug, Deserialize)]
struct LinkInfo {
    info_slave_data: Option<Port>,
}

#[derive(Debug, Deserialize)]
struct Port {
    isolated: Option<bool>,
}

impl Link {
    fn is_isolated(&self) -> bool {
        let port = self.linkinfo.as_ref().and_then(|info| info.info_slave_data.as_ref());
        port.and_then(|port| port.isolated) == Some(true)
    }
}

/// Isolates the ports of a container on a bridge. All of its veth pairs must end there, and each end must name the other: where the engine lives in
/// another network, none does.
pub(super) fn isolate(user: Option<&OwnedFd>, net: &OwnedFd, bridge: &str) -> Result<()> {
    let ports = || ask("ip", &["-json", "-details", "link", "show", "master", bridge]).and_then(|told| read(&told));
    let veths = read(&ask_inside(user, net, "ip", &["-json", "link", "show"])?)?;
    let veths: Vec<&Link> = veths.iter().filter(|link| link.peer.is_some()).collect();
    let ends = |veth: &Link, port: &Link| port.peer == Some(veth.index) && veth.peer == Some(port.index);
    let found = ports()?;
    let names: Option<Vec<&str>> =
        veths.iter().map(|veth| found.iter().find(|port| ends(veth, port)).map(|port| port.name.as_str())).collect();
    let names = names.filter(|names| !names.is_empty());
    let names = names.ok_or_else(|| failure(format!("the container is not on the bridge {bridge} of this network")))?;
    for name in &names {
        run("ip", &["link", "set", "dev", name, "type", "bridge_slave", "isolated", "on"], "")?;
    }
    let now = ports()?;
    if names.iter().all(|name| now.iter().any(|port| port.name == *name && port.is_isolated())) {
        Ok(())
    } else {
        Err(failure(format!("the kernel does not isolate ports of the bridge {bridge}")))
    }
}

fn read(told: &str) -> Result<Vec<Link>> {
    serde_json::from_str(told)
        .map_err(|error| failure(format!("`ip` tells interfaces in a way that is not known: {error}")))
}

/// Drops what containers on a bridge send to the host itself and to metadata services. Doing it again changes nothing.
pub(super) fn shut(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
        return Err(failure(format!("{name:?} is not a valid name of a bridge")));
    }
    run("nft", &["-f", "-"], &rules(name))
}

/// One transaction. Bridges of several engines are in one set; the chains are rewritten each time.
fn rules(name: &str) -> String {
    let mut rules = String::from(
        "add table inet strongbox_bridges\n\
         add set inet strongbox_bridges names { type ifname; }\n\
         add chain inet strongbox_bridges prerouting { type filter hook prerouting priority raw; policy accept; }\n\
         add chain inet strongbox_bridges input { type filter hook input priority filter; policy accept; }\n\
         add chain inet strongbox_bridges forward { type filter hook forward priority filter; policy accept; }\n\
         flush chain inet strongbox_bridges prerouting\n\
         flush chain inet strongbox_bridges input\n\
         flush chain inet strongbox_bridges forward\n\
         add rule inet strongbox_bridges prerouting iifname @names fib daddr type local drop\n\
         add rule inet strongbox_bridges input iifname @names drop\n",
    );
    for (family, places) in [("ip", &shut::METADATA[..]), ("ip6", &shut::METADATA6[..])] {
        let places = places.join(", ");
        // Writing to a string cannot fail.
        let _ = writeln!(
            rules,
            "add rule inet strongbox_bridges forward iifname @names {family} daddr {{ {places} }} drop"
        );
    }
    let _ = writeln!(rules, "add element inet strongbox_bridges names {{ \"{name}\" }}");
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_ip_tells_them() {
        let told = r#"[{"ifindex":7,"link_index":6,"ifname":"veth1","flags":["UP"],"linkinfo":{"info_kind":"veth","info_slave_kind":"bridge",
            "info_slave_data":{"state":"forwarding","isolated":true}}},{"ifindex":1,"ifname":"lo"}]"#;
        let links = read(told).unwrap();
        assert_eq!(links.iter().map(Link::is_isolated).collect::<Vec<_>>(), [true, false]);
        assert_eq!(links.iter().map(|link| link.peer).collect::<Vec<_>>(), [Some(6), None]);
    }

    #[test]
    fn a_name_that_could_mean_more_is_refused() {
        for name in ["", "br0\" }", "a b", "br-0123456789abc", "x\ny"] {
            assert!(shut(name).is_err(), "{name:?}");
        }
    }
}
