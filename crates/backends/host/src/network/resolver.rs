//! Name servers that a box can use.

use std::net::IpAddr;

use super::Obstacle;

/// What an obstacle report names if the host has no usable name server.
pub(super) const WHAT: &str = "name resolution in the box";

/// What every program of the host reads.
const HOST_FILE: &str = "/etc/resolv.conf";

/// Where systemd writes the real servers when the host itself asks a stub on loopback.
const BEHIND_STUB_FILE: &str = "/run/systemd/resolve/resolv.conf";

/// The host's name servers that satisfy `usable`. Loopback never does: in a box it is the box's own.
pub(super) fn of_host(usable: fn(&IpAddr) -> bool) -> Result<Vec<IpAddr>, Obstacle> {
    for file in [HOST_FILE, BEHIND_STUB_FILE] {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let servers: Vec<IpAddr> = servers(&text).filter(|server| !server.is_loopback() && usable(server)).collect();
        if !servers.is_empty() {
            return Ok(servers);
        }
    }
    Err(Obstacle::new(
        format!("neither {HOST_FILE} nor {BEHIND_STUB_FILE} names a server that a box could reach by itself"),
        format!(
            "run `apt-get install slirp4netns`, which asks for the box, or add another `nameserver` to {HOST_FILE}"
        ),
    ))
}

/// The text of a `resolv.conf`.
pub(super) fn text(servers: &[IpAddr]) -> String {
    servers.iter().flat_map(|server| ["nameserver ".to_owned(), server.to_string(), "\n".to_owned()]).collect()
}

fn servers(text: &str) -> impl Iterator<Item = IpAddr> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_name_servers_are_taken() {
        let file = "# nameserver 1.1.1.1\nsearch example.org\nnameserver 10.0.0.53\nnameserver\t2001:db8::53\n\
            nameserver fe80::1%eth0\nnameserver -x\nnameserver\n";
        let servers: Vec<IpAddr> = servers(file).collect();
        assert_eq!(text(&servers), "nameserver 10.0.0.53\nnameserver 2001:db8::53\n");
    }
}
