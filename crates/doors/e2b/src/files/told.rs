//! What went wrong with a file, by the numbers that clients know.

use box_core::Error;
use box_wire::FileErrorCode;
use http::StatusCode;

use crate::connect::SANDBOX_NOT_FOUND;
use crate::failure::E2bFailure;

/// What a client is told.
pub(crate) fn told(error: Error) -> E2bFailure {
    let error = match error {
        // A number of its own: 404 is a file that is not there.
        Error::Gone { .. } | Error::SessionNotFound { .. } => {
            return E2bFailure::new(StatusCode::BAD_GATEWAY, SANDBOX_NOT_FOUND);
        }
        Error::File(error) => error,
        error => return error.into(),
    };
    let status = match error.code {
        FileErrorCode::NotFound => StatusCode::NOT_FOUND,
        FileErrorCode::IsDirectory
        | FileErrorCode::NotRegular
        | FileErrorCode::InvalidPath
        | FileErrorCode::PathEscapes
        | FileErrorCode::SymlinkRefused => StatusCode::BAD_REQUEST,
        FileErrorCode::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        FileErrorCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        FileErrorCode::Denied | FileErrorCode::ReadOnly => StatusCode::FORBIDDEN,
        FileErrorCode::Timeout => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    E2bFailure::new(status, error.message)
}

#[cfg(test)]
mod tests {
    use box_wire::FileError;

    use super::*;

    #[test]
    fn clients_make_exceptions_of_numbers() {
        for (code, status) in [
            (FileErrorCode::NotFound, 404),
            (FileErrorCode::IsDirectory, 400),
            (FileErrorCode::NoSpace, 507),
            (FileErrorCode::NotDirectory, 500),
            (FileErrorCode::Failed, 500),
            (FileErrorCode::Denied, 403),
        ] {
            assert_eq!(told(FileError::new(code, "x").into()).status().as_u16(), status, "{code:?}");
        }
        let gone = told(Error::Gone { reason: "killed".to_owned() });
        assert_eq!((gone.status().as_u16(), gone.message().contains("was not found")), (502, true));
    }
}
