//! Servers elsewhere, and how they are spoken with over streamable HTTP.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use box_core::public_address::Reach;
use box_http_client::Pool;
use http::{HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use super::ConnectError;
use crate::limits::HEADERS_MAX;
use crate::stdio::LINE_BYTES_MAX;

/// Longest that connecting to it may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Most requests on their way to one server over HTTP at once. Others wait.
pub(super) const REQUESTS_MAX: usize = 256;

/// A server elsewhere. Its headers hold secrets: they are shown nowhere.
#[derive(Clone)]
pub struct Remote {
    pub(super) url: String,
    pub(super) headers: HashMap<HeaderName, HeaderValue>,
    /// The only addresses of the machine that are spoken with, where that matters.
    pinned: Option<(String, Vec<SocketAddr>)>,
}

impl Remote {
    /// A server at an address, with headers that are sent along with each request.
    pub fn new(url: &str, headers: impl IntoIterator<Item = (String, String)>) -> Result<Self, ConnectError> {
        let uri: http::Uri = url.parse().map_err(|_| refused("url", "an address such as https://example.com/mcp"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(refused("url", "an address such as https://example.com/mcp"));
        }
        let headers: HashMap<_, _> =
            headers.into_iter().map(|(name, value)| header(&name, &value)).collect::<Result<_, _>>()?;
        if headers.len() > HEADERS_MAX {
            return Err(refused("headers", &format!("at most {HEADERS_MAX} of them")));
        }
        Ok(Self { url: url.to_owned(), headers, pinned: None })
    }

    /// The same server, if anybody can reach it: none of ours, and none that only we can reach. What its name means is looked up once, so that it
    /// cannot mean something else afterwards.
    pub async fn public_only(self) -> Result<Self, ConnectError> {
        // Read as the client that will speak with it reads it: two readers could see two machines in one text.
        let url = reqwest::Url::parse(&self.url);
        let url = url.map_err(|_| refused("url", "an address such as https://example.com/mcp"))?;
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().unwrap_or_default();
        let found = tokio::time::timeout(CONNECT_TIMEOUT, Reach::Public.resolve(&host, port)).await;
        let found =
            found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => refused(
                    "url",
                    "a server that anybody can reach; one on this machine or its network is for an operator to define",
                ),
                _ => ConnectError::Address(format!("{host} is not known to the name service")),
            })?;
        Ok(Self { pinned: Some((host, found)), ..self })
    }

    /// Scheme, host and port. What follows in the address may be a secret.
    pub(super) fn origin(&self) -> String {
        reqwest::Url::parse(&self.url).map(|url| url.origin().ascii_serialization()).unwrap_or_default()
    }

    /// How it speaks today.
    pub(super) fn transport(&self) -> Result<StreamableHttpClientTransport<reqwest::Client>, ConnectError> {
        let config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str())
            .custom_headers(self.headers.clone())
            .max_concurrent_requests(REQUESTS_MAX)
            .max_sse_event_size(LINE_BYTES_MAX);
        Ok(StreamableHttpClientTransport::with_client(self.client()?, config))
    }

    /// A client for requests to it.
    pub(super) fn client(&self) -> Result<reqwest::Client, ConnectError> {
        // With a pinned address no proxy is used: it would resolve the name again.
        let uses_proxies = self.pinned.is_none();
        let pool = Pool { connect: CONNECT_TIMEOUT, idle: None, uses_proxies, pinned: self.pinned.clone() };
        let failed = |error: io::Error| ConnectError::Address(format!("cannot make an HTTP client: {error}"));
        box_http_client::pooled(&pool).map_err(failed)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.keys().collect();
        f.debug_struct("Remote").field("headers", &names).finish_non_exhaustive()
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), ConnectError> {
    let parsed = name.parse().map_err(|_| refused("headers", "names of letters, digits and dashes"))?;
    let mut value = HeaderValue::from_str(value).map_err(|_| {
        ConnectError::Address(format!("the value of the header {parsed} has characters that cannot be sent"))
    })?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

fn refused(field: &str, allowed: &str) -> ConnectError {
    ConnectError::Address(format!("{field} is not usable; expected {allowed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_used_is_refused() {
        for bad in ["", "example.com/mcp", "ftp://example.com", "file:///etc/passwd", "http://", "http://127.0.0.%31/"]
        {
            assert!(Remote::new(bad, []).is_err(), "{bad}");
        }
        assert!(Remote::new("https://example.com/mcp", []).is_ok());
    }

    #[tokio::test]
    async fn a_strangers_server_is_none_that_only_we_can_reach() {
        let literals =
            ["http://127.0.0.1:1/mcp", "http://[::1]/mcp", "http://169.254.169.254/latest", "http://10.0.0.1/"];
        // Those of the second kind are numbers to whoever speaks with them, whatever they look like.
        let disguised = ["http://0/", "http://2130706433/", "http://[::ffff:127.0.0.1]/"];
        for bad in literals.into_iter().chain(disguised).chain(["http://localhost:1/mcp"]) {
            let refused = Remote::new(bad, []).unwrap().public_only().await.unwrap_err().to_string();
            assert!(refused.contains("anybody can reach") || refused.contains("not known"), "{bad}: {refused}");
        }
        assert!(Remote::new("http://1.1.1.1/mcp", []).unwrap().public_only().await.is_ok());
    }

    #[tokio::test]
    async fn mcp_05_a_name_means_what_it_meant_when_it_was_looked_at() {
        let here = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = here.local_addr().unwrap();
        // No name service knows this name: who looks it up a second time finds nothing.
        let url = format!("http://Rebind.invalid:{}/mcp", address.port());
        let remote =
            Remote { pinned: Some(("rebind.invalid".to_owned(), vec![address])), ..Remote::new(&url, []).unwrap() };
        let tasks = tokio_util::task::TaskTracker::new();
        let connecting = super::super::Upstream::over_http("one".parse().unwrap(), &remote, &tasks);
        tokio::select! {
            came = here.accept() => drop(came.unwrap()),
            ended = connecting => panic!("nobody came: {ended:?}"),
        }
    }

    #[tokio::test]
    async fn a_remote_server_that_cannot_be_reached_is_named_without_types() {
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let remote = Remote::new(&format!("http://{closed}/mcp?key=swordfish"), []).unwrap();
        let tasks = tokio_util::task::TaskTracker::new();
        let refused = super::super::Upstream::over_http("one".parse().unwrap(), &remote, &tasks).await.unwrap_err();
        let told = refused.to_string();
        let expected = format!("cannot connect to the MCP server at http://{closed}: Connection refused");
        assert!(told.starts_with(&expected) && !told.contains("::") && !told.contains("swordfish"), "{told}");
    }

    #[test]
    fn headers_are_shown_nowhere() {
        let secret = [("Authorization".to_owned(), "Bearer swordfish".to_owned())];
        let remote = Remote::new("http://example.com/?key=swordfish", secret).unwrap();
        let shown = format!("{remote:?}");
        assert!(!shown.contains("swordfish") && shown.contains("authorization"), "{shown}");
        let bad =
            Remote::new("http://example.com", [("x".to_owned(), "sword\nfish".to_owned())]).unwrap_err().to_string();
        assert!(!bad.contains("fish"), "{bad}");
    }
}
