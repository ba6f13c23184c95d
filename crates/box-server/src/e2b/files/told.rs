//! What went wrong with a file, by the numbers that clients know.

use box_core::Error;
use box_wire::TroubleCode;
use http::StatusCode;

use crate::e2b::connect::SANDBOX_NOT_FOUND;
use crate::e2b::failure::E2bFailure;

/// What a client is told.
pub(in crate::e2b) fn told(error: Error) -> E2bFailure {
    let trouble = match error {
        // A number of its own: 404 is a file that is not there.
        Error::Gone { .. } | Error::SessionNotFound { .. } => {
            return E2bFailure::new(StatusCode::BAD_GATEWAY, SANDBOX_NOT_FOUND);
        }
        Error::File(trouble) => trouble,
        error => return error.into(),
    };
    let status = match trouble.code {
        TroubleCode::NotFound => StatusCode::NOT_FOUND,
        TroubleCode::IsDirectory
        | TroubleCode::NotRegular
        | TroubleCode::InvalidPath
        | TroubleCode::PathEscapes
        | TroubleCode::SymlinkRefused => StatusCode::BAD_REQUEST,
        TroubleCode::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        TroubleCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        TroubleCode::Denied | TroubleCode::ReadOnly => StatusCode::FORBIDDEN,
        TroubleCode::Timeout => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    E2bFailure::new(status, trouble.message)
}

#[cfg(test)]
mod tests {
    use box_wire::Trouble;

    use super::*;

    #[test]
    fn clients_make_exceptions_of_numbers() {
        for (code, status) in [
            (TroubleCode::NotFound, 404),
            (TroubleCode::IsDirectory, 400),
            (TroubleCode::NoSpace, 507),
            (TroubleCode::NotDirectory, 500),
            (TroubleCode::Failed, 500),
            (TroubleCode::Denied, 403),
        ] {
            assert_eq!(told(Trouble::new(code, "x").into()).status().as_u16(), status, "{code:?}");
        }
        let gone = told(Error::Gone { reason: "killed".to_owned() });
        assert_eq!((gone.status().as_u16(), gone.message().contains("was not found")), (502, true));
    }
}
