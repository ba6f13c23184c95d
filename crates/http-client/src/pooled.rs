//! Clients that keep connections, for servers that are asked often.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use reqwest::redirect::Policy;

use crate::USER_AGENT;

/// How a client that keeps connections behaves.
#[derive(Debug, Clone)]
pub struct Pool {
    /// How long a server may take to connect.
    pub connect: Duration,
    /// How long an unused connection is kept, if not as long as the library likes. Zero keeps none.
    pub idle: Option<Duration>,
    /// Whether the proxies of the environment are used (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, without `NO_PROXY`).
    pub uses_proxies: bool,
    /// The only addresses of a host that are connected to. Needs `uses_proxies` to be off: a proxy would resolve the name again.
    pub pinned: Option<(String, Vec<SocketAddr>)>,
}

/// Makes a client that keeps connections. It follows no redirect: headers with secrets would go along to wherever that leads.
pub fn pooled(pool: &Pool) -> io::Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(crate::tls::of_machine()?)
        .redirect(Policy::none())
        .connect_timeout(pool.connect)
        .user_agent(USER_AGENT);
    if let Some(idle) = pool.idle {
        builder = builder.pool_idle_timeout(idle);
        if idle.is_zero() {
            builder = builder.pool_max_idle_per_host(0);
        }
    }
    if !pool.uses_proxies || pool.pinned.is_some() {
        builder = builder.no_proxy();
    }
    if let Some((host, addresses)) = &pool.pinned {
        builder = builder.resolve_to_addrs(host, addresses);
    }
    builder.build().map_err(io::Error::other)
}
