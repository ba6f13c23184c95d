//! What surrounds every request: its id, one line in the log, its count, and the one shape of errors.

use std::any::Any;
use std::time::Duration;

use axum::Json;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, header};
use tokio::time::Instant;
use tracing::Instrument;
use uuid::Uuid;

use crate::failure::Failure;
use crate::state::ServerState;

/// The header with the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("strongbox-request-id");

/// The route in logs and metrics for unknown paths.
const NO_ROUTE: &str = "unmatched";

/// Our own pages are plain text with a style.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// Pages of a box may do what pages do, but under an opaque origin: they cannot read this server's responses, and the
/// gate refuses what they send with that origin.
const POLICY_OF_BOXES: &str =
    "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts; frame-ancestors 'none'";

/// Marks an answer whose form is part of another's protocol: it is passed on as it is, even when it is an error.
#[derive(Debug, Clone, Copy)]
pub struct Verbatim;

impl Verbatim {
    /// Marks an answer.
    pub fn wrap(mut response: Response) -> Response {
        response.extensions_mut().insert(Self);
        response
    }
}

/// Marks an answer that a service in a box wrote, with whose origin it is served from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfBox {
    /// From this server's own address, so browsers must not treat it as this server's page.
    OfOurOrigin,
    /// From a name that is the service's alone: what its pages may do is its own matter.
    OfItsOwnOrigin,
}

impl OfBox {
    /// Marks an answer. It is passed on as it is, even when it is an error.
    pub fn wrap(self, mut response: Response) -> Response {
        response.extensions_mut().insert(self);
        Verbatim::wrap(response)
    }
}

/// The route by which an answer was really made, where that is not the one that the server found: what is meant for a sandbox is led elsewhere.
#[derive(Debug, Clone)]
pub struct LedTo(pub &'static str);

/// Observes one request. Nothing of its body, its path or its token is written down.
pub async fn watch(State(state): State<ServerState>, request: Request, next: Next) -> Response {
    let id = Uuid::now_v7().simple().to_string();
    let route = request.extensions().get::<MatchedPath>().map_or(NO_ROUTE, MatchedPath::as_str).to_owned();
    let method = request.method().clone();
    let started = Instant::now();
    let span = tracing::info_span!(
        "request",
        request.id = id,
        http.method = %method,
        http.route = route,
        caller.subject = tracing::field::Empty
    );
    async {
        let mut response = next.run(request).await;
        let took = started.elapsed();
        let led_to = response.extensions().get::<LedTo>().map(|LedTo(route)| *route);
        state.metrics().count(&method, led_to.unwrap_or(&route), response.status(), took);
        response = shape(response, &id, took);
        harden(&mut response, &id);
        response
    }
    .instrument(span)
    .await
}

/// Gives every error its shape, also those of layers, and writes the access log.
fn shape(mut response: Response, id: &str, took: Duration) -> Response {
    let status = response.status();
    let is_plain = response.extensions_mut().remove::<Verbatim>().is_some();
    let is_error = !is_plain && (status.is_client_error() || status.is_server_error());
    let failure =
        response.extensions_mut().remove::<Failure>().or_else(|| is_error.then(|| Failure::from_status(status)));
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let http_status = status.as_u16();
    if let Some(cause) = failure.as_ref().and_then(Failure::cause) {
        tracing::error!(http.status = http_status, duration_ms, error = cause, "request failed");
    } else {
        tracing::info!(http.status = http_status, duration_ms, "request answered");
    }
    match failure {
        Some(failure) => write_out(&failure, response, id),
        None => response,
    }
}

/// Keeps what the answer said besides its body: which methods are allowed, which bytes there are, which pages may read it.
fn write_out(failure: &Failure, original: Response, id: &str) -> Response {
    let (mut parts, _) = original.into_parts();
    for replaced in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(replaced);
    }
    if failure.status() == http::StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer realm=\"strongbox\"");
        parts.headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
    if let Some(seconds) = failure.retry_after_sec() {
        parts.headers.insert(header::RETRY_AFTER, seconds.into());
    }
    (failure.status(), parts.headers, Json(failure.body(Some(id)))).into_response()
}

/// What a box wrote is served from this server's origin, so browsers must not treat it as this server's page.
fn harden(response: &mut Response, id: &str) {
    let of_box = response.extensions_mut().remove::<OfBox>();
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
    if of_box == Some(OfBox::OfItsOwnOrigin) {
        return;
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if of_box.is_some() {
        // A policy of the box's own can only make it narrower.
        headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY_OF_BOXES));
    } else {
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// A handler that panicked has failed like any other.
#[expect(clippy::needless_pass_by_value, reason = "the layer hands it over")]
pub fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
    Failure::internal(format!("a handler panicked: {words}")).into_response()
}
