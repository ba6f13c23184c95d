//! What a supervisor such as systemd is told, by one datagram each.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Whoever wants to know how we stand; nobody, when nobody asked.
#[derive(Debug)]
pub(crate) struct Supervisor {
    address: Option<SocketAddr>,
}

impl Supervisor {
    /// The one that started us.
    pub(crate) fn of_process() -> Self {
        let name = std::env::var_os("NOTIFY_SOCKET");
        Self { address: name.and_then(|name| address(name.as_bytes())) }
    }

    /// We serve.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// We are about to end.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, state: &str) {
        let Some(address) = &self.address else { return };
        let told = UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(state.as_bytes(), address));
        if let Err(error) = told {
            tracing::warn!(%error, state, "the supervisor cannot be told");
        }
    }
}

/// A path, or a name in the abstract namespace after `@`.
fn address(name: &[u8]) -> Option<SocketAddr> {
    match name {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest).ok(),
        [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(name: &[u8], socket: &UnixDatagram) -> String {
        Supervisor { address: address(name) }.ready();
        let mut buffer = [0; 64];
        let count = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    #[test]
    fn a_supervisor_is_told_by_path_or_by_name() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        assert_eq!(received(path.as_os_str().as_bytes(), &socket), "READY=1");
        let name = format!("strongbox-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        assert_eq!(received(format!("@{name}").as_bytes(), &socket), "READY=1");
    }

    #[test]
    fn other_names_are_nobody() {
        for name in [&b""[..], b"relative", b"vsock:2:1"] {
            assert!(address(name).is_none());
        }
    }
}
