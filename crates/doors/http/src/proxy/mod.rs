//! HTTP and WebSockets to services in boxes: a request goes in unchanged except for credentials and headers of this
//! server, and the response comes out.
//!
//! A box is hostile. Its responses are bounded, and errors name the box as their source. Each request has a connection
//! of its own: a pooled connection would keep its session in use for an unknown time.

mod bounded;
mod headers;
#[cfg(test)]
mod tests;
mod tunnel;

use std::num::NonZeroU16;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use box_core::tasks::Start as _;
use box_core::{Caller, SessionId};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, StatusCode, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::limits;
use crate::state::ServerState;
use bounded::Bounded;

/// Whom a request is for.
#[derive(Debug)]
pub struct Target {
    /// The caller.
    pub caller: Caller,
    /// In which session the service runs.
    pub session: SessionId,
    /// On which port it listens.
    pub port: NonZeroU16,
    /// The path of the request.
    pub path: PathAndQuery,
    /// The `Host` that the service sees.
    pub host: HeaderValue,
}

/// Why the service gave no response. Each door has its own words for it.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// Nothing listens on that port of the box.
    #[error("{0}")]
    PortClosed(#[source] box_core::Error),
    /// The box cannot be reached: the session is unknown or gone, or has too many connections.
    #[error(transparent)]
    NotReached(box_core::Error),
    /// The service's answer is not HTTP, or exceeds a limit.
    #[error("the service on port {port} of the box gave no proper answer: {reason}")]
    BadAnswer {
        /// Which port.
        port: NonZeroU16,
        /// The reason.
        reason: String,
    },
    /// The service took the request and said nothing.
    #[error("the service on port {port} of the box did not begin to answer within {} s", limits::PORT_ANSWER_TIME_MAX.as_secs())]
    NoAnswer {
        /// Which port.
        port: NonZeroU16,
    },
}

impl From<box_core::Error> for ProxyError {
    fn from(error: box_core::Error) -> Self {
        match error {
            box_core::Error::PortClosed { .. } => Self::PortClosed(error),
            other => Self::NotReached(other),
        }
    }
}

impl From<ProxyError> for Failure {
    fn from(error: ProxyError) -> Self {
        let message = error.to_string();
        match error {
            ProxyError::PortClosed(error) | ProxyError::NotReached(error) => error.into(),
            ProxyError::BadAnswer { .. } => Self::new(StatusCode::BAD_GATEWAY, "bad_answer", message)
                .hint("for other protocols than HTTP, use `strongbox port-forward`"),
            ProxyError::NoAnswer { .. } => Self::new(StatusCode::GATEWAY_TIMEOUT, "no_answer", message),
        }
    }
}

/// Passes a request on to a service in a box, and its answer back: bodies as they come, and what either says after a change of
/// protocol, such as to WebSocket. Nothing that opens our doors reaches the service.
pub async fn forward(state: &ServerState, target: Target, mut request: Request) -> Result<Response, ProxyError> {
    let stream = state.service().dial_port(&target.caller, &target.session, target.port).await?;
    let asked = headers::asked_protocol(request.headers());
    let client = asked.as_ref().map(|_| hyper::upgrade::on(&mut request));
    headers::to_service(&mut request, &target.host);
    if let Some(protocol) = asked.clone() {
        headers::ask_for_protocol(request.headers_mut(), protocol);
    }
    *request.uri_mut() = Uri::from(target.path);
    *request.version_mut() = Version::HTTP_11;
    let mut response = exchange(state, stream, target.port, request).await?;
    let is_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let service = is_switched.then(|| hyper::upgrade::on(&mut response));
    headers::from_service(response.headers_mut());
    match (asked.zip(client), service) {
        (Some((protocol, client)), Some(service)) => {
            tunnel::start(state, client, service);
            headers::ask_for_protocol(response.headers_mut(), protocol);
            Ok(response.map(|_| Body::empty()))
        }
        (None, Some(_)) => Err(bad(target.port, "it switched protocols although the client did not ask for that")),
        (_, None) => Ok(response.map(Body::new)),
    }
}

/// Sends a request on a connection, and waits for the head of its answer.
async fn exchange<S>(
    state: &ServerState,
    stream: S,
    port: NonZeroU16,
    request: Request,
) -> Result<http::Response<Incoming>, ProxyError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (stream, head) = Bounded::new(stream, limits::PORT_ANSWER_BYTES_MAX);
    let mut builder = http1::Builder::new();
    builder.max_headers(limits::PORT_ANSWER_HEADERS_MAX).max_buf_size(limits::PORT_ANSWER_HEADER_BYTES_MAX);
    let broken = |error: hyper::Error| bad(port, &reason(&error));
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let abort = state.abort().clone();
    state.tasks().start(async move {
        // Errors of the connection also reach the task that waits for the response or reads it.
        let _ = abort.run_until_cancelled(connection.with_upgrades()).await;
    });
    let answered = timeout(limits::PORT_ANSWER_TIME_MAX, sender.send_request(request)).await;
    let response = answered.map_err(|_| ProxyError::NoAnswer { port })?.map_err(broken)?;
    head.has_come();
    Ok(response)
}

fn bad(port: NonZeroU16, reason: &str) -> ProxyError {
    ProxyError::BadAnswer { port, reason: reason.to_owned() }
}

/// The error with its causes.
fn reason(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_canceled() {
        return "it closed the connection without an answer".to_owned();
    }
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The name under which most services know themselves: their own machine's.
pub fn local_name(port: NonZeroU16) -> HeaderValue {
    let name = format!("localhost:{port}");
    HeaderValue::try_from(name).unwrap_or(HeaderValue::from_static("localhost"))
}
