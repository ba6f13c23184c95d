//! A connection to a server, whatever it runs over.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};

use super::address::{Address, Network};
use crate::fault::Fault;

/// How long a server may take to accept a connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection of bytes.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Connects to a server. What goes wrong says how to start one.
pub(crate) async fn dial(address: &Address) -> Result<Box<dyn Io>, Fault> {
    let dialled = tokio::time::timeout(DIAL_TIMEOUT, connect(address)).await;
    dialled
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")))
        .map_err(|error| unreachable(address, &error))
}

async fn connect(address: &Address) -> io::Result<Box<dyn Io>> {
    match address {
        Address::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        Address::Network(network) => {
            let stream = TcpStream::connect((network.host.as_str(), network.port)).await?;
            stream.set_nodelay(true)?;
            if network.is_encrypted { encrypt(network, stream).await } else { Ok(Box::new(stream)) }
        }
    }
}

async fn encrypt(network: &Network, stream: TcpStream) -> io::Result<Box<dyn Io>> {
    let name = ServerName::try_from(network.host.clone()).map_err(io::Error::other)?;
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be read are left out; the connection then fails and says that the issuer is unknown.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
}

fn unreachable(address: &Address, error: &io::Error) -> Fault {
    let fault = Fault::new(format!("no server answers at {address}: {error}")).code("unreachable");
    match (address, error.kind()) {
        (Address::Unix(path), io::ErrorKind::PermissionDenied) => {
            let path = path.display();
            fault.hint(format!("{path} belongs to another user; use sudo, or --url and a token of that server"))
        }
        (Address::Unix(path), _) => fault.hint(start_command(path)),
        (Address::Network(network), io::ErrorKind::InvalidData) if network.is_encrypted => {
            Fault::new(format!("the server at {address} is not trusted: {error}"))
                .hint("name the file of its certificate's issuer in SSL_CERT_FILE, and check the host name")
        }
        _ => fault.hint("start one with `strongbox serve`, or name the right place with --url or STRONGBOX_URL"),
    }
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
