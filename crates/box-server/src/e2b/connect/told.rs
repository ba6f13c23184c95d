//! What went wrong in the service, in the words of Connect.

use box_core::Error;
use box_e2b_wire::{Code, RpcError};
use box_wire::{RefusalCode, TroubleCode};

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
        Error::Conflict { .. } | Error::ProcessConflict { .. } => Code::FailedPrecondition,
        Error::Unavailable { .. } | Error::Stopping | Error::Disabled => Code::Unavailable,
        Error::Refused(refusal) => code_of_refusal(refusal.code),
        Error::File(trouble) => code_of_trouble(trouble.code),
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

fn code_of_trouble(code: TroubleCode) -> Code {
    match code {
        TroubleCode::NotFound => Code::NotFound,
        TroubleCode::Exists => Code::AlreadyExists,
        TroubleCode::Denied | TroubleCode::ReadOnly => Code::PermissionDenied,
        TroubleCode::NoSpace | TroubleCode::TooLarge => Code::ResourceExhausted,
        TroubleCode::Timeout => Code::DeadlineExceeded,
        TroubleCode::Failed => Code::Internal,
        _ => Code::InvalidArgument,
    }
}
