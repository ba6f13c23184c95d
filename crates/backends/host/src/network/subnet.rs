//! A network as it is written in configuration: `10.0.0.0/8`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use box_wire::Invalid;
use serde::{Deserialize, Serialize};

/// All addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    first: IpAddr,
    bits: u8,
}

impl Subnet {
    /// Its first and its last address.
    pub(super) fn range(&self) -> (IpAddr, IpAddr) {
        let last = match self.first {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() | hosts_v4(self.bits)).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() | hosts_v6(self.bits)).into(),
        };
        (self.first, last)
    }
}

/// The host bits of an address.
fn hosts_v4(bits: u8) -> u32 {
    u32::MAX.checked_shr(bits.into()).unwrap_or(0)
}

fn hosts_v6(bits: u8) -> u128 {
    u128::MAX.checked_shr(bits.into()).unwrap_or(0)
}

impl TryFrom<String> for Subnet {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        let allowed = "the first address of a network and its bits, such as 10.0.0.0/8 or fd00::/8";
        let parse = || {
            let (first, bits) = text.split_once('/')?;
            let (first, bits): (IpAddr, u8) = (first.parse().ok()?, bits.parse().ok()?);
            let is_first = match first {
                IpAddr::V4(first) => bits <= 32 && first.to_bits() & hosts_v4(bits) == 0,
                IpAddr::V6(first) => bits <= 128 && first.to_bits() & hosts_v6(bits) == 0,
            };
            is_first.then_some(Self { first, bits })
        };
        parse().ok_or_else(|| Invalid::new("network", text, allowed))
    }
}

box_wire::from_text!(Subnet);

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_its_first_address_and_its_bits() {
        for (text, last) in [
            ("10.0.0.0/8", "10.255.255.255"),
            ("172.16.0.0/12", "172.31.255.255"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("0.0.0.0/0", "255.255.255.255"),
            ("fc00::/7", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("2001:db8::1/128", "2001:db8::1"),
        ] {
            let subnet: Subnet = text.parse().unwrap();
            assert_eq!((subnet.to_string().as_str(), subnet.range().1), (text, last.parse().unwrap()));
        }
        for text in ["", "10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "fc00::/129", "10.0.0.0/8/8", "10.0.0.0/-1", "x/8"] {
            assert!(text.parse::<Subnet>().is_err(), "{text}");
        }
    }
}
