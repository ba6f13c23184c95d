//! Sandboxes of E2B, made by a Strongbox server that the suite starts for itself: its network namespace reaches no
//! other.

use std::io::{Read, Write};
use std::net::TcpStream;

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::TestServer;
use crate::server::ServerOptions;

/// The key that the server takes. It has no tokens, so any will do that looks like one.
pub const KEY: &str = "e2b_0000000000000000000000000000000000000000";

/// More than any answer of a server that only we use.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Where the server is that a suite has started.
static ADDRESS: Mutex<Option<String>> = Mutex::new(None);

/// Tells a suite that it may start a Strongbox server as the provider.
pub const VARIABLE: &str = "STRONGBOX_TEST_E2B";

/// A Strongbox server as the provider, with native boxes.
#[derive(Debug)]
pub struct Provider(TestServer);

impl Provider {
    /// Starts it; from then on [`url`] says where it is.
    pub async fn start() -> Result<Self> {
        let server = TestServer::start_with(ServerOptions::configured("backend = \"native\"\n")).await?;
        *ADDRESS.lock().unwrap_or_else(PoisonError::into_inner) = Some(server.url()?.to_owned());
        Ok(Self(server))
    }

    /// Ends it, with everything that it has.
    pub async fn stop(mut self) -> Result<()> {
        *ADDRESS.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let status = self.0.sigterm().await?;
        ensure!(status.success(), "the provider ended with {status}: {}", self.0.log());
        Ok(())
    }
}

/// Where the provider is.
pub fn url() -> Option<String> {
    ADDRESS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The sandboxes of all keys on the server at this address, as lines of text.
pub fn contents(url: &str) -> Vec<String> {
    // A server that does not answer counts as a leftover; otherwise its leftovers would go unnoticed.
    sandboxes(url).unwrap_or_else(|error| vec![format!("e2b does not tell what it holds: {error:#}")])
}

fn sandboxes(url: &str) -> Result<Vec<String>> {
    let address = url.strip_prefix("http://").context("no address of a server")?.trim_end_matches('/');
    let mut stream = TcpStream::connect(address).with_context(|| format!("dialling {address}"))?;
    write!(stream, "GET /v2/sandboxes HTTP/1.0\r\nHost: {address}\r\nX-API-KEY: {KEY}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    ensure!(head.lines().next().is_some_and(|line| line.contains(" 200 ")), "{head}");
    let all: Value = serde_json::from_str(body).context("no JSON")?;
    let all = all.as_array().context("no list of sandboxes")?;
    Ok(all.iter().map(|one| format!("sandbox {} {}", one["sandboxID"], one["metadata"])).collect())
}
