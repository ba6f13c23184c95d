//! What is answered where nobody may in, or nobody is there. The words matter: SDKs look for some of them.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::failure::E2bFailure;
use door_http::observe::Verbatim;

/// What the SDKs know as the answer to who has no good token.
const UNAUTHORIZED: &str = "unauthorized access, please provide a valid access token or method signing if supported";

/// Longest text of a caller that is said back.
const ECHO_CHARS_MAX: usize = 64;

/// Why a request does not reach a sandbox.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no such sandbox, or it does not run.
    NotFound(String),
    /// It runs, and nobody listens there.
    PortClosed(String, u16),
    /// Its ports are not for everybody.
    PortGuarded(String),
    /// The one answer to everybody who has no good token and no good signature.
    Unauthorized,
    /// The signature was good once.
    Expired,
    /// There is no such path inside.
    NoSuchPath(String),
    /// Something else.
    Failed(E2bFailure),
}

impl Refusal {
    fn written(self) -> Result<(StatusCode, Value), E2bFailure> {
        let cut = |text: String| text.chars().take(ECHO_CHARS_MAX).collect::<String>();
        Ok(match self {
            Self::NotFound(sandbox) => {
                let body = json!({ "sandboxId": cut(sandbox), "message": "The sandbox was not found", "code": 502 });
                (StatusCode::BAD_GATEWAY, body)
            }
            Self::PortClosed(sandbox, port) => {
                let message = "The sandbox is running but port is not open";
                let body = json!({ "sandboxId": cut(sandbox), "message": message, "port": port, "code": 502 });
                (StatusCode::BAD_GATEWAY, body)
            }
            Self::PortGuarded(sandbox) => {
                let message = "this sandbox takes no public traffic; send its token as e2b-traffic-access-token";
                let body = json!({ "sandboxId": cut(sandbox), "message": message, "code": 403 });
                (StatusCode::FORBIDDEN, body)
            }
            Self::NoSuchPath(path) => {
                let body = json!({ "code": 404, "message": "there is no such path in a sandbox", "path": cut(path) });
                (StatusCode::NOT_FOUND, body)
            }
            Self::Unauthorized => return Err(E2bFailure::unauthorized(UNAUTHORIZED)),
            Self::Expired => return Err(E2bFailure::unauthorized("signature is already expired")),
            Self::Failed(failure) => return Err(failure),
        })
    }
}

impl From<box_core::Error> for Refusal {
    fn from(error: box_core::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self.written() {
            Ok((status, body)) => Verbatim::wrap((status, Json(body)).into_response()),
            Err(failure) => failure.into_response(),
        }
    }
}
