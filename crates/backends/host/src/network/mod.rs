//! Outbound network for a box that lives in a network namespace of its own.
//!
//! A box never shares the host's network namespace and never reaches the host's loopback. Its packets leave in one of
//! three ways. `pasta` and `slirp4netns` are ordinary programs of the host that turn packets into sockets; they need no
//! privilege, and we run them inside the box's user namespace, so that a hole in one of them gives nothing of the host.
//! `veth` is a pair of virtual interfaces, from the box to the host's kernel, with address translation; it needs root, `nft` and a host that forwards packets.
//!
//! In every way the host's other addresses, metadata services of clouds and reserved networks are out of reach too, by packet rules in the
//! box's own network namespace (`shut.rs`). With `veth` rules of the host keep boxes from it and from each other besides. `watch.rs` follows the
//! host's addresses and restores its rules.

mod bridge;
mod command;
mod filter;
mod helper;
mod message;
mod netlink;
mod pasta;
mod resolver;
mod routes;
mod shut;
mod slirp;
mod subnet;
mod veth;
mod watch;

use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

use box_core::{Error, Level, Result};
use box_wire::BoxId;
use rustix::fs::{CWD, Mode, OFlags};
use serde::{Deserialize, Serialize};

use self::shut::{HostAddresses, Openings};
use crate::process::Process;
use crate::program;

pub use helper::HelperProcess;
pub use subnet::Subnet;

/// How a box's traffic gets out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The program `pasta`, of the package `passt`.
    Pasta,
    /// The program `slirp4netns`.
    Slirp4netns,
    /// A veth pair and address translation in the host's kernel.
    Veth,
}

/// What must be undone when the box goes. Part of the intent record, so that a crash can be cleaned up from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// How the box is attached.
    pub method: Method,
    /// The program that carries the packets, once it runs.
    pub helper: Option<HelperProcess>,
    /// The process that ends that program with the box when no server does. Boxes of older versions have none.
    #[serde(default)]
    pub guard: Option<HelperProcess>,
    /// The host's end of the veth pair.
    pub interface: Option<String>,
    /// Its number, once it exists. A name can be given again to another veth pair, a number cannot.
    #[serde(default)]
    pub index: Option<u32>,
    /// The network that the veth pair has to itself, as `address/bits`.
    pub subnet: Option<String>,
}

/// What is to be attached.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// A process in the box's user and network namespaces.
    pub agent_pid: u32,
    /// The cgroup v2 directory that a helper is to live in.
    pub helper_cgroup: Option<BorrowedFd<'a>>,
    /// Reserved networks that the box may reach.
    pub reserved: &'a [Subnet],
}

/// Every method, best first. A veth pair takes a millisecond, a program of the host some 50 and memory for every box.
const METHODS: [Method; 3] = [Method::Veth, Method::Pasta, Method::Slirp4netns];

/// The preferred method, or the first that works on this machine.
pub fn choose(preferred: Option<Method>) -> Result<Method> {
    if let Some(method) = preferred {
        return check(method).map(|()| method).map_err(|obstacle| obstacle.into_error(method.name()));
    }
    let mut reasons = Vec::new();
    let mut fix = String::new();
    for method in METHODS {
        let Err(obstacle) = check(method) else { return Ok(method) };
        reasons.push(format!("{}: {}", method.name(), obstacle.reason));
        // The way that needs least.
        if method == Method::Pasta {
            fix = obstacle.fix;
        }
    }
    Err(Obstacle { reason: reasons.join("; "), fix }.into_error("outbound network"))
}

/// What to install or set so that boxes have outbound network; nothing where one of the methods has what it needs. Tries nothing.
pub fn missing_egress() -> Option<String> {
    let has = |name: &str| program::find(name).is_some();
    missing(rustix::process::geteuid().is_root(), veth::forwards(), has)
}

fn missing(is_root: bool, forwards: bool, has: impl Fn(&str) -> bool) -> Option<String> {
    let helper = "install pasta (`apt-get install passt`) or slirp4netns";
    if has("pasta") || has("slirp4netns") {
        return None;
    }
    match (has("nft"), forwards) {
        _ if !is_root => Some(helper.to_owned()),
        (true, true) => None,
        (true, false) => Some(format!("turn on packet forwarding (`{}`), or {helper}", veth::FORWARD)),
        (false, true) => Some(format!("install nft (`apt-get install nftables`), or {helper}")),
        (false, false) => Some(format!(
            "install nft (`apt-get install nftables`) and turn on packet forwarding (`{}`), or {helper}",
            veth::FORWARD
        )),
    }
}

/// What attaching a box will make, by name, before anything is made: write it down first.
pub fn intent(method: Method, box_id: &BoxId) -> Attachment {
    match method {
        Method::Pasta | Method::Slirp4netns => {
            Attachment { method, helper: None, guard: None, interface: None, index: None, subnet: None }
        }
        Method::Veth => veth::intent(box_id),
    }
}

/// Gives a box its way out, and returns when that is up.
///
/// `attachment` is completed on the way; write it down again afterwards. Should the caller die in between, a helper is
/// found by its cgroup or ended by its guard, and a veth pair disappears together with the box. After an error nothing is left.
pub fn attach(attachment: &mut Attachment, target: &Target<'_>) -> Result<()> {
    let target = *target;
    let namespaces = Namespaces::of(target.agent_pid)?;
    let resolvers = resolvers(attachment.method)?;
    let openings = Openings { resolvers: &resolvers, reserved: target.reserved };
    close(Some(&namespaces.user), &namespaces.net, target.agent_pid, &openings)?;
    let guarded = match attachment.method {
        Method::Pasta => pasta::attach(&namespaces, target)?,
        Method::Slirp4netns => slirp::attach(&namespaces, target)?,
        Method::Veth => return veth::attach(attachment, &namespaces),
    };
    (attachment.helper, attachment.guard) = (Some(guarded.helper), Some(guarded.guard));
    Ok(())
}

/// Undoes what [`attach`] did, as far as it is still there. A process is ended only if its identity is certain.
pub fn detach(attachment: &Attachment) -> Result<()> {
    for process in [attachment.helper, attachment.guard].into_iter().flatten() {
        process.end()?;
    }
    match (&attachment.interface, attachment.index) {
        (Some(interface), Some(index)) => veth::detach(interface, index),
        // A veth pair that was not written down any more goes with its box.
        _ => Ok(()),
    }
}

/// Removes what boxes share for their egress once no box needs it, if this process had to do with it. Call it after
/// boxes were made or removed.
pub fn put_away() -> Result<()> {
    veth::put_away()
}

/// Goes on keeping a box that another process made from what it must not reach. One that was made by an earlier version gets the rules
/// of this one.
pub fn adopt(attachment: &Attachment, agent: Process, reserved: &[Subnet]) -> Result<()> {
    let namespaces = Namespaces::of(agent.pid)?;
    // A box that has rules has its name servers in them.
    let resolvers = resolvers(attachment.method).unwrap_or_default();
    let openings = Openings { resolvers: &resolvers, reserved };
    close(Some(&namespaces.user), &namespaces.net, agent.pid, &openings)?;
    if attachment.method == Method::Veth { veth::adopt() } else { Ok(()) }
}

/// Closes the host, metadata services and reserved networks for a container with a network of its engine, except for the addresses at
/// which it asks for names.
pub fn shut_container(pid: u32, resolvers: &[IpAddr], reserved: &[Subnet]) -> Result<()> {
    let (user, net) = of_container(pid)?;
    close(user.as_ref(), &net, pid, &Openings { resolvers, reserved })
}

/// The name servers of the host that a container could reach by itself.
pub fn host_resolvers() -> Vec<IpAddr> {
    resolver::of_host(|server| !shut::is_shut(server)).unwrap_or_default()
}

/// Closes what a box must not reach, now and for addresses that the host gets later.
fn close(user: Option<&OwnedFd>, net: &OwnedFd, pid: u32, openings: &Openings<'_>) -> Result<()> {
    let host = HostAddresses::now();
    shut::apply(user, net, &host, openings)?;
    watch::follow(pid, &host)
}

/// Keeps a container on a bridge of this network namespace from its neighbors: its ports of the bridge are made isolated ones.
pub fn isolate_port(pid: u32, bridge: &str) -> Result<()> {
    let (user, net) = of_container(pid)?;
    bridge::isolate(user.as_ref(), &net, bridge)
}

/// Keeps what containers send by a bridge of this network namespace from the host's own addresses and from metadata services.
pub fn shut_bridge(name: &str) -> Result<()> {
    bridge::shut(name)
}

/// The content of the box's `/etc/resolv.conf`.
pub fn resolv_conf(method: Method) -> Result<String> {
    Ok(resolver::text(&resolvers(method)?))
}

fn resolvers(method: Method) -> Result<Vec<IpAddr>> {
    match method {
        Method::Pasta => pasta::resolvers(),
        Method::Slirp4netns => Ok(vec![slirp::NAME_SERVER.into()]),
        Method::Veth => veth::resolvers(),
    }
}

impl Method {
    /// The method's name, as in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pasta => "pasta",
            Self::Slirp4netns => "slirp4netns",
            Self::Veth => "veth",
        }
    }

    /// How firmly a box that gets out like this is kept from the host and from other boxes, and by what.
    pub fn separation(self) -> (Level, String) {
        let way = format!("a network namespace of its own, outbound by {self}");
        match self {
            Self::Veth => (Level::Hard, way),
            // The sockets are the host's, and only the rules in the box know which addresses are.
            Self::Pasta | Self::Slirp4netns => {
                let why = "an address that the host gets later is closed a moment later, and only while Strongbox runs";
                (Level::Soft, format!("{way}; {why}"))
            }
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a method does not work on this machine, and what would change that.
#[derive(Debug)]
struct Obstacle {
    reason: String,
    fix: String,
}

impl Obstacle {
    fn new(reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { reason: reason.into(), fix: fix.into() }
    }

    fn into_error(self, what: &str) -> Error {
        Error::MissingFacility { what: what.to_owned(), reason: self.reason, fix: self.fix }
    }
}

fn check(method: Method) -> Result<(), Obstacle> {
    match method {
        Method::Pasta => pasta::check(),
        Method::Slirp4netns => slirp::check(),
        Method::Veth => veth::check(),
    }
}

/// The namespaces of a box, held open so that they stay the same ones whatever happens to its processes.
#[derive(Debug)]
struct Namespaces {
    user: OwnedFd,
    net: OwnedFd,
}

impl Namespaces {
    /// Opens them, and makes sure that they are not those of this process.
    fn of(pid: u32) -> Result<Self> {
        let open = |kind: &str| open_other(pid, kind)?.ok_or_else(|| shared(pid, kind));
        Ok(Self { user: open("user")?, net: open("net")? })
    }
}

/// Opens the namespaces of a container, whose user namespace may be that of this process.
fn of_container(pid: u32) -> Result<(Option<OwnedFd>, OwnedFd)> {
    Ok((open_other(pid, "user")?, open_other(pid, "net")?.ok_or_else(|| shared(pid, "net"))?))
}

/// Opens a namespace of a process, unless it is that of this process.
fn open_other(pid: u32, kind: &str) -> Result<Option<OwnedFd>> {
    let (theirs, ours) =
        (open_read(&format!("/proc/{pid}/ns/{kind}"))?, open_read(&format!("/proc/thread-self/ns/{kind}"))?);
    let identity = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    let same = identity(&theirs).and_then(|theirs| Ok(theirs == identity(&ours)?));
    let same = same.map_err(|source| Error::io("look at a namespace", source))?;
    Ok((!same).then_some(theirs))
}

fn shared(pid: u32, kind: &str) -> Error {
    failure(format!("process {pid} shares our {kind} namespace, so it is not a box"))
}

fn open_read(path: &str) -> Result<OwnedFd> {
    rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|source| Error::io(format!("open {path}"), source))
}

fn failure(reason: impl Into<String>) -> Error {
    Error::Setup { step: "network".to_owned(), reason: reason.into() }
}

/// A program of the host, or how to get it.
fn require_program(name: &str, package: &str) -> Result<PathBuf, Obstacle> {
    program::find(name).ok_or_else(|| {
        Obstacle::new(format!("the program {name} is not installed"), format!("run `apt-get install {package}`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_way_to_the_network_says_what_to_install_and_what_to_set() {
        for (is_root, forwards, program, names_nft, names_forwarding) in [
            (true, false, "", true, true),
            (true, true, "", true, false),
            (true, false, "nft", false, true),
            (false, false, "nft", false, false),
        ] {
            let told = missing(is_root, forwards, |name| name == program).unwrap();
            let names = |part: &str| told.contains(part);
            let parts = [names("apt-get install nftables"), names("sysctl -w net.ipv4.ip_forward=1"), names("passt")];
            assert_eq!(parts, [names_nft, names_forwarding, true], "{program:?}, {forwards}: {told}");
        }
        for (is_root, forwards, program) in
            [(true, true, "nft"), (true, false, "pasta"), (false, false, "pasta"), (false, false, "slirp4netns")]
        {
            assert_eq!(missing(is_root, forwards, |name| name == program), None, "{program}");
        }
    }

    #[test]
    fn only_a_way_that_holds_by_itself_is_hard() {
        assert_eq!(Method::Veth.separation().0, Level::Hard);
        for method in [Method::Pasta, Method::Slirp4netns] {
            let (level, why) = method.separation();
            assert!(level == Level::Soft && why.contains("an address that the host gets later"), "{why}");
        }
    }
}
