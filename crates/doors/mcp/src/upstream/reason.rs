//! Why a handshake failed, in words for users: rmcp names its own types, and addresses that may hold secrets.

use std::error::Error;

use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

/// The cause of a failed handshake.
pub(super) fn of(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => innermost(&*error.error),
        other => other.to_string(),
    }
}

/// The cause of a failed request, without its address, which may hold a secret.
pub(super) fn of_request(error: StreamableHttpError<reqwest::Error>) -> String {
    match error {
        StreamableHttpError::Client(error) => innermost(&error.without_url()),
        other => innermost(&other),
    }
}

/// Whether a server answered, and refused this protocol.
pub(super) fn is_refusal(error: &ClientInitializeError) -> bool {
    matches!(error, ClientInitializeError::JsonRpcError(_) | ClientInitializeError::NoCompatibleProtocolVersion { .. })
}

/// The last cause of an error, which is the one that says what happened.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(cause) = cause(error) {
        error = cause;
    }
    error.to_string()
}

fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        // It does not say that this is its source.
        Some(StreamableHttpError::Client(cause)) => Some(cause),
        _ => error.source(),
    }
}
