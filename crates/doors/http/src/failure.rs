//! Errors as callers see them: one shape, for every route and every reason.

use axum::response::{IntoResponse, Response};
use box_core::SnapshotError;
use box_core::mcp::McpError;
use box_core::session::Difference;
use box_core::skills::SkillError;
use box_wire::{FileError, FileErrorCode, Invalid, Refusal, RefusalCode};
use http::StatusCode;
use serde::Serialize;

/// An answer that says what went wrong. It travels in the extensions of a response; [`crate::observe`] writes it out, because
/// only there the id of the request is known.
#[derive(Debug, Clone)]
pub struct Failure {
    status: StatusCode,
    problem: Box<Problem>,
    retry_after_sec: Option<u32>,
    /// The cause, if the caller must not know it. For the log.
    cause: Option<String>,
}

/// The body of every answer that is an error.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    error: Problem,
}

/// What went wrong.
#[derive(Debug, Clone, Default, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// Stable word for programs.
    #[schema(example = "validation_error")]
    code: &'static str,
    /// Finer word, where `code` stands for several reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "mount_denied")]
    detail_code: Option<&'static str>,
    /// What happened and what to do, in words.
    message: String,
    /// The field, parameter or header that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// What would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// How the existing session differs from what was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    differences: Option<Vec<Difference>>,
    /// The id of the request, to find it in the server's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
}

impl Failure {
    /// A failure with a word and a sentence.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let problem = Problem { code, message: message.into(), ..Problem::default() };
        Self { status, problem: Box::new(problem), retry_after_sec: None, cause: None }
    }

    /// A value that was refused: which, and what would be taken.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        let failure = Self::new(StatusCode::BAD_REQUEST, "validation_error", message);
        failure.change(|problem| problem.field = Some(field.into()))
    }

    /// The one answer to every caller without a valid token, whatever is wrong with theirs.
    pub fn unauthorized() -> Self {
        let message = "a token is needed: send it as `Authorization: Bearer TOKEN`";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// An internal error. The cause goes to the log only.
    pub fn internal(cause: impl Into<String>) -> Self {
        let message = "something failed inside the server; its log has the reason under this request_id";
        let failure = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message);
        Self { cause: Some(cause.into()), ..failure }
    }

    /// For an error response that has only a status, such as the router's own.
    pub fn from_status(status: StatusCode) -> Self {
        let (code, message) = match status {
            StatusCode::NOT_FOUND => ("not_found", "this path does not exist; /openapi.json lists all paths"),
            StatusCode::METHOD_NOT_ALLOWED => {
                ("method_not_allowed", "this path has other methods; the header Allow lists them")
            }
            StatusCode::PAYLOAD_TOO_LARGE => ("too_large", "the body is too large"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => ("unsupported_media_type", "send JSON, as application/json"),
            status if status.is_server_error() => return Self::internal(format!("an answer with status {status}")),
            status => ("bad_request", status.canonical_reason().unwrap_or("the request cannot be understood")),
        };
        Self::new(status, code, message)
    }

    /// Adds a finer word.
    #[must_use]
    pub fn detail(self, code: &'static str) -> Self {
        self.change(|problem| problem.detail_code = Some(code))
    }

    /// Adds what would help.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        self.change(|problem| problem.hint = Some(hint.into()))
    }

    /// Says what happened in other words.
    #[must_use]
    pub fn worded(self, message: impl Into<String>) -> Self {
        self.change(|problem| problem.message = message.into())
    }

    /// Adds which field, parameter or header was refused.
    #[must_use]
    pub fn field(self, field: &str) -> Self {
        self.change(|problem| problem.field = Some(field.to_owned()))
    }

    #[must_use]
    fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after_sec: Some(seconds), ..self }
    }

    fn change(mut self, change: impl FnOnce(&mut Problem)) -> Self {
        change(&mut self.problem);
        self
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The message for the caller.
    pub fn message(&self) -> &str {
        &self.problem.message
    }

    /// The cause, if the caller must not know it.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// When to try again, where that helps.
    pub fn retry_after_sec(&self) -> Option<u32> {
        self.retry_after_sec
    }

    /// What the caller reads. It has the id of the request if only the log has the reason.
    pub fn body(&self, request_id: Option<&str>) -> ErrorBody {
        let mut error = (*self.problem).clone();
        error.request_id = request_id.filter(|_| self.status.is_server_error()).map(str::to_owned);
        ErrorBody { error }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        let field = known_name(invalid.field);
        Self::invalid(field, format!("invalid {field}: {} ({})", invalid.value, invalid.allowed))
    }
}

/// The name of a domain field in this door.
fn known_name(field: &'static str) -> &'static str {
    match field {
        "disk_mb" => "workspace_quota_mb",
        "mounts" => "extra_mounts",
        "terminal" => "tty",
        "timeout" => "timeout_sec",
        "group" => "user",
        other => other,
    }
}

/// The one table that turns errors of the domain into responses.
impl From<box_core::Error> for Failure {
    fn from(error: box_core::Error) -> Self {
        use box_core::Error as E;
        let message = error.to_string();
        let detail = error.code();
        let invalid = |field| Self::invalid(field, message.clone()).detail(detail);
        let told = |status, code: &'static str| Self::new(status, code, message.clone());
        let unavailable = || told(StatusCode::SERVICE_UNAVAILABLE, "backend_unavailable").detail(detail);
        let internal = || Self::internal(message.clone()).detail(detail);
        match error {
            E::Invalid(invalid) => invalid.into(),
            E::MountDenied { .. } => invalid("host_path"),
            E::BadImage { .. } => invalid("image"),
            E::Unavailable { fix, .. } | E::MissingFacility { fix, .. } => unavailable().hint(fix),
            E::Unsupported { fix, .. } => told(StatusCode::NOT_IMPLEMENTED, detail).hint(fix),
            E::FloorNotHeld { .. } => unavailable(),
            E::Stopping => unavailable().retry_after(1),
            E::Gone { .. } => {
                told(StatusCode::GONE, "box_gone").hint("the next call with this session_id makes a new box")
            }
            E::SessionNotFound { .. }
            | E::ExecNotFound { .. }
            | E::ProcessNotFound { .. }
            | E::ToolNotFound { .. }
            | E::VolumeNotFound { .. }
            | E::CodeContextNotFound { .. } => told(StatusCode::NOT_FOUND, detail),
            E::InterpreterMissing { .. } => told(StatusCode::UNPROCESSABLE_ENTITY, detail).field("language"),
            E::PortClosed { .. } => told(StatusCode::BAD_GATEWAY, detail),
            E::SessionConflict { differences, .. } => {
                told(StatusCode::CONFLICT, detail).change(|problem| problem.differences = Some(differences))
            }
            E::ProcessConflict { .. } | E::AgentTooOld { .. } => told(StatusCode::CONFLICT, detail),
            E::Conflict { fix, .. } => told(StatusCode::CONFLICT, detail).hint(fix),
            E::Capacity { fix, .. } => told(StatusCode::TOO_MANY_REQUESTS, detail).hint(fix).retry_after(5),
            E::QuotaExceeded { when, .. } => told(StatusCode::INSUFFICIENT_STORAGE, detail)
                .detail(when.as_str())
                .hint("files can be removed over /v1/sessions/{id}/files, whatever the workspace holds"),
            E::DiskFull { .. } | E::Unrecorded { .. } => told(StatusCode::INSUFFICIENT_STORAGE, detail),
            E::Io { source, .. } if is_full(&source) => {
                let full = "the disk of the server is full; delete sessions, snapshots, volumes or skills";
                let failure = Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", full);
                Self { cause: Some(message), ..failure }
            }
            E::Disabled => told(StatusCode::SERVICE_UNAVAILABLE, detail),
            E::Forbidden { .. } => told(StatusCode::FORBIDDEN, detail),
            E::Refused(refusal) => refusal.into(),
            E::File(error) => error.into(),
            E::Skill(error) => error.into(),
            E::Mcp(error) => error.into(),
            E::Snapshot(error) => error.into(),
            // Setup, Protocol and Io; and errors that this door does not know yet, whose text may be confidential.
            _ => internal(),
        }
    }
}

impl From<SkillError> for Failure {
    fn from(error: SkillError) -> Self {
        let status = match error {
            SkillError::NotFound { .. } => StatusCode::NOT_FOUND,
            SkillError::Several { .. } => StatusCode::BAD_REQUEST,
            SkillError::NotActivated { .. } | SkillError::Stale { .. } => StatusCode::CONFLICT,
            SkillError::Environment { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self::new(status, error.code(), error.to_string())
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Self {
        let status = match error {
            SnapshotError::NotFound { .. } | SnapshotError::TemplateNotFound { .. } => StatusCode::NOT_FOUND,
            SnapshotError::NoDirectory | SnapshotError::Stalled => StatusCode::SERVICE_UNAVAILABLE,
            SnapshotError::Full { .. } | SnapshotError::TooLarge { .. } => StatusCode::INSUFFICIENT_STORAGE,
            SnapshotError::UploadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        };
        Self::new(status, error.code(), error.to_string())
    }
}

impl From<McpError> for Failure {
    fn from(error: McpError) -> Self {
        let status = match error {
            McpError::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            McpError::NotFound { .. } => StatusCode::NOT_FOUND,
            McpError::Fixed { .. } => StatusCode::CONFLICT,
            McpError::Denied { .. } => StatusCode::FORBIDDEN,
            McpError::Failed { .. } => StatusCode::BAD_GATEWAY,
        };
        let failure = Self::new(status, error.code(), error.to_string());
        match error {
            McpError::Failed { phase, .. } => failure.detail(phase.as_str()),
            McpError::Unavailable => failure.hint("the operator sets mcp.enabled"),
            _ => failure,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let (detail, field) = match refusal.code {
            RefusalCode::NotFound => ("program_not_found", Some("command")),
            RefusalCode::NotExecutable => ("program_not_executable", Some("command")),
            RefusalCode::BadWorkdir => ("bad_workdir", Some("workdir")),
            RefusalCode::OutOfProcesses => ("out_of_processes", None),
            RefusalCode::BadExecId => ("not_running", None),
            RefusalCode::BadRequest => ("bad_request", None),
            RefusalCode::PortClosed => ("port_closed", None),
            RefusalCode::Internal => return Self::internal(refusal.message).detail("refused"),
        };
        let failure = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "refused", refusal.message).detail(detail);
        match field {
            Some(field) => failure.field(field),
            None => failure,
        }
    }
}

/// Errors of file operations. They happened in the box, so the caller may read them in full.
impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::new(status_of(error.code), error.code.as_str(), error.message)
    }
}

/// Whether a disk has no room left.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

fn status_of(code: FileErrorCode) -> StatusCode {
    use FileErrorCode as T;
    match code {
        T::NotFound => StatusCode::NOT_FOUND,
        T::PathEscapes
        | T::InvalidPath
        | T::SymlinkRefused
        | T::InvalidPattern
        | T::PatternTooComplex
        | T::Binary
        | T::NoMatch
        | T::Ambiguous
        | T::BadArchive
        | T::IsDirectory
        | T::NotDirectory
        | T::NotRegular => StatusCode::BAD_REQUEST,
        T::Exists | T::NotEmpty => StatusCode::CONFLICT,
        T::Denied | T::ReadOnly => StatusCode::FORBIDDEN,
        T::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        T::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        T::Timeout => StatusCode::GATEWAY_TIMEOUT,
        T::Failed => StatusCode::BAD_GATEWAY,
        T::Unsupported => StatusCode::NOT_IMPLEMENTED,
    }
}

#[cfg(test)]
mod tests;
