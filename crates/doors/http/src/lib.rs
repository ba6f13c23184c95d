//! What all doors over HTTP share: listening, TLS, authentication, bodies, errors, streams, the port proxy.

pub mod auth;
mod blocking;
pub mod body;
pub mod failure;
pub mod feed;
pub mod gate;
mod kept;
pub mod limits;
mod listen;
pub mod metrics;
pub mod observe;
pub mod original;
pub mod proxy;
pub mod range;
pub mod seats;
mod serve;
pub mod signal;
pub mod socket;
pub mod state;
mod stream;
pub mod terminal;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls;
pub mod transfer;
pub mod turns;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;

use axum::Router;
use axum::middleware::{from_fn_with_state, map_response};
use box_core::{Scope, Store};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tower_http::catch_panic::CatchPanicLayer;

use crate::listen::UnixDoor;
use crate::serve::Server;

pub use blocking::blocking;
pub use gate::{Gate, Peer};
pub use limits::TOKENS_AGE_MAX;
pub use state::ServerState;

/// The addresses and names of the server.
#[derive(Debug, Clone, Default)]
pub struct ListenConfig {
    /// Address and port, if any.
    pub listen: Option<SocketAddr>,
    /// Unix socket, if any. Made with mode 0600; an old one without a listener is replaced.
    pub unix_socket: Option<PathBuf>,
    /// Certificate chain and key in PEM, when connections are encrypted.
    pub tls: Option<TlsFiles>,
    /// Whether a door serves clients of other machines without a token, by rules of its own.
    pub serves_strangers: bool,
}

/// The certificate's files.
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
    /// The reason and the fix.
    message: String,
}

impl Error {
    /// An error with a sentence.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// Sockets that are listened on, before anything is served.
pub struct Listeners {
    tcp: Option<(TcpListener, Option<TlsAcceptor>)>,
    unix: Option<UnixDoor>,
    addresses: Vec<String>,
}

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listeners").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Starts to listen. Addresses beyond the loopback are refused while no token exists, unless a door has its own rules.
pub async fn bind(config: ListenConfig, store: &dyn Store) -> Result<Listeners, Error> {
    if config.listen.is_none() && config.unix_socket.is_none() {
        return Err(Error::new("there is nothing to listen on; give an address or the path of a Unix socket"));
    }
    if let Some(address) = config.listen.filter(|_| !config.serves_strangers) {
        refuse_open_door(store, address).await?;
    }
    let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
    let tcp = match config.listen {
        Some(address) => Some((listen::tcp(address).await?, tls)),
        None => None,
    };
    let unix = config.unix_socket.as_deref().map(listen::unix).transpose()?;
    let addresses = addresses(tcp.as_ref(), config.unix_socket)?;
    Ok(Listeners { tcp, unix, addresses })
}

async fn refuse_open_door(store: &dyn Store, address: SocketAddr) -> Result<(), Error> {
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let unreadable = |error| Error::new(format!("failed to read the tokens: {error}"));
    if !store.tokens().await.map_err(unreadable)?.is_empty() {
        return Ok(());
    }
    Err(Error::new(format!(
        "{address} can be reached from other machines and no token exists, so anyone could run commands here; make one with \
         `strongbox token create --name NAME`, or listen on 127.0.0.1"
    )))
}

fn addresses(tcp: Option<&(TcpListener, Option<TlsAcceptor>)>, unix: Option<PathBuf>) -> Result<Vec<String>, Error> {
    let by_tcp = tcp.map(|(listener, tls)| {
        let address =
            listener.local_addr().map_err(|error| Error::new(format!("failed to read the own address: {error}")))?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{address}"))
    });
    let by_unix = unix.map(|path| Ok(format!("unix:{}", path.display())));
    by_tcp.into_iter().chain(by_unix).collect()
}

/// The routes of all doors with what surrounds every request. From the outside in: the request is observed, a panic
/// becomes an error, then `Host` and `Origin`. Callers put a [`Peer`] into the extensions of each request.
pub fn surround(state: &ServerState, routes: Router) -> Router {
    routes
        .layer(from_fn_with_state(state.clone(), gate::guard))
        .layer(CatchPanicLayer::custom(observe::panicked))
        .layer(from_fn_with_state(state.clone(), observe::watch))
}

/// Routes of a protocol that writes its own errors, for callers with a right. Refusals of the guard have the form of REST.
pub fn guard_foreign(state: &ServerState, scope: Scope, routes: Router) -> Router {
    routes
        .route_layer(map_response(async |answer| observe::Verbatim::wrap(answer)))
        .route_layer(from_fn_with_state((state.clone(), scope), auth::admit))
}

impl Listeners {
    /// The URLs of the server.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The TCP address, with the port that the kernel chose.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }

    /// Serves the routes of all doors until `shutdown` completes, then lets running requests end for a while.
    pub async fn serve(self, state: ServerState, routes: Router, shutdown: impl Future<Output = ()> + Send + 'static) {
        let routes = surround(&state, routes);
        Server::new(state, routes).run(self.tcp, self.unix, shutdown).await;
    }
}
