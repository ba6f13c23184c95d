//! Commands that ask a running server, through its REST door.

mod address;
mod archive;
mod carried;
mod copy_endpoint;
mod dial;
mod ending;
mod failure;
mod http;
mod live;
mod removal;
mod session_options;
mod tail;
mod targets;
mod transfer;
mod verb;
pub(crate) mod waiting;
mod websocket;

use std::future::Future;
use std::pin::Pin;

use ::http::HeaderValue;
use clap::Args;

use self::address::Address;
use self::http::Client;
use crate::config::PlaceOptions;
use crate::fault::Fault;

pub(crate) use self::verb::{
    attach, code, cp, e2b, errors, exec, fork, kill, logs, ls, mcp, port_forward, process, ps, session, shell, skill,
    snapshot, status, template, volume,
};

/// Which server to ask.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerOptions {
    /// The server: http://HOST:PORT, https://HOST:PORT or unix:/PATH; else the socket of this machine's server. A
    /// token is taken from STRONGBOX_TOKEN
    #[arg(long, value_name = "URL", env = "STRONGBOX_URL", hide_env_values = true)]
    url: Option<Address>,
    #[command(flatten)]
    place: PlaceOptions,
}

impl ServerOptions {
    /// Somebody who asks that server. Without a URL it is the one whose socket the configuration names.
    fn client(&self) -> Result<Client, Fault> {
        let token = std::env::var("STRONGBOX_TOKEN").ok().filter(|token| !token.is_empty());
        let token = token.as_deref().map(bearer).transpose()?;
        let address = match &self.url {
            Some(address) => address.clone(),
            None => self.own_server()?,
        };
        Ok(Client { address, token })
    }

    fn own_server(&self) -> Result<Address, Fault> {
        let config = self.place.settings(&self.place.flags())?.config()?;
        let socket = config.unix_socket.map(Address::Unix);
        socket.ok_or_else(|| {
            Fault::new("the configuration has no unix_socket, so this machine's server can only be asked by URL")
                .hint("use --url or STRONGBOX_URL, and STRONGBOX_TOKEN when the server needs a token")
        })
    }
}

fn bearer(token: &str) -> Result<HeaderValue, Fault> {
    let refused = |_| Fault::new("STRONGBOX_TOKEN holds characters that no token has");
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(refused)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Asks a server and gives the exit code.
fn ask<T>(options: &ServerOptions, question: impl AsyncFnOnce(&Client) -> Result<T, Fault>) -> Result<T, Fault> {
    let client = options.client()?;
    let runtime = crate::runtime()?;
    // Boxed, so that the runtime is compiled once for each kind of answer and not once for each verb.
    let answer: Pin<Box<dyn Future<Output = Result<T, Fault>> + '_>> = Box::pin(question(&client));
    let answered = runtime.block_on(answer);
    // A thread that still waits for our standard input must not keep us from ending.
    runtime.shutdown_background();
    answered
}

/// Waits for an answer, and shows so when it takes long.
async fn patiently<T>(what: &str, answer: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    waiting::wait(what, answer).await
}
