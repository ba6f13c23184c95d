//! `pasta`: packets become sockets of an ordinary program; the box has the host's addresses.

use std::net::IpAddr;

use box_core::Result;

use super::helper::{self, Guarded, Ready};
use super::{Namespaces, Obstacle, Target, failure, require_program, resolver, routes, shut};
use crate::program;

/// Every option that keeps the host out of reach, in a form that all releases since 2023 know.
///
/// The namespace is named by the helper's standard input and the pid file by its standard output, because newer releases
/// close every other descriptor first.
const ARGUMENTS: &[&str] = &[
    "--foreground",
    "--quiet",
    "--config-net",
    // The gateway's address would otherwise lead to the host's loopback.
    "--no-map-gw",
    // No port is forwarded, in either direction.
    "--tcp-ports=none",
    "--udp-ports=none",
    "--tcp-ns=none",
    "--udp-ns=none",
    // The interface is set up by --config-net, so the box needs no DHCP.
    "--no-dhcp",
    "--no-dhcpv6",
    "--no-ra",
    "--ns-ifname=eth0",
    // We have joined the user namespace already. We or the guard end the helper: it sees no end of a namespace that has no name.
    "--netns-only",
    "--no-netns-quit",
    "--pid=/proc/self/fd/1",
    "--netns=/proc/self/fd/0",
];

pub(super) fn check() -> Result<(), Obstacle> {
    require_program("pasta", "passt")?;
    helper::check()?;
    if !routes::has_default(routes::OURS) {
        let fix = "add one with `ip route add default via GATEWAY`";
        return Err(Obstacle::new("this machine has no default route itself", fix));
    }
    resolver::of_host(|server| !shut::is_shut(server)).map(drop)
}

pub(super) fn attach(namespaces: &Namespaces, target: Target<'_>) -> Result<Guarded> {
    let program = program::find("pasta").ok_or_else(|| failure("the program pasta has disappeared"))?;
    helper::start(
        &program,
        |_| ARGUMENTS.iter().map(ToString::to_string).collect(),
        Ready::OnStdout,
        namespaces,
        target,
    )
}

/// The host's own servers: the box reaches them as the host does.
pub(super) fn resolvers() -> Result<Vec<IpAddr>> {
    resolver::of_host(|server| !shut::is_shut(server)).map_err(|obstacle| obstacle.into_error(resolver::WHAT))
}
