//! What can go wrong with a call, in the words of Connect.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The caller does not want it any more.
    Canceled,
    /// Nobody knows.
    Unknown,
    /// Something in the request makes no sense.
    InvalidArgument,
    /// It took too long.
    DeadlineExceeded,
    /// It is not there.
    NotFound,
    /// It is there already.
    AlreadyExists,
    /// The caller may not.
    PermissionDenied,
    /// There is no room, or too much was asked.
    ResourceExhausted,
    /// It does not fit how things stand.
    FailedPrecondition,
    /// Something else came between.
    Aborted,
    /// It is beyond the end.
    OutOfRange,
    /// There is no such call.
    Unimplemented,
    /// The server is at fault.
    Internal,
    /// The sandbox cannot be reached.
    Unavailable,
    /// Something is lost.
    DataLoss,
    /// Nobody knows who asks.
    Unauthenticated,
}

impl Code {
    /// All there are.
    pub const ALL: [Self; 16] = [
        Self::Canceled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Canceled => "canceled",
            Self::Unknown => "unknown",
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::Aborted => "aborted",
            Self::OutOfRange => "out_of_range",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::DataLoss => "data_loss",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    /// The HTTP status of an answer to a call that has one message each way.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Canceled => 499,
            Self::InvalidArgument | Self::FailedPrecondition | Self::OutOfRange => 400,
            Self::DeadlineExceeded => 504,
            Self::NotFound => 404,
            Self::AlreadyExists | Self::Aborted => 409,
            Self::PermissionDenied => 403,
            Self::ResourceExhausted => 429,
            Self::Unimplemented => 501,
            Self::Unknown | Self::Internal | Self::DataLoss => 500,
            Self::Unavailable => 503,
            Self::Unauthenticated => 401,
        }
    }

    /// What an answer means that is not of Connect, such as that of a proxy on the way.
    pub fn of_http_status(status: u16) -> Self {
        match status {
            400 => Self::InvalidArgument,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::NotFound,
            409 => Self::AlreadyExists,
            413 | 429 => Self::ResourceExhausted,
            499 => Self::Canceled,
            500 => Self::Internal,
            501 | 505 => Self::Unimplemented,
            502 | 503 => Self::Unavailable,
            504 => Self::DeadlineExceeded,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What went wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct RpcError {
    /// Which kind.
    pub code: Code,
    /// What happened, in words.
    #[serde(default)]
    pub message: String,
}

impl RpcError {
    /// A kind and a sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// What the last envelope of a stream says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndOfStream {
    /// What went wrong, if anything did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RpcError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_written_as_they_are_called() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }

    #[test]
    fn a_status_means_the_kind_that_it_was_made_of_where_only_one_has_it() {
        for code in [Code::NotFound, Code::Unauthenticated, Code::ResourceExhausted, Code::Unavailable, Code::Canceled]
        {
            assert_eq!(Code::of_http_status(code.http_status()), code);
        }
        assert_eq!(Code::of_http_status(418), Code::Unknown);
    }

    #[test]
    fn a_good_end_is_an_empty_object() {
        assert_eq!(serde_json::to_string(&EndOfStream::default()).unwrap(), "{}");
        let bad = EndOfStream { error: Some(RpcError::new(Code::NotFound, "no process 7")) };
        let text = r#"{"error":{"code":"not_found","message":"no process 7"}}"#;
        assert_eq!(serde_json::to_string(&bad).unwrap(), text);
        assert_eq!(serde_json::from_str::<EndOfStream>(text).unwrap(), bad);
    }
}
