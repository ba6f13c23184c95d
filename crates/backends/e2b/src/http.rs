//! The client for HTTP, and bodies that have a limit.

use std::time::Duration;

use box_core::{Error, Result};
use box_http_client::Pool;
use reqwest::Response;

use crate::failure::Failure;
use crate::limits::{ANSWER_BYTES_MAX, CONNECT_TIMEOUT, POOL_IDLE_TIMEOUT};

/// A client. A proxy of the network does not reach what is on this machine. And there a new connection costs less than the risk of
/// one that the provider is just closing: what was sent over it cannot be sent again.
pub(crate) fn client(is_local: bool) -> Result<reqwest::Client> {
    let idle = if is_local { Duration::ZERO } else { POOL_IDLE_TIMEOUT };
    let pool = Pool { connect: CONNECT_TIMEOUT, idle: Some(idle), uses_proxies: !is_local, pinned: None };
    let failed = |error: std::io::Error| Error::Setup { step: "http".to_owned(), reason: error.to_string() };
    box_http_client::pooled(&pool).map_err(failed)
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
