//! What can go wrong with a request to the provider or to a sandbox.

use box_core::Error;
use box_e2b_wire::{Code, EnvelopeError, RpcError};

use crate::limits::REASON_CHARS_MAX;

/// What can go wrong, by what follows from it.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Failure {
    /// The sandbox is not there any more.
    #[error("{0}")]
    Gone(String),
    /// The provider answered, and said no.
    #[error("E2B answered {status}: {message}")]
    Refused {
        /// The status of its answer.
        status: u16,
        /// What it said.
        message: String,
    },
    /// The sandbox answered, and said no.
    #[error("the sandbox refused: {0}")]
    Rpc(RpcError),
    /// No response, or one that cannot be parsed.
    #[error("{0}")]
    Broken(String),
}

/// What the edge of the provider says of a sandbox that does not run.
const NOT_FOUND: &str = "was not found";

impl Failure {
    /// What an answer means that is not a good one.
    pub(crate) fn of_answer(status: u16, body: &[u8]) -> Self {
        #[derive(serde::Deserialize)]
        struct Said {
            message: Option<String>,
        }
        let said = serde_json::from_slice::<Said>(body).ok().and_then(|said| said.message);
        let message = shortened(&said.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned()));
        if status == 502 && message.contains(NOT_FOUND) {
            return Self::Gone("E2B says that its sandbox was not found".to_owned());
        }
        Self::Refused { status, message }
    }

    /// What the end of a stream, or the answer to a call, means.
    pub(crate) fn of_rpc(error: &RpcError) -> Self {
        if error.code == Code::Unavailable && error.message.contains(NOT_FOUND) {
            return Self::Gone("E2B says that its sandbox was not found".to_owned());
        }
        Self::Rpc(RpcError::new(error.code, shortened(&error.message)))
    }

    /// Whether it may go away by itself, so that trying again is worth it.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Refused { status: 429 | 502 | 503 | 504, .. })
    }

    /// The status of a refusal.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The error for callers, with what they asked for.
    pub(crate) fn told(self, what: &str) -> Error {
        let fix = match &self {
            Self::Gone(reason) => return Error::Gone { reason: reason.clone() },
            Self::Refused { status: 401 | 403, .. } => "set e2b.api_key, or E2B_API_KEY, to a key that may do this",
            Self::Refused { status: 429, .. } => "end sandboxes that are not needed, or wait",
            Self::Refused { .. } | Self::Rpc(_) => "see whether e2b.api_url and e2b.template are what they should be",
            Self::Broken(_) => "see whether e2b.api_url and e2b.domain can be reached from here",
        };
        Error::Unavailable { what: what.to_owned(), reason: self.to_string(), fix: fix.to_owned() }
    }
}

impl From<reqwest::Error> for Failure {
    fn from(error: reqwest::Error) -> Self {
        let mut text = if error.is_timeout() {
            "E2B did not answer in time".to_owned()
        } else {
            let error = error.without_url();
            let mut text = format!("E2B cannot be reached: {error}");
            // The error itself only says what was tried; its causes say what went wrong.
            let mut cause = std::error::Error::source(&error);
            while let Some(inner) = cause {
                text = format!("{text}: {inner}");
                cause = inner.source();
            }
            text
        };
        text.truncate(text.floor_char_boundary(REASON_CHARS_MAX));
        Self::Broken(text)
    }
}

impl From<EnvelopeError> for Failure {
    fn from(error: EnvelopeError) -> Self {
        Self::Broken(format!("the stream of a sandbox is not what it should be: {error}"))
    }
}

fn shortened(text: &str) -> String {
    let line = text.trim().chars().map(|character| if character.is_control() { ' ' } else { character });
    line.take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_edge_says_of_dead_sandboxes_means_that_they_are_gone() {
        let body = br#"{"sandboxId":"x","message":"The sandbox was not found","code":502}"#;
        assert!(matches!(Failure::of_answer(502, body), Failure::Gone(_)));
        assert!(Failure::of_answer(502, b"bad gateway").may_pass());
        let error = RpcError::new(Code::Unavailable, "The sandbox was not found");
        assert!(matches!(Failure::of_rpc(&error), Failure::Gone(_)));
        assert!(matches!(Failure::of_rpc(&RpcError::new(Code::Unavailable, "busy")), Failure::Rpc(_)));
    }

    #[test]
    fn what_a_stranger_says_is_told_on_one_short_line() {
        let body = format!("{{\"message\":\"a\\n{}\"}}", "b".repeat(5000));
        let Failure::Refused { message, .. } = Failure::of_answer(500, body.as_bytes()) else { panic!() };
        assert!(message.starts_with("a b") && message.len() == REASON_CHARS_MAX, "{message}");
    }

    #[test]
    fn a_refused_key_says_where_keys_are_set() {
        let error = Failure::of_answer(401, b"{}").told("a sandbox");
        assert!(error.to_string().contains("E2B_API_KEY"), "{error}");
    }
}
