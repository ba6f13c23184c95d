//! What went wrong in the service, in the words of Connect.

use box_core::Error;
use box_e2b_wire::{Code, RpcError};
use box_wire::{FileErrorCode, RefusalCode};

/// What clients look for to tell that a sandbox is gone.
pub(crate) const SANDBOX_NOT_FOUND: &str = "The sandbox was not found";

/// What a client is told. What is our fault goes to the log only.
pub(crate) fn told(error: Error) -> RpcError {
    let message = error.to_string();
    let code = match error {
        Error::SessionNotFound { .. } | Error::Gone { .. } => {
            return RpcError::new(Code::Unavailable, SANDBOX_NOT_FOUND);
        }
        Error::Invalid(_) => Code::InvalidArgument,
        Error::ExecNotFound { .. } | Error::ProcessNotFound { .. } => Code::NotFound,
        Error::Capacity { .. } | Error::QuotaExceeded { .. } => Code::ResourceExhausted,
        Error::Forbidden { .. } => Code::PermissionDenied,
        // Clients read `unavailable` as a sandbox that is gone or a time that is over, and some try again. What the operator must
        // install or configure first is 400 here and 500 on the control plane, neither of which is tried again.
        Error::Conflict { .. }
        | Error::ProcessConflict { .. }
        | Error::MissingFacility { .. }
        | Error::FloorNotHeld { .. }
        | Error::Disabled => Code::FailedPrecondition,
        Error::Unavailable { .. } | Error::Stopping => Code::Unavailable,
        Error::Refused(refusal) => code_of_refusal(refusal.code),
        Error::File(error) => code_of_file_error(error.code),
        _ => Code::Internal,
    };
    if code == Code::Internal {
        tracing::error!(error = message, "a call of an E2B client failed");
    }
    RpcError::new(code, message)
}

fn code_of_refusal(code: RefusalCode) -> Code {
    match code {
        RefusalCode::NotFound | RefusalCode::NotExecutable | RefusalCode::BadWorkdir | RefusalCode::BadRequest => {
            Code::InvalidArgument
        }
        RefusalCode::OutOfProcesses => Code::ResourceExhausted,
        RefusalCode::BadExecId => Code::NotFound,
        RefusalCode::Internal => Code::Internal,
        RefusalCode::PortClosed => Code::Unavailable,
    }
}

fn code_of_file_error(code: FileErrorCode) -> Code {
    match code {
        FileErrorCode::NotFound => Code::NotFound,
        FileErrorCode::Exists => Code::AlreadyExists,
        FileErrorCode::Denied | FileErrorCode::ReadOnly => Code::PermissionDenied,
        FileErrorCode::NoSpace | FileErrorCode::TooLarge => Code::ResourceExhausted,
        FileErrorCode::Timeout => Code::DeadlineExceeded,
        FileErrorCode::Failed => Code::Internal,
        _ => Code::InvalidArgument,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_operator_must_do_first_is_no_reason_to_try_again() {
        let text = |text: &str| text.to_owned();
        let (what, reason, fix) = (text("outbound network"), text("no program `pasta`"), text("install passt"));
        let missing = Error::MissingFacility { what, reason, fix };
        let (what, reason, fix) = (text("the docker engine"), text("connection refused"), text("start dockerd"));
        let away = Error::Unavailable { what, reason, fix };
        for (error, code, says) in [
            (missing, Code::FailedPrecondition, "install passt"),
            (Error::Disabled, Code::FailedPrecondition, ""),
            (away, Code::Unavailable, "start dockerd"),
            (Error::Stopping, Code::Unavailable, ""),
        ] {
            let told = told(error);
            assert!(told.code == code && told.message.contains(says), "{told:?}");
        }
    }
}
