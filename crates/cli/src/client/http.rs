//! Requests and their answers, over a connection of their own each.

use box_http_client::{Body, Error, USER_AGENT};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::address::Address;
use super::{dial, failure};
use crate::fault::Fault;

/// Largest answer that is taken. A result of a command has at most two streams of a million characters.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Somebody who asks one server.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) address: Address,
    pub(crate) token: Option<HeaderValue>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// How it went.
    pub(crate) status: StatusCode,
    /// What was said about it.
    pub(crate) headers: HeaderMap,
    /// What was said.
    pub(crate) body: Bytes,
}

impl Answer {
    /// The answer as a value of some type.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Fault::new(format!("the server's answer cannot be understood: {error}")).hint(
                "client and server may be of different versions; compare `strongbox --version` and `strongbox status`",
            )
        })
    }

    /// The answer as it was.
    pub(crate) fn json(&self) -> Result<Value, Fault> {
        self.read()
    }

    /// A header, as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// The start of an answer; the rest comes on its connection.
pub(crate) type Opened = box_http_client::Answer;

impl Client {
    /// Asks for something.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Fault> {
        self.send(Method::GET, path, None).await
    }

    /// Asks for something to be done.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Answer, Fault> {
        self.send(Method::POST, path, Some(body)).await
    }

    /// Sends bytes as they are.
    pub(crate) async fn post_bytes(&self, path: &str, kind: &'static str, bytes: Vec<u8>) -> Result<Answer, Fault> {
        let mut request = self.request(Method::POST, path)?;
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        *request.body_mut() = box_http_client::full(bytes);
        let answer = read(self.open(request).await?).await?;
        if answer.status.is_success() { Ok(answer) } else { Err(failure::fault_of(&answer)) }
    }

    /// Asks for something to be as it is said.
    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Answer, Fault> {
        self.send(Method::PUT, path, Some(body)).await
    }

    /// Asks for something to be removed.
    pub(crate) async fn delete(&self, path: &str) -> Result<Answer, Fault> {
        self.send(Method::DELETE, path, None).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, Fault> {
        let mut request = self.request(method, path)?;
        if let Some(body) = body {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = box_http_client::full(body.to_string());
        }
        let answer = read(self.open(request).await?).await?;
        if answer.status.is_success() { Ok(answer) } else { Err(failure::fault_of(&answer)) }
    }

    /// A request without a body, with everything that each needs.
    pub(crate) fn request(&self, method: Method, path: &str) -> Result<Request<Body>, Fault> {
        let host = self.address.host();
        let builder = Request::builder().method(method).uri(format!("{}{path}", self.address.prefix()));
        let mut builder = builder.header(header::HOST, host).header(header::USER_AGENT, USER_AGENT);
        if let Some(token) = &self.token {
            builder = builder.header(header::AUTHORIZATION, token);
        }
        builder
            .body(box_http_client::empty())
            .map_err(|error| Fault::new(format!("{path} cannot be asked for: {error}")))
    }

    /// Sends a request and waits for the head of its answer, which must be that of a success.
    pub(crate) async fn open_well(&self, request: Request<Body>) -> Result<Opened, Fault> {
        let opened = self.open(request).await?;
        if opened.status().is_success() {
            return Ok(opened);
        }
        Err(failure::fault_of(&read(opened).await?))
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn open(&self, request: Request<Body>) -> Result<Opened, Fault> {
        let stream = dial::dial(&self.address).await?;
        box_http_client::send(stream, request).await.map_err(|error| {
            let fault = Fault::new(format!("the connection to {} broke: {error}", self.address)).code("unreachable");
            if error.is_parse() {
                fault.hint("is this a strongbox server, and not one of https:// or http:// instead?")
            } else {
                fault
            }
        })
    }
}

/// Waits for the rest of an answer.
pub(crate) async fn read(mut opened: Opened) -> Result<Answer, Fault> {
    let broken = |error: Error| Fault::new(format!("the server's answer broke off: {error}")).code("unreachable");
    let body = opened.read(ANSWER_BYTES_MAX, None).await.map_err(broken)?;
    Ok(Answer { status: opened.status(), headers: opened.headers().clone(), body: body.into() })
}

/// The path of a session, or of something in it. Every part may hold any character.
pub(crate) fn session_path(session: &str, rest: &[&str]) -> String {
    let mut path = format!("/v1/sessions/{}", encoded(session));
    for part in rest {
        path.push('/');
        path.push_str(&encoded(part));
    }
    path
}

/// Text as one part of a path, or as a value of a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => encoded.push(char::from(byte)),
            // A lone dot or two would be taken for a step in the path.
            b'.' if !text.trim_matches('.').is_empty() => encoded.push('.'),
            _ => encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]),
        }
    }
    encoded
}

fn digit(value: u8) -> char {
    char::from_digit(value.into(), 16).unwrap_or('0').to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_id_is_one_part_of_a_path() {
        let table = [
            ("plain-1_2~3.4", "plain-1_2~3.4"),
            ("a/b c?d#e%", "a%2Fb%20c%3Fd%23e%25"),
            ("..", "%2E%2E"),
            ("../x", "..%2Fx"),
            ("用", "%E7%94%A8"),
        ];
        for (id, part) in table {
            assert_eq!(session_path(id, &["execs", "e"]), format!("/v1/sessions/{part}/execs/e"));
        }
    }
}
