//! `slirp4netns`: packets become sockets of an ordinary program; the box has a small private network.

use std::net::Ipv4Addr;
use std::os::fd::RawFd;

use box_core::Result;

use super::helper::{self, Guarded, Ready};
use super::{Namespaces, Obstacle, Target, failure, require_program};
use crate::program;

/// Where slirp4netns answers names, by asking the host's own resolver even if that is on loopback.
pub(super) const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);

pub(super) fn check() -> Result<(), Obstacle> {
    require_program("slirp4netns", "slirp4netns")?;
    helper::check()
}

pub(super) fn attach(namespaces: &Namespaces, target: Target<'_>) -> Result<Guarded> {
    let program = program::find("slirp4netns").ok_or_else(|| failure("the program slirp4netns has disappeared"))?;
    helper::start(&program, arguments, Ready::OnDescriptor, namespaces, target)
}

/// The namespace is named by the helper's standard input: slirp4netns opens it in a child process of its own.
fn arguments(ready: RawFd) -> Vec<String> {
    let ready = format!("--ready-fd={ready}");
    let arguments = [
        "--configure",
        "--mtu=65520",
        "--disable-host-loopback",
        "--enable-sandbox",
        "--enable-seccomp",
        &ready,
        "--netns-type=path",
        "/proc/self/fd/0",
        "eth0",
    ];
    arguments.iter().map(ToString::to_string).collect()
}
