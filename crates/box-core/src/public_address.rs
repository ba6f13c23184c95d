//! Machines that a stranger may have us speak with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Answers virtual machines of one cloud with what is theirs alone, at an address that looks like anybody's.
const CLOUD_HOST: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// Whether a machine is one that anybody can reach: not this one, and none that only this one can reach.
pub fn is_public(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_global = match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    };
    is_global && !is_own(address)
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
    let is_shared = first == 100 && (64..128).contains(&second);
    let is_special = first == 0 || first >= 240 || (first == 192 && second == 0 && third == 0);
    let is_for_benchmarks = first == 198 && (18..20).contains(&second);
    !(is_shared
        || is_special
        || is_for_benchmarks
        || address == CLOUD_HOST
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Only what is given out to the world; and not what carries an older address inside, or means nobody.
    let is_global = first & 0xe000 == 0x2000;
    let is_carrier = first == 0x2002 || (first == 0x2001 && second == 0);
    let is_documentation = (first == 0x2001 && second == 0x0db8) || first == 0x3fff;
    is_global && !is_carrier && !is_documentation
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
        ];
        for text in ours {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_its_own() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(Ipv4Addr::new(1, 1, 1, 1).into()));
    }
}
