//! The answer when nothing was run: a status and a sentence, as plain text.

use axum::response::{IntoResponse, Response};
use box_core::Error;
use box_wire::Invalid;
use http::StatusCode;

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
}

impl From<E2bFailure> for Refused {
    fn from(failure: E2bFailure) -> Self {
        Self::new(failure.status(), failure.message())
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error {
            Error::CodeContextNotFound { context, .. } => {
                Self::new(StatusCode::NOT_FOUND, format!("Context {context} not found"))
            }
            // What this protocol calls the field.
            Error::Invalid(invalid) if invalid.field == "env" => {
                E2bFailure::from(Error::Invalid(Invalid { field: "env_vars", ..invalid })).into()
            }
            error => E2bFailure::from(error).into(),
        }
    }
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Self {
        Error::from(invalid).into()
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
