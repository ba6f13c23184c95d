//! Doors over HTTP: the REST door, who may come in, and what is listened on.

mod app;
mod auth;
mod body;
mod e2b;
mod events;
mod extract;
mod failure;
mod feed;
mod fetch;
mod gate;
mod kept;
mod limits;
mod listen;
mod metrics;
mod observe;
mod original;
mod proxy;
mod range;
mod rest;
mod routes;
mod rpc;
mod seats;
mod serve;
mod signal;
mod skill_door;
mod socket;
mod stream;
#[cfg(test)]
mod testing;
mod tls;
mod transfer;
mod turns;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use box_core::{Service, Store};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::app::App;
use crate::gate::Gate;
use crate::listen::UnixDoor;
use crate::serve::Server;

pub use e2b::E2bConfig;
pub use gate::Peer;
/// What strangers send, for programs that make it up.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use crate::e2b::files::fuzzing::form;
    pub use crate::rpc::fuzzing::{lines, messages};
}
pub use rpc::{LangBot, LangBotConfig};
pub use skill_door::SkillsConfig;

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
    /// What the LangBot door is given.
    pub langbot: LangBotConfig,
    /// Where skill packages are, and where new ones may come from.
    pub skills: SkillsConfig,
    /// What the E2B door is given.
    pub e2b: E2bConfig,
    /// MCP over HTTP, ready to be asked by whoever has the scope exec. Who that is stands in the extensions of each request.
    pub mcp: Option<axum::Router>,
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

impl Error {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// A server that listens.
pub struct Bound {
    addresses: Vec<String>,
    tcp: Option<(TcpListener, Option<TlsAcceptor>)>,
    unix: Option<UnixDoor>,
    server: Server,
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Starts to listen. Refuses to listen beyond the loopback while there is no token, neither of ours nor LangBot's.
pub async fn bind(mut config: ServerConfig, service: Service, store: Arc<dyn Store>) -> Result<Bound, Error> {
    if config.listen.is_none() && config.unix_socket.is_none() {
        return Err(Error::new("there is nothing to listen on; give an address or the path of a Unix socket"));
    }
    if let Some(address) = config.listen {
        refuse_open_door(&config.langbot, store.as_ref(), address).await?;
        warn_of_strangers(&config.langbot, address);
    }
    let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
    let tcp = match config.listen {
        Some(address) => Some((listen::tcp(address).await?, tls)),
        None => None,
    };
    // The port is known only now: the configuration may leave its choice to the kernel.
    config.e2b.name_sandboxes(tcp.as_ref().and_then(|(listener, _)| listener.local_addr().ok()));
    let app = app(&config, service, store)?;
    let unix = config.unix_socket.as_deref().map(listen::unix).transpose()?;
    let addresses = addresses(tcp.as_ref(), config.unix_socket)?;
    // Also where the door is closed by now: sandboxes of before come to their end.
    e2b::lifetimes::start(&app);
    e2b::volumes::start(&app);
    let server = Server::new(app.clone(), routes::router(app, config.mcp));
    Ok(Bound { addresses, tcp, unix, server })
}

/// All routes with what surrounds them, as one service. Whoever calls it puts a [`Peer`] into the extensions of each request.
/// This is how tests knock without a socket.
pub fn router(config: &ServerConfig, service: Service, store: Arc<dyn Store>) -> Result<axum::Router, Error> {
    Ok(routes::router(app(config, service, store)?, config.mcp.clone()))
}

/// The OpenAPI document as JSON.
pub fn openapi() -> &'static str {
    routes::document_text()
}

fn app(config: &ServerConfig, service: Service, store: Arc<dyn Store>) -> Result<App, Error> {
    let gate = Gate::new(&config.allowed_hosts, &config.allowed_origins).map_err(Error::new)?;
    config.langbot.check().map_err(Error::new)?;
    config.e2b.check().map_err(Error::new)?;
    let gate = gate.with_sandboxes(config.e2b.domain_host().filter(|_| config.e2b.enabled));
    Ok(App::new(service, store, gate, config.langbot.clone(), config.skills.clone(), config.e2b.clone()))
}

async fn refuse_open_door(langbot: &LangBotConfig, store: &dyn Store, address: SocketAddr) -> Result<(), Error> {
    // Whoever has no token gets nothing by the other doors from far away, so the LangBot door may be open alone.
    if address.ip().to_canonical().is_loopback() || langbot.is_open() {
        return Ok(());
    }
    let unreadable = |error| Error::new(format!("the tokens cannot be read: {error}"));
    if !store.tokens().await.map_err(unreadable)?.is_empty() {
        return Ok(());
    }
    Err(Error::new(format!(
        "{address} can be reached from other machines and there is no token, so anybody could run commands here; make one with \
         `strongbox token create --name NAME`, or listen on 127.0.0.1"
    )))
}

fn warn_of_strangers(langbot: &LangBotConfig, address: SocketAddr) {
    let LangBotConfig { legacy, control_token, .. } = langbot;
    if *legacy && control_token.is_none() && !address.ip().to_canonical().is_loopback() {
        tracing::warn!(%address, "langbot.legacy is set: whoever reaches this address can run commands in boxes here, without any token");
    }
}

fn addresses(tcp: Option<&(TcpListener, Option<TlsAcceptor>)>, unix: Option<PathBuf>) -> Result<Vec<String>, Error> {
    let by_tcp = tcp.map(|(listener, tls)| {
        let address =
            listener.local_addr().map_err(|error| Error::new(format!("the address cannot be told: {error}")))?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{address}"))
    });
    let by_unix = unix.map(|path| Ok(format!("unix:{}", path.display())));
    by_tcp.into_iter().chain(by_unix).collect()
}

impl Bound {
    /// Where it listens, as URLs.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The LangBot door of this server, for clients that come by another way than a listener.
    pub fn langbot(&self) -> LangBot {
        self.server.langbot().clone()
    }

    /// Serves until `shutdown` completes, then lets running requests end for a while.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
        self.server.run(self.tcp, self.unix, shutdown).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
