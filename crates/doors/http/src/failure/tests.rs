//! The response for every error of the domain.

use box_core::{Dimension, Error, Level, QuotaMoment, Scope};
use box_wire::FrameError;

use super::*;

fn session() -> box_core::SessionId {
    "s".parse().unwrap()
}

fn process() -> box_core::call::ProcessId {
    box_core::call::ProcessId::default()
}

fn refused(code: RefusalCode) -> Error {
    Error::Refused(Refusal { code, message: "in words".into() })
}

fn file(code: FileErrorCode) -> Error {
    Error::File(FileError::new(code, "in words"))
}

fn text() -> String {
    "secret /home/x".to_owned()
}

/// Error, status, code, finer code.
fn table() -> Vec<(Error, u16, &'static str, Option<&'static str>)> {
    let io = || std::io::Error::other("secret /home/x");
    vec![
        (Invalid::new("cpus", 0, "more").into(), 400, "validation_error", None),
        (Error::MountDenied { path: text(), reason: text() }, 400, "validation_error", Some("mount_denied")),
        (Error::BadImage { image: text(), reason: text() }, 400, "validation_error", Some("bad_image")),
        (
            Error::Unavailable { what: text(), reason: text(), fix: text() },
            503,
            "backend_unavailable",
            Some("unavailable"),
        ),
        (
            Error::MissingFacility { what: text(), reason: text(), fix: text() },
            503,
            "backend_unavailable",
            Some("unavailable"),
        ),
        (
            Error::FloorNotHeld { dimension: Dimension::Cpu, found: Level::Soft, reason: text() },
            503,
            "backend_unavailable",
            Some("floor_not_held"),
        ),
        (Error::Stopping, 503, "backend_unavailable", Some("stopping")),
        (Error::Gone { reason: text() }, 410, "box_gone", None),
        (Error::SessionNotFound { session: session() }, 404, "session_not_found", None),
        (Error::ExecNotFound { session: session(), exec: text() }, 404, "exec_not_found", None),
        (Error::ProcessNotFound { session: session(), process: process() }, 404, "managed_process_not_found", None),
        (Error::SessionConflict { session: session(), differences: vec![] }, 409, "session_conflict", None),
        (
            Error::ProcessConflict { session: session(), process: process(), what: text() },
            409,
            "managed_process_conflict",
            None,
        ),
        (Error::Conflict { what: text(), fix: text() }, 409, "conflict", None),
        (Error::PortClosed { session: session(), port: 80, reason: text() }, 502, "port_closed", None),
        (Error::Capacity { what: text(), limit: 1, fix: text() }, 429, "capacity_exceeded", None),
        (
            Error::QuotaExceeded {
                when: QuotaMoment::During,
                used_bytes: 2,
                quota_bytes: 1,
                used_inodes: 2,
                quota_inodes: 1,
            },
            507,
            "quota_exceeded",
            Some("during"),
        ),
        (Error::Disabled, 503, "disabled", None),
        (Error::AgentTooOld { feature: "fill_many" }, 409, "agent_too_old", None),
        (Error::Forbidden { scope: Scope::Admin }, 403, "forbidden", None),
        (refused(RefusalCode::NotFound), 422, "refused", Some("program_not_found")),
        (refused(RefusalCode::NotExecutable), 422, "refused", Some("program_not_executable")),
        (refused(RefusalCode::BadWorkdir), 422, "refused", Some("bad_workdir")),
        (refused(RefusalCode::OutOfProcesses), 422, "refused", Some("out_of_processes")),
        (refused(RefusalCode::BadExecId), 422, "refused", Some("not_running")),
        (refused(RefusalCode::BadRequest), 422, "refused", Some("bad_request")),
        (refused(RefusalCode::Internal), 500, "internal_error", Some("refused")),
        (file(FileErrorCode::NotFound), 404, "not_found", None),
        (file(FileErrorCode::PathEscapes), 400, "path_escapes", None),
        (file(FileErrorCode::InvalidPath), 400, "invalid_path", None),
        (file(FileErrorCode::SymlinkRefused), 400, "symlink_refused", None),
        (file(FileErrorCode::IsDirectory), 400, "is_directory", None),
        (file(FileErrorCode::NotDirectory), 400, "not_directory", None),
        (file(FileErrorCode::NotRegular), 400, "not_regular", None),
        (file(FileErrorCode::Exists), 409, "exists", None),
        (file(FileErrorCode::NotEmpty), 409, "not_empty", None),
        (file(FileErrorCode::Denied), 403, "denied", None),
        (file(FileErrorCode::ReadOnly), 403, "read_only", None),
        (file(FileErrorCode::NoSpace), 507, "no_space", None),
        (file(FileErrorCode::TooLarge), 413, "too_large", None),
        (file(FileErrorCode::Binary), 400, "binary", None),
        (file(FileErrorCode::NoMatch), 400, "no_match", None),
        (file(FileErrorCode::Ambiguous), 400, "ambiguous", None),
        (file(FileErrorCode::InvalidPattern), 400, "invalid_pattern", None),
        (file(FileErrorCode::PatternTooComplex), 400, "pattern_too_complex", None),
        (file(FileErrorCode::BadArchive), 400, "bad_archive", None),
        (file(FileErrorCode::Timeout), 504, "timeout", None),
        (file(FileErrorCode::Failed), 502, "failed", None),
        (Error::Setup { step: text(), reason: text() }, 500, "internal_error", Some("setup_failed")),
        (Error::Protocol(FrameError::UnknownKind(9)), 500, "internal_error", Some("protocol")),
        (Error::Io { context: text(), source: io() }, 500, "internal_error", Some("io")),
    ]
}

#[test]
fn every_reason_has_its_status_and_code() {
    for (error, status, code, detail) in table() {
        let what = format!("{error:?}");
        let failure = Failure::from(error);
        assert_eq!(failure.status().as_u16(), status, "{what}");
        assert_eq!(failure.problem.code, code, "{what}");
        assert_eq!(failure.problem.detail_code, detail, "{what}");
        assert!(!failure.problem.message.is_empty(), "{what}");
    }
}

#[test]
fn what_is_our_fault_is_told_to_the_log_and_not_to_the_caller() {
    for (error, status, ..) in table() {
        let (what, failure) = (error.to_string(), Failure::from(error));
        let body = serde_json::to_value(failure.body(Some("req"))).unwrap();
        if status == 500 {
            assert!(!body.to_string().contains("secret"), "{body}");
            assert_eq!(failure.cause(), Some(what.as_str()));
            assert_eq!(body["error"]["request_id"], "req");
        } else {
            assert_eq!(failure.cause(), None, "{what}");
        }
    }
}

#[test]
fn a_conflict_lists_every_field_that_differs() {
    let difference = Difference { field: "cpus", existing: "1".into(), asked: "2".into() };
    let failure = Failure::from(Error::SessionConflict { session: session(), differences: vec![difference] });
    let body = serde_json::to_value(failure.body(None)).unwrap();
    assert_eq!(body["error"]["differences"][0]["field"], "cpus");
    assert_eq!(body["error"]["differences"][0]["asked"], "2");
}

#[test]
fn fields_are_named_as_the_caller_wrote_them() {
    let failure = Failure::from(Error::from(Invalid::new("disk_mb", -1, "0 or more")));
    assert_eq!(failure.problem.field.as_deref(), Some("workspace_quota_mb"));
    assert_eq!(failure.problem.message, "invalid workspace_quota_mb: -1 (0 or more)");
}

#[test]
fn who_can_try_again_is_told_when() {
    assert_eq!(Failure::from(Error::Stopping).retry_after_sec(), Some(1));
    let full = Error::Capacity { what: text(), limit: 1, fix: text() };
    assert_eq!(Failure::from(full).retry_after_sec(), Some(5));
}
