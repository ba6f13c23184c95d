//! A connection to a server, whatever it runs over.

use std::io;
use std::path::Path;
use std::time::Duration;

use box_http_client::{Io, Tls};
use tokio::net::{TcpStream, UnixStream};

use super::address::{Address, Network};
use crate::fault::Fault;

/// How long a server may take to accept a connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a server that was just started may take to lock its state directory, and then to listen.
const LEASE_TIME: Duration = Duration::from_millis(250);
const START_TIME: Duration = Duration::from_secs(5);
const START_PAUSE: Duration = Duration::from_millis(25);

/// Connects to a server. What goes wrong says how to start one.
pub(crate) async fn dial(address: &Address) -> Result<Box<dyn Io>, Fault> {
    let dialled = match address {
        Address::Unix(path) => tokio::time::timeout(DIAL_TIMEOUT, connect_to_starting(address, path)).await,
        Address::Network(_) => tokio::time::timeout(DIAL_TIMEOUT, connect(address)).await,
    };
    dialled
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")))
        .map_err(|error| unreachable(address, &error))
}

/// Waits for a local server that is starting, as when `strongbox serve &` and a command are pasted together.
async fn connect_to_starting(address: &Address, socket: &Path) -> io::Result<Box<dyn Io>> {
    let begun = tokio::time::Instant::now();
    loop {
        match connect(address).await {
            Err(error) if is_nobody_there(&error) && may_start(begun.elapsed(), socket) => {
                tokio::time::sleep(START_PAUSE).await;
            }
            other => return other,
        }
    }
}

fn is_nobody_there(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Whether a server may listen soon: it holds the state directory of the socket, or had no time to lock it.
fn may_start(waited: Duration, socket: &Path) -> bool {
    waited < LEASE_TIME || (waited < START_TIME && socket.parent().is_some_and(crate::state::is_leased))
}

async fn connect(address: &Address) -> io::Result<Box<dyn Io>> {
    match address {
        Address::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        Address::Network(network) => {
            let stream = TcpStream::connect((network.host.as_str(), network.port)).await?;
            stream.set_nodelay(true)?;
            if network.is_encrypted {
                Tls::of_machine()?.connect(&network.host, stream).await
            } else {
                Ok(Box::new(stream))
            }
        }
    }
}

fn unreachable(address: &Address, error: &io::Error) -> Fault {
    let fault = Fault::new(format!("no server answers at {address}: {error}")).code("unreachable");
    match (address, error.kind()) {
        (Address::Unix(path), io::ErrorKind::PermissionDenied) => {
            let path = path.display();
            fault.hint(format!("{path} belongs to another user; use sudo, or --url and a token of that server"))
        }
        (Address::Unix(path), _) => fault.hint(start_command(path)),
        (Address::Network(network), _) if is_no_tls(error) => {
            let plain = Address::Network(Network { is_encrypted: false, ..network.clone() });
            Fault::new(format!("the server at {address} does not speak TLS")).code("unreachable").hint(format!(
                "use {plain}, or give the server a certificate: `strongbox serve --tls-certificate FILE --tls-key FILE`"
            ))
        }
        (Address::Network(network), io::ErrorKind::InvalidData) if network.is_encrypted => {
            Fault::new(format!("the server at {address} is not trusted: {error}"))
                .hint("name the file of its certificate's issuer in SSL_CERT_FILE, and check the host name")
        }
        _ => fault.hint("start one with `strongbox serve`, or name the right place with --url or STRONGBOX_URL"),
    }
}

/// Whether the answer to our first message is not TLS.
fn is_no_tls(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<tokio_rustls::rustls::Error>());
    matches!(inner, Some(tokio_rustls::rustls::Error::InvalidMessage(_)))
}

/// The command that would start a server behind that socket.
fn start_command(socket: &Path) -> String {
    let usual = box_host::default_state_dir();
    let start = match socket.parent() {
        Some(directory) if directory != usual => format!("strongbox serve --state-dir {}", directory.display()),
        _ => "strongbox serve".to_owned(),
    };
    format!("start one with `{start}`, or name another with --url or STRONGBOX_URL")
}
