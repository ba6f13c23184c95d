//! Connect with JSON, as E2B's SDKs speak it: one message and one answer, or streams of envelopes.
//!
//! An error of a stream is never a status: it stands in the last envelope, and a stream without one is taken for a broken
//! connection. So whatever happens, [`stream`] ends with it.

mod incoming;
mod told;

use std::future::Future;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use box_core::service::Buffered;
use box_e2b_wire::code::EndOfStream;
use box_e2b_wire::{BoxUser, Code, Envelope, EnvelopeKind, RpcError, limits};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream as streams};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::limits::BODY_TIME_MAX;
use door_http::body::{read_held, too_slow};
use door_http::failure::Failure;
use door_http::observe::Verbatim;

pub(crate) use incoming::Incoming;
pub(crate) use told::{SANDBOX_NOT_FOUND, told};

/// Exactly this: a parameter behind it breaks clients.
const STREAM_TYPE: &str = "application/connect+json";

/// How long a stream may be silent, where the client does not say.
const KEEPALIVE_SEC: u64 = 90;

/// The message of a call that is answered with one message.
#[derive(Debug)]
pub(crate) struct Unary<T>(pub(crate) T);

/// The same of a call that brings input for a process, and what it counts against for as long as it is held.
#[derive(Debug)]
pub(crate) struct UnaryInput<T>(pub(crate) T, pub(crate) Option<Buffered>);

/// The message of a call that is answered with a stream.
#[derive(Debug)]
pub(crate) struct Streamed<T>(pub(crate) T);

/// An error in place of the one message of an answer.
#[derive(Debug)]
pub(crate) struct UnaryError(pub(crate) RpcError);

/// An error in place of a stream.
#[derive(Debug)]
pub(crate) struct StreamError(pub(crate) RpcError);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Unary<T> {
    type Rejection = UnaryError;

    async fn from_request(request: Request, _: &S) -> Result<Self, UnaryError> {
        message(request, limits::MESSAGE_BYTES_MAX).await.map(|(message, _)| Self(message))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for UnaryInput<T> {
    type Rejection = UnaryError;

    async fn from_request(request: Request, _: &S) -> Result<Self, UnaryError> {
        message(request, limits::INPUT_MESSAGE_BYTES_MAX).await.map(|(message, held)| Self(message, held))
    }
}

/// The one message of a request.
async fn message<T: DeserializeOwned>(request: Request, bytes_max: usize) -> Result<(T, Option<Buffered>), UnaryError> {
    if door_http::body::check_is_json(request.headers()).is_err() {
        let message = "the message must be JSON; send it with Content-Type: application/json";
        return Err(UnaryError(RpcError::new(Code::InvalidArgument, message)));
    }
    let read = read_held(request, bytes_max).await;
    let (bytes, held) = read.map_err(|failure| UnaryError(unreadable(&failure)))?;
    // An empty message has every field at its default.
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    parse(text).map(|message| (message, held)).map_err(UnaryError)
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequest<S> for Streamed<T> {
    type Rejection = StreamError;

    async fn from_request(request: Request, _: &S) -> Result<Self, StreamError> {
        let mut incoming = Incoming::new(request);
        let message = tokio::time::timeout(BODY_TIME_MAX, incoming.next()).await;
        let message = message.unwrap_or_else(|_| Err(unreadable(&too_slow())));
        incoming.read_to_end().await;
        match message.map_err(StreamError)? {
            Some(message) => Ok(Self(message)),
            None => Err(StreamError(RpcError::new(Code::InvalidArgument, "the request has no message"))),
        }
    }
}

/// Why a message could not be read.
fn unreadable(failure: &Failure) -> RpcError {
    let code = match failure.status() {
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
        _ => Code::InvalidArgument,
    };
    RpcError::new(code, failure.message())
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RpcError> {
    serde_json::from_slice(bytes)
        .map_err(|error| RpcError::new(Code::InvalidArgument, format!("the message cannot be understood: {error}")))
}

/// The answer with one message.
pub(crate) fn unary<T: Serialize>(answer: Result<T, RpcError>) -> Response {
    match answer {
        Ok(message) => Json(message).into_response(),
        Err(error) => UnaryError(error).into_response(),
    }
}

impl IntoResponse for UnaryError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Verbatim::wrap((status, Json(self.0)).into_response())
    }
}

impl IntoResponse for StreamError {
    fn into_response(self) -> Response {
        let error = self.0;
        envelopes(streams::once(async move { end(Err(error)) }))
    }
}

/// The answer with a stream: each message in its envelope, then how it ended. An error ends it, and so does a server that stops.
pub(crate) fn stream<T: Serialize + Send + 'static>(
    messages: impl Stream<Item = Result<T, RpcError>> + Send + 'static,
    closing: CancellationToken,
) -> Response {
    let stopping = closing.cancelled_owned();
    envelopes(streams::unfold(Some((Box::pin(messages), Box::pin(stopping))), |state| async move {
        let (mut messages, mut stopping) = state?;
        let next = tokio::select! {
            next = messages.next() => next,
            () = &mut stopping => Some(Err(RpcError::new(Code::Unavailable, "the server is stopping"))),
        };
        match next.map(|next| next.and_then(|message| written(&message))) {
            Some(Ok(bytes)) => Some((bytes, Some((messages, stopping)))),
            Some(Err(error)) => Some((end(Err(error)), None)),
            None => Some((end(Ok(())), None)),
        }
    }))
}

/// The answer to a stream of the client: one message, or what went wrong.
pub(crate) async fn answer<T: Serialize + Send + 'static>(
    work: impl Future<Output = Result<T, RpcError>> + Send,
    closing: CancellationToken,
) -> Response {
    let done = work.await;
    stream(streams::once(async move { done }), closing)
}

fn envelopes(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let body = Body::from_stream(pieces.map(Ok::<_, std::convert::Infallible>));
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(STREAM_TYPE));
    response
}

fn written(message: &impl Serialize) -> Result<Bytes, RpcError> {
    let bytes = serde_json::to_vec(message).ok();
    let envelope = bytes.and_then(|bytes| Envelope::encode(EnvelopeKind::Message, &bytes));
    envelope.map(Bytes::from).ok_or_else(|| RpcError::new(Code::Internal, "an answer could not be written"))
}

fn end(how: Result<(), RpcError>) -> Bytes {
    let said = serde_json::to_vec(&EndOfStream { error: how.err() }).unwrap_or_else(|_| b"{}".to_vec());
    Envelope::encode(EnvelopeKind::End, &said).unwrap_or_default().into()
}

/// How long the client gives a call; nothing when it gives it all the time.
pub(crate) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, RpcError> {
    let Some(value) = headers.get("connect-timeout-ms") else { return Ok(None) };
    let millis = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    let wrong = || RpcError::new(Code::InvalidArgument, "Connect-Timeout-Ms must be a whole number of milliseconds");
    Ok(Some(millis.ok_or_else(wrong)?).filter(|millis| *millis > 0).map(Duration::from_millis))
}

/// How long a stream may be silent before it says that it lives.
pub(crate) fn keepalive(headers: &HeaderMap) -> Duration {
    let asked = headers.get("keepalive-ping-interval").and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Duration::from_secs(asked.filter(|seconds| *seconds > 0).unwrap_or(KEEPALIVE_SEC))
}

/// As whom a call is made: the name in `Authorization: Basic`, whose password means nothing; the usual one where there is none.
pub(crate) fn user(headers: &HeaderMap, usual: BoxUser) -> Result<BoxUser, RpcError> {
    let unknown = |what: &str| RpcError::new(Code::Unauthenticated, format!("{what}; there are `user` and `root`"));
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(usual) };
    let pair = value.to_str().ok().and_then(|text| text.strip_prefix("Basic ")).map(str::trim);
    let decoded = pair.and_then(|pair| String::from_utf8(STANDARD.decode(pair).ok()?).ok());
    let decoded = decoded.ok_or_else(|| unknown("the header Authorization does not name a user"))?;
    let name = decoded.split_once(':').map_or(decoded.as_str(), |(name, _)| name);
    BoxUser::named(name).ok_or_else(|| unknown(&format!("invalid user {name:.40?}")))
}

#[cfg(test)]
mod tests;
