//! What E2B's clients are told when something went wrong, outside of Connect: a number and a sentence.

use axum::Json;
use axum::response::{IntoResponse, Response};
use box_core::{Error, SnapshotError};
use box_wire::Invalid;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

use door_http::failure::Failure;
use door_http::observe::Verbatim;

/// Asked for by clients that would try again by themselves.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("should-retry");

/// What went wrong. Clients read all of it by name: a field less is a crash in the program of their user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct E2bFailure {
    status: StatusCode,
    message: String,
    retry_after_sec: Option<u32>,
}

/// How it is written.
#[derive(Serialize)]
struct Body<'a> {
    code: u16,
    message: &'a str,
}

impl E2bFailure {
    /// A status and a sentence.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry_after_sec: None }
    }

    /// Something in the request makes no sense.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The one answer to everybody who has no good key.
    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    /// It is not there, or not the caller's, which is the same to it.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// Something of E2B that we do not have.
    pub(crate) fn not_served(what: &str) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, format!("{what} is not served here; docs/e2b.md lists what is"))
    }

    /// The same in other words.
    pub(crate) fn reworded(self, words: impl FnOnce(String) -> String) -> Self {
        Self { message: words(self.message), ..self }
    }

    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// What happened, in words.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }
}

impl From<Error> for E2bFailure {
    fn from(error: Error) -> Self {
        // Clients read 503 as "busy, please retry"; what the operator must install or configure first is 500.
        let needs_operator =
            matches!(error, Error::MissingFacility { .. } | Error::FloorNotHeld { .. } | Error::Disabled);
        let failure = Self::from(Failure::from(error));
        if needs_operator { Self { status: StatusCode::INTERNAL_SERVER_ERROR, ..failure } } else { failure }
    }
}

impl From<Invalid> for E2bFailure {
    fn from(invalid: Invalid) -> Self {
        Error::from(invalid).into()
    }
}

impl From<SnapshotError> for E2bFailure {
    fn from(error: SnapshotError) -> Self {
        Error::from(error).into()
    }
}

impl From<Failure> for E2bFailure {
    fn from(failure: Failure) -> Self {
        if let Some(cause) = failure.cause() {
            tracing::error!(error = cause, "a request of an E2B client failed");
        }
        // What another door says with a status of its own is a bad request to these clients, who know fewer.
        let status = match failure.status() {
            StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
            StatusCode::GONE => StatusCode::NOT_FOUND,
            other => other,
        };
        let retry_after_sec = failure.retry_after_sec();
        Self { retry_after_sec, ..Self::new(status, failure.message()) }
    }
}

impl IntoResponse for E2bFailure {
    fn into_response(self) -> Response {
        let Self { status, message, retry_after_sec } = self;
        let body = Body { code: status.as_u16(), message: &message };
        let mut response = (status, Json(body)).into_response();
        if let Some(seconds) = retry_after_sec {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        } else if status.is_server_error() && status != StatusCode::SERVICE_UNAVAILABLE {
            // The next attempt fails too: three of them only make the caller wait.
            response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        Verbatim::wrap(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn written(failure: E2bFailure) -> (u16, String) {
        let response = failure.into_response();
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 4096).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn every_failure_has_its_number_and_a_sentence() {
        let (status, body) = written(E2bFailure::not_found("sandbox \"x\" not found")).await;
        assert_eq!((status, body.as_str()), (404, r#"{"code":404,"message":"sandbox \"x\" not found"}"#));
    }

    #[tokio::test]
    async fn what_the_service_says_is_said_in_a_status_that_clients_know() {
        let gone = Error::Gone { reason: "killed".to_owned() };
        assert_eq!(written(gone.into()).await.0, 404);
        assert_eq!(written(Error::Stopping.into()).await.0, 503);
        let full = Error::Capacity { what: "session".to_owned(), limit: 1, fix: "wait".to_owned() };
        let response = E2bFailure::from(full).into_response();
        assert_eq!((response.status().as_u16(), response.headers().contains_key("retry-after")), (429, true));
    }

    #[tokio::test]
    async fn clients_retry_what_passes_and_nothing_that_must_be_installed_first() {
        let text = |text: &str| text.to_owned();
        let (what, reason, fix) = (text("outbound network"), text("no program `pasta`"), text("install passt"));
        let missing = Error::MissingFacility { what, reason, fix };
        let (what, reason, fix) = (text("the docker engine"), text("connection refused"), text("start dockerd"));
        let away = Error::Unavailable { what, reason, fix };
        for (error, status, told, should_retry) in [
            (missing, 500, "install passt", Some("false")),
            (Error::Disabled, 500, "", Some("false")),
            (away, 503, "start dockerd", None),
        ] {
            let failure = E2bFailure::from(error);
            let headers = failure.clone().into_response().headers().clone();
            let header = headers.get("should-retry").map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(header.as_deref(), should_retry, "{failure:?}");
            let (found, body) = written(failure).await;
            assert!(found == status && body.contains(told), "{found} {body}");
        }
    }
}
