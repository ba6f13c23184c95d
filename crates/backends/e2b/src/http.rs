//! The client for HTTP: roots of this machine, no redirects, and bodies that have a limit.

use std::sync::Arc;

use box_core::{Error, Result};
use reqwest::{Response, redirect};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::failure::Failure;
use crate::limits::{ANSWER_BYTES_MAX, CONNECT_TIMEOUT, POOL_IDLE_TIMEOUT};

/// A client. It follows no redirect: keys would go along to wherever that leads.
pub(crate) fn client(is_local: bool) -> Result<reqwest::Client> {
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(trust()?)
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .user_agent(concat!("strongbox/", env!("CARGO_PKG_VERSION")));
    // A proxy of the network does not reach what is on this machine. And there a new connection costs less than the risk of one
    // that the provider is just closing: what was sent over it cannot be sent again.
    let builder = if is_local { builder.no_proxy().pool_max_idle_per_host(0) } else { builder };
    builder.build().map_err(|error| failed(&error.to_string()))
}

/// The roots that this machine trusts.
fn trust() -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| failed(&error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn failed(reason: &str) -> Error {
    Error::Setup { step: "http".to_owned(), reason: reason.to_owned() }
}

/// The whole body of an answer, unless it is too large.
pub(crate) async fn body(mut answer: Response) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(Failure::Broken(format!("E2B answers with more than {ANSWER_BYTES_MAX} bytes")));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// The body of a good answer as JSON; what any other answer means.
pub(crate) async fn read<T: serde::de::DeserializeOwned>(answer: Response) -> Result<T, Failure> {
    let status = answer.status();
    let body = body(answer).await?;
    if !status.is_success() {
        return Err(Failure::of_answer(status.as_u16(), &body));
    }
    serde_json::from_slice(&body).map_err(|error| Failure::Broken(format!("unexpected response from E2B: {error}")))
}

/// That an answer is a good one.
pub(crate) async fn done(answer: Response) -> Result<(), Failure> {
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    Err(Failure::of_answer(status.as_u16(), &body(answer).await?))
}

/// A path with a query, escaped as forms are.
pub(crate) fn with_query<'a>(path: &str, query: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let pairs: Vec<String> = query.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    format!("{path}?{}", pairs.join("&"))
}

/// Text in which nothing has a meaning of its own in an address.
fn escaped(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_query_means_something_else() {
        let query = [("path", "/a b&c=d/ü"), ("x", "1")].into_iter();
        assert_eq!(with_query("/files", query), "/files?path=%2Fa%20b%26c%3Dd%2F%C3%BC&x=1");
    }
}
