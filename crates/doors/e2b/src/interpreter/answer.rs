//! What clients are told when nothing was run: a status and a sentence, as plain text.

use axum::response::{IntoResponse, Response};
use http::StatusCode;

use super::language::Language;
use crate::failure::E2bFailure;
use door_http::failure::Failure;
use door_http::observe::Verbatim;

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    status: StatusCode,
    message: String,
}

impl Refused {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// Something in the request makes no sense.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// There is no such context.
    pub(super) fn no_context(id: &str) -> Self {
        let id: String = id.chars().take(64).collect();
        Self::new(StatusCode::NOT_FOUND, format!("Context {id} not found"))
    }

    /// The box lacks what a language needs.
    pub(super) fn needs(language: Language) -> Self {
        let (name, needs) = (language.name(), language.needs());
        Self::invalid(format!("{name} needs {needs} in the box; use a template or an image that has it"))
    }

    /// There are as many as there may be.
    pub(super) fn too_many(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, message)
    }

    /// It should be possible and is not.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// What happened, in words.
    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

impl From<E2bFailure> for Refused {
    fn from(failure: E2bFailure) -> Self {
        Self::new(failure.status(), failure.message())
    }
}

impl From<box_core::Error> for Refused {
    fn from(error: box_core::Error) -> Self {
        E2bFailure::from(error).into()
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        E2bFailure::from(failure).into()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        Verbatim::wrap((self.status, self.message).into_response())
    }
}
