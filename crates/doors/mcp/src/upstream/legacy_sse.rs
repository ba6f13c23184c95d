//! Servers elsewhere that speak the two-way scheme of 2024-11-05: they tell on a stream of events where to post messages, and answer on
//! the stream. rmcp has no client for it; events are read by its own reader of streams, with the same bounds.

use std::future::ready;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt};
use reqwest::Url;
use reqwest::header::CONTENT_TYPE;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::StreamableHttpClient;
use tokio::sync::Semaphore;

use super::http::{CONNECT_TIMEOUT, REQUESTS_MAX, Remote};
use super::{ConnectError, reason};
use crate::stdio::{GARBAGE_LINES_MAX, LINE_BYTES_MAX};
use crate::text::clean;

/// Longest that a server may take to accept a message. Its answer comes on the stream.
const POST_TIMEOUT: Duration = Duration::from_mins(1);
/// Longest text of a refusal that is repeated.
const SAID_CHARS: usize = 300;

/// What is heard on a stream: the kind of an event, and its data.
type Heard = (Option<String>, String);

/// A connection of this kind.
pub(super) struct LegacySse {
    client: reqwest::Client,
    remote: Remote,
    /// Where messages are posted.
    endpoint: Url,
    events: Option<BoxStream<'static, Heard>>,
    turns: Arc<Semaphore>,
}

impl LegacySse {
    /// Opens the stream of a server, and waits to be told where to post.
    pub(super) async fn open(remote: &Remote) -> Result<Self, ConnectError> {
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, Self::open_stream(remote)).await;
        opened.unwrap_or_else(|_| Err(failed("it did not say where to post messages")))
    }

    async fn open_stream(remote: &Remote) -> Result<Self, ConnectError> {
        let client = remote.client()?;
        let url: Url = remote.url.parse().map_err(|_| failed("its address cannot be read"))?;
        let (uri, headers) = (remote.url.as_str().into(), remote.headers.clone());
        let events = client.get_stream_with_max_sse_event_size(uri, None, None, None, headers, LINE_BYTES_MAX).await;
        let events = events.map_err(|error| failed(&clean(&reason::of_request(error), SAID_CHARS)))?;
        // Whatever breaks the stream ends it.
        let whole = events.take_while(|event| ready(event.is_ok())).filter_map(|event| ready(event.ok()));
        let mut events = whole.filter_map(|event| ready(event.data.map(|data| (event.event, data)))).boxed();
        let (kind, told) = events.next().await.ok_or_else(|| failed("its stream ended"))?;
        if kind.as_deref() != Some("endpoint") {
            return Err(failed("it did not say first where to post messages"));
        }
        let endpoint = endpoint(&url, &told)?;
        let turns = Arc::new(Semaphore::new(REQUESTS_MAX));
        Ok(Self { client, remote: remote.clone(), endpoint, events: Some(events), turns })
    }
}

/// Where messages are posted. Our headers hold secrets, so they go to nobody but the server that they are for.
fn endpoint(url: &Url, told: &str) -> Result<Url, ConnectError> {
    let endpoint = url.join(told.trim()).map_err(|_| failed("the place that it named for messages is no address"))?;
    if endpoint.origin() != url.origin() || !matches!(endpoint.scheme(), "http" | "https") {
        return Err(failed("the place that it named for messages is on another machine"));
    }
    Ok(endpoint)
}

fn failed(what: &str) -> ConnectError {
    ConnectError::Handshake(what.to_owned())
}

impl Transport<RoleClient> for LegacySse {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let turns = Arc::clone(&self.turns);
        let request = self.client.post(self.endpoint.clone()).timeout(POST_TIMEOUT);
        let request = request.headers(self.remote.headers.clone().into_iter().collect());
        async move {
            let body = serde_json::to_vec(&message)?;
            let _turn = turns.acquire().await.map_err(io::Error::other)?;
            // Without the address, which may hold a secret.
            let sent = request.header(CONTENT_TYPE, "application/json").body(body).send().await;
            let status = sent.map_err(|error| io::Error::other(error.without_url()))?.status();
            let refused = || io::Error::other(format!("the server refused the message with {status}"));
            if status.is_success() { Ok(()) } else { Err(refused()) }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let events = self.events.as_mut()?;
        for _ in 0..GARBAGE_LINES_MAX {
            let (kind, data) = events.next().await?;
            if kind.is_none_or(|kind| kind == "message")
                && let Ok(message) = serde_json::from_str(&data)
            {
                return Some(message);
            }
        }
        None
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.events = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_old_server_that_cannot_be_reached_is_named_without_types() {
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let empty = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, axum::Router::new()).await });
        for (address, reason) in [(closed, "Connection refused"), (empty, "HTTP status client error (404 Not Found)")] {
            let remote = Remote::new(&format!("http://{address}/sse?key=swordfish"), []).unwrap();
            let tasks = tokio_util::task::TaskTracker::new();
            let refused = super::super::Upstream::over_legacy_sse("one".parse().unwrap(), &remote, &tasks).await;
            let told = refused.unwrap_err().to_string();
            let expected = format!("cannot connect to the MCP server at http://{address}: {reason}");
            assert!(told.starts_with(&expected) && !told.contains("::") && !told.contains("swordfish"), "{told}");
        }
    }

    #[test]
    fn messages_are_posted_to_the_server_itself_and_to_nobody_else() {
        let url: Url = "https://example.com:8443/sse?key=1".parse().unwrap();
        for (told, expected) in [
            ("/messages?session_id=1", "https://example.com:8443/messages?session_id=1"),
            ("messages", "https://example.com:8443/messages"),
            ("https://example.com:8443/m", "https://example.com:8443/m"),
            ("?session=2", "https://example.com:8443/sse?session=2"),
        ] {
            assert_eq!(endpoint(&url, told).unwrap().as_str(), expected, "{told}");
        }
        for bad in [
            "https://example.com/m",
            "http://example.com:8443/m",
            "//evil.example/m",
            "https://evil.example:8443/",
            "file:///etc/passwd",
            "http://[",
        ] {
            assert!(endpoint(&url, bad).is_err(), "{bad}");
        }
    }
}
