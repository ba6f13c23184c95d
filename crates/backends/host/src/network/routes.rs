//! Routes and interfaces of a network namespace, read from `/proc`.

use std::fs::read_to_string;
use std::net::Ipv4Addr;

/// A route of IPv4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) interface: String,
    pub(super) destination: Ipv4Addr,
    pub(super) mask: Ipv4Addr,
}

impl Route {
    /// Whether it leads everywhere.
    pub(super) fn is_default(&self) -> bool {
        (self.destination, self.mask) == (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED)
    }
}

/// Whose view is read: `/proc/<pid>`, or `/proc/thread-self` for the caller's own.
pub(super) const OURS: &str = "/proc/thread-self";

/// Whether there is a way to everywhere, by IPv4 or IPv6.
pub(super) fn has_default(process: &str) -> bool {
    let by_ipv4 = all(process).iter().any(Route::is_default);
    let table = read_to_string(format!("{process}/net/ipv6_route")).unwrap_or_default();
    by_ipv4 || table.lines().any(is_ipv6_default)
}

/// All routes of IPv4 whose interface is up.
pub(super) fn all(process: &str) -> Vec<Route> {
    let table = read_to_string(format!("{process}/net/route")).unwrap_or_default();
    table.lines().skip(1).filter_map(parse).collect()
}

/// The names of all interfaces.
pub(super) fn interfaces(process: &str) -> Vec<String> {
    let table = read_to_string(format!("{process}/net/dev")).unwrap_or_default();
    table.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

/// A line has: interface, destination, gateway, flags, references, uses, metric, mask. Numbers are in memory order.
fn parse(line: &str) -> Option<Route> {
    const UP: u32 = 1;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let address = |field: &str| Some(Ipv4Addr::from(u32::from_str_radix(field, 16).ok()?.to_ne_bytes()));
    let flags = u32::from_str_radix(fields.get(3)?, 16).ok()?;
    let route = Route {
        interface: (*fields.first()?).to_owned(),
        destination: address(fields.get(1)?)?,
        mask: address(fields.get(7)?)?,
    };
    (flags & UP != 0).then_some(route)
}

/// A line has: destination, its bits, source, its bits, gateway, metric, references, uses, flags, interface.
fn is_ipv6_default(line: &str) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let to_everywhere = fields.first().is_some_and(|field| field.bytes().all(|byte| byte == b'0'));
    // Every namespace has an entry of its own on `lo` that rejects packets without a route.
    to_everywhere && fields.get(1) == Some(&"00") && fields.get(9).is_some_and(|interface| *interface != "lo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read_in_memory_order() {
        let route = parse("eth0\t0000C70A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0").unwrap();
        let expected = (Ipv4Addr::new(10, 199, 0, 0), Ipv4Addr::new(255, 255, 0, 0));
        assert_eq!((route.destination, route.mask), expected);
        assert_eq!(parse("eth0\t00000000\t0202000A\t0000\t0\t0\t0\t00000000\t0\t0\t0"), None, "not up");
    }

    #[test]
    fn the_reject_entry_is_no_default_route() {
        let zero = "0".repeat(32);
        let line = |interface| format!("{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200 {interface}");
        assert!(!is_ipv6_default(&line("lo")));
        assert!(is_ipv6_default(&line("eth0")));
    }
}
