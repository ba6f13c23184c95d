//! A veth pair to the host's kernel, with address translation. Needs root.
//!
//! Every box has a network of two addresses out of 10.199.0.0/16. The host's end is named after the network's place in
//! it, so the kernel, which has every name once, is the judge of collisions.
//!
//! A veth pair goes with the box's network namespace, when the kernel gets to it. Until then it is switched off:
//! deleting it would make the end of a box take ten times longer.

mod rules;
mod trial;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use box_core::{Error, Result};
use box_wire::BoxId;
use rustix::thread::LinkNameSpaceType;
use sha2::{Digest, Sha256};

use self::rules::Rules;
use super::netlink::Links;
use super::{Attachment, Method, Namespaces, Obstacle, failure, require_program, resolver, routes, shut};

/// How the host's ends of all veth pairs are called, before their number.
const PREFIX: &str = "sbx";

/// How many networks of four addresses there are in 10.199.0.0/16.
const NETWORKS: u32 = 1 << 14;

const POOL: Ipv4Addr = Ipv4Addr::new(10, 199, 0, 0);
const POOL_MASK: u32 = 0xFFFF_0000;

/// How many taken names are passed over before we give up.
const ATTEMPTS_MAX: u32 = 64;

/// How the box's end is called.
const INSIDE: &str = "eth0";

const BITS: u8 = 30;

/// How long veth pairs that are switched off have to go by themselves in the end, before they are deleted.
const PATIENCE: Duration = Duration::from_millis(200);

const PAUSE: Duration = Duration::from_millis(1);

/// Turns on packet forwarding.
pub(super) const FORWARD: &str = "sysctl -w net.ipv4.ip_forward=1";

/// The numbers of veth pairs that are switched off and were there when last looked at.
static SWITCHED_OFF: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Whether the kernel forwards packets.
pub(super) fn forwards() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").is_ok_and(|value| value.trim() == "1")
}

pub(super) fn check() -> Result<(), Obstacle> {
    if !rustix::process::geteuid().is_root() {
        return Err(Obstacle::new("a veth pair needs root", "run as root, or `apt-get install passt`"));
    }
    require_program("nft", "nftables")?;
    if !forwards() {
        return Err(Obstacle::new("the kernel does not forward packets", format!("run `{FORWARD}`")));
    }
    let overlaps = |route: &routes::Route| {
        let common = u32::from(route.mask) & POOL_MASK;
        common != 0 && u32::from(route.destination) & common == u32::from(POOL) & common
    };
    let routes = routes::all(routes::OURS);
    if let Some(route) = routes.iter().find(|route| !is_ours(&route.interface) && overlaps(route)) {
        let reason = format!("10.199.0.0/16 is in use behind {}", route.interface);
        return Err(Obstacle::new(reason, "use another method: `apt-get install passt`"));
    }
    if !routes.iter().any(routes::Route::is_default) {
        let fix = "add one with `ip route add default via GATEWAY`";
        return Err(Obstacle::new("this machine has no default route of IPv4 itself", fix));
    }
    resolver::of_host(usable_resolver)?.first().map_or(Ok(()), |server| trial::check(*server))
}

/// A network that is free now. Boxes start looking at different places, so that they seldom meet.
pub(super) fn intent(box_id: &BoxId) -> Attachment {
    let digest = Sha256::digest(box_id.as_str().as_bytes());
    let start = digest.iter().take(4).fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte)) % NETWORKS;
    let taken = routes::interfaces(routes::OURS);
    let number = (0..NETWORKS).map(|step| (start + step) % NETWORKS).find(|number| !taken.contains(&name(*number)));
    planned(number.unwrap_or(start))
}

pub(super) fn attach(attachment: &mut Attachment, namespaces: &Namespaces) -> Result<()> {
    let links = Links::open()?;
    let mut rules = Rules::lock()?;
    rules.enforce()?;
    let start = attachment.interface.as_deref().and_then(number_of).unwrap_or(0);
    let (number, index) = add_veth(&links, start, &namespaces.net)?;
    *attachment = Attachment { index: Some(index), ..planned(number) };
    drop(rules);
    configure(&links, number, &namespaces.net).inspect_err(|_| {
        // The first error is the one to report; the veth pair goes with the box at the latest.
        let _ = switch_off(&links, index);
    })
}

/// From here on nothing comes out of the veth pair any more, not even what the kernel still wanted to send for a dead process.
pub(super) fn detach(interface: &str, index: u32) -> Result<()> {
    rules::met();
    let links = Links::open()?;
    // After a reboot the number may belong to another interface.
    if is_ours(interface) && links.name(index).as_deref() == Some(interface) {
        switch_off(&links, index)
    } else {
        Ok(())
    }
}

/// Deletes veth pairs that are switched off. Then removes the rules, if no veth pair is left and this process had to do
/// with any.
pub(super) fn put_away() -> Result<()> {
    let numbers = std::mem::take(&mut *switched_off());
    if !numbers.is_empty() {
        remove(&Links::open()?, numbers).map_err(|error| Error::io("remove a veth pair", error))?;
    }
    rules::remove_if(|| !has_any())
}

/// Whether there is any veth pair of a box, up or not.
fn has_any() -> bool {
    routes::interfaces(routes::OURS).iter().any(|interface| is_ours(interface))
}

/// Restores rules that another program changed.
pub(super) fn keep_rules() -> Result<()> {
    rules::keep()
}

/// Puts the rules in force for a box that another process made.
pub(super) fn adopt() -> Result<()> {
    Rules::lock()?.enforce().map(drop)
}

/// The host's own servers, if they can be reached without speaking to the host or to a metadata service.
pub(super) fn resolvers() -> Result<Vec<IpAddr>> {
    resolver::of_host(usable_resolver).map_err(|obstacle| obstacle.into_error(resolver::WHAT))
}

fn usable_resolver(server: &IpAddr) -> bool {
    server.is_ipv4() && !shut::is_shut(server)
}

fn name(number: u32) -> String {
    format!("{PREFIX}{number}")
}

fn is_ours(interface: &str) -> bool {
    number_of(interface).is_some()
}

/// The number in the name of a veth pair of a box.
fn number_of(interface: &str) -> Option<u32> {
    let number = interface.strip_prefix(PREFIX)?.parse().ok()?;
    (number < NETWORKS && name(number) == interface).then_some(number)
}

/// One of the four addresses of a network: 1 is the host's, 2 is the box's.
fn address(number: u32, place: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(POOL) + number * 4 + place)
}

fn planned(number: u32) -> Attachment {
    Attachment {
        method: Method::Veth,
        helper: None,
        guard: None,
        interface: Some(name(number)),
        index: None,
        subnet: Some(format!("{}/{BITS}", address(number, 0))),
    }
}

/// Makes the veth pair under the name of this number, or under the next free one. Answers the network's number and the link's.
fn add_veth(links: &Links, start: u32, net: &OwnedFd) -> Result<(u32, u32)> {
    for step in 0..ATTEMPTS_MAX {
        let number = (start + step) % NETWORKS;
        match links.add_veth(&name(number), INSIDE, net.as_fd()) {
            Ok(()) => {
                let index = links.index(&name(number)).map_err(|error| Error::io("look at a veth pair", error))?;
                return Ok((number, index));
            }
            Err(error) if is(&error, rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(Error::io("make a veth pair", error)),
        }
    }
    Err(failure(format!(
        "no free name for a veth pair after {ATTEMPTS_MAX} attempts; does the box have an eth0 already?"
    )))
}

fn configure(links: &Links, number: u32, net: &OwnedFd) -> Result<()> {
    let (host, interface) = (address(number, 1), name(number));
    links.add_address(&interface, host, BITS).map_err(|error| Error::io("give a veth pair its address", error))?;
    let set_up = || {
        let links = Links::open()?;
        let set_up = || {
            links.raise("lo")?;
            links.add_address(INSIDE, address(number, 2), BITS)?;
            links.raise(INSIDE)?;
            links.add_default_route(INSIDE, host)
        };
        set_up().map_err(|error| Error::io("set up the box's end of a veth pair", error))
    };
    inside(net, set_up)?
}

/// Does something in another network.
fn inside<T: Send>(net: &OwnedFd, act: impl FnOnce() -> T + Send) -> Result<T> {
    in_a_thread(|| {
        rustix::thread::move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| Error::io("go into a box's network", error))?;
        Ok(act())
    })
}

/// Runs a function in a new thread, so that no other code ever runs in the network namespace that it enters.
fn in_a_thread<T: Send>(act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let done = std::thread::scope(|scope| scope.spawn(act).join());
    done.unwrap_or_else(|_| Err(failure("a thread for another network broke down")))
}

/// Switches all interfaces of boxes off, and answers which were on.
fn cut_all(links: &Links) -> Vec<u32> {
    let ours = routes::interfaces(routes::OURS).into_iter().filter(|interface| is_ours(interface));
    let indexes: Vec<u32> = ours.filter_map(|interface| links.index(&interface).ok()).collect();
    let mut on = Vec::new();
    for index in indexes {
        match links.is_up(index) {
            Ok(false) => {}
            // If its state is unknown, it is switched off and not on again.
            state => {
                if let Err(error) = unless_gone(links.lower(index)) {
                    tracing::error!(%error, interface.index = index, "failed to cut a box off");
                }
                if state.is_ok() {
                    on.push(index);
                }
            }
        }
    }
    on
}

/// Switches interfaces on again, except those whose boxes ended meanwhile.
fn reconnect(links: &Links, indexes: &[u32]) -> io::Result<()> {
    let ended = switched_off().clone();
    indexes.iter().filter(|index| !ended.contains(index)).try_for_each(|index| unless_gone(links.raise_index(*index)))
}

fn switch_off(links: &Links, index: u32) -> Result<()> {
    let mut numbers = switched_off();
    numbers.retain(|number| links.name(*number).is_some());
    numbers.push(index);
    drop(numbers);
    unless_gone(links.lower(index)).map_err(|error| Error::io("switch a veth pair off", error))
}

fn remove(links: &Links, mut numbers: Vec<u32>) -> io::Result<()> {
    let start = Instant::now();
    while !numbers.is_empty() && start.elapsed() < PATIENCE {
        std::thread::sleep(PAUSE);
        numbers.retain(|number| links.name(*number).is_some());
    }
    numbers.into_iter().try_for_each(|number| unless_gone(links.delete(number)))
}

/// A veth pair may go with its box at any time.
fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if is(&error, rustix::io::Errno::NODEV) { Ok(()) } else { Err(error) })
}

fn switched_off() -> MutexGuard<'static, Vec<u32>> {
    SWITCHED_OFF.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is(error: &io::Error, number: rustix::io::Errno) -> bool {
    error.raw_os_error() == Some(number.raw_os_error())
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
