//! The HTTP client of everyone here.
//!
//! There are two ways to send a request. [`Client`] and [`send`] use a connection of its own for each request, to addresses that
//! the caller resolved and checked: for servers that a stranger chose, for local sockets, and wherever connections are upgraded.
//! [`pooled`] makes a client that keeps connections and honours the proxies of the environment, for APIs that the operator chose
//! and for MCP, whose library requires it.
//!
//! No client follows redirects: a caller who wants to follow one checks the new address first, with [`Address::join`].

mod address;
mod client;
mod connection;
mod error;
mod pooled;
mod tls;

pub use address::{Address, BadAddress};
pub use client::{Client, Limits};
pub use connection::{Answer, Body, BoxError, Io, Upgraded, body, empty, full, send};
pub use error::Error;
pub use pooled::{Pool, pooled};
pub use tls::{ClientCertificate, Tls};

/// The value of `User-Agent` in every request.
pub const USER_AGENT: &str = concat!("strongbox/", env!("CARGO_PKG_VERSION"));
