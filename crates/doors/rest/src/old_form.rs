//! The old form of commands: what LangBot's HTTP client of before relied on, where it differs from what we do.
//!
//! That client sends one body for everything, with every field of its model in it. Whoever else sends exactly these thirteen is
//! served the same way, and nobody does so by accident.

use box_core::call::{ExecCall, ExecResult, ExecStatus};
use box_core::session::{DoorRules, OnTimeout, UnknownImage};
use box_core::{Error, SessionRequest, shell};
use box_wire::Program;

use door_http::body::Fields;
use door_http::failure::Failure;
use door_http::original::{STREAM_BYTES_MAX, TIMEOUT_SEC_MAX, clip_notice, explained};

/// The fields of the old model, all of which are in every body of its client.
const FIELDS: [&str; 13] = [
    "cmd",
    "workdir",
    "timeout_sec",
    "network",
    "session_id",
    "env",
    "image",
    "host_path",
    "host_path_mode",
    "cpus",
    "memory_mb",
    "pids_limit",
    "read_only_rootfs",
];

/// Where commands run when the body does not say.
const WORKDIR: &str = "/workspace";

/// Which form a body has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// Ours.
    #[default]
    Ours,
    /// The old client's.
    Old,
}

impl Form {
    /// The form of a body of which nothing was taken yet.
    pub(super) fn of(fields: &Fields) -> Self {
        if FIELDS.iter().all(|name| fields.has(name)) { Self::Old } else { Self::Ours }
    }

    /// What this form asks of sessions.
    pub(super) fn session(self, request: SessionRequest) -> SessionRequest {
        match self {
            Self::Ours => request,
            Self::Old => SessionRequest { env: Vec::new(), rules: rules(), ..request },
        }
    }

    /// What it asks of commands.
    pub(super) fn call(self, call: ExecCall) -> Result<ExecCall, Failure> {
        if self == Self::Ours {
            return Ok(call);
        }
        let workdir = call.workdir.as_ref().map_or(WORKDIR, |path| path.as_str());
        let program = match &call.program {
            Program::Shell(line) => shell::login_at(workdir, line)?,
            other => other.clone(),
        };
        let output_head_bytes = Some(STREAM_BYTES_MAX);
        Ok(ExecCall { program, workdir: None, on_timeout: Some(OnTimeout::Destroy), output_head_bytes, ..call })
    }

    /// The result as clients of this form read it.
    pub(super) fn result(self, result: ExecResult) -> ExecResult {
        match self {
            Self::Ours => result,
            Self::Old => shown(result),
        }
    }

    /// What went wrong as clients of this form read it.
    pub(super) fn failure(self, error: Error) -> Failure {
        let text = match &error {
            Error::SessionConflict { session, differences } if self == Self::Old => differences.first().map(|first| {
                format!("sandbox_exec session {session} already exists with {}={}", first.field, first.existing)
            }),
            _ => None,
        };
        let failure = Failure::from(error);
        match text {
            Some(text) => failure.worded(text),
            None => failure,
        }
    }
}

fn rules() -> DoorRules {
    DoorRules { unknown_image: UnknownImage::Host, timeout_sec_max: Some(TIMEOUT_SEC_MAX), ..DoorRules::default() }
}

/// Output without whitespace around it, and the exit code as a shell tells it.
fn shown(result: ExecResult) -> ExecResult {
    let stdout = clipped(&result.stdout, result.info.stdout_bytes);
    let stderr = explained(clipped(&result.stderr, result.info.stderr_bytes), &result.info);
    let mut info = result.info;
    info.exit_code = info.shell_code().filter(|_| info.status != ExecStatus::TimedOut);
    ExecResult { info, stdout, stderr, ..result }
}

fn clipped(text: &str, bytes: u64) -> String {
    let text = text.trim();
    match bytes.saturating_sub(STREAM_BYTES_MAX as u64) {
        0 => text.to_owned(),
        beyond => text.to_owned() + &clip_notice(STREAM_BYTES_MAX, beyond),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_http::testing::ended_exec;

    const OLD: &str = r#"{"cmd":"x","workdir":"/tmp","timeout_sec":30,"network":"off","session_id":"s","env":{},"image":"a",
        "host_path":null,"host_path_mode":"rw","cpus":1.0,"memory_mb":512,"pids_limit":128,"read_only_rootfs":true}"#;

    fn form(json: &str) -> Form {
        Form::of(&Fields::from_json(json.as_bytes()).unwrap())
    }

    #[test]
    fn only_a_body_with_every_field_of_the_old_model_is_in_the_old_form() {
        assert_eq!(form(OLD), Form::Old);
        assert_eq!(form(&OLD.replace("\"host_path\":null,", "")), Form::Ours);
        assert_eq!(form(r#"{"cmd":"x","session_id":"s","image":"a"}"#), Form::Ours);
    }

    #[test]
    fn results_are_as_the_old_client_knows_them() {
        let result = |status, stderr: &str| ExecResult {
            info: box_core::call::ExecInfo {
                status,
                exit_code: None,
                signal: Some(9),
                timeout_ms: Some(1500),
                timeout_limit: Some("a limit".into()),
                ..ended_exec()
            },
            stdout: " out \n".into(),
            stderr: stderr.into(),
            stdout_truncated: false,
            stderr_truncated: false,
        };
        let timed = Form::Old.result(result(ExecStatus::TimedOut, "\n"));
        assert_eq!((timed.stdout.as_str(), timed.info.exit_code), ("out", None));
        assert_eq!(timed.stderr, "Command timed out after 1.5 seconds.\nThe deadline cannot be longer: a limit.");
        let spoke = Form::Old.result(result(ExecStatus::TimedOut, "err"));
        assert_eq!(spoke.stderr, "err\nThe deadline cannot be longer: a limit.");
        let killed = Form::Old.result(result(ExecStatus::Completed, " err\n"));
        assert_eq!((killed.stderr.as_str(), killed.info.exit_code), ("err", Some(137)));
        assert_eq!(Form::Ours.result(result(ExecStatus::Completed, " err\n")).stderr, " err\n");
    }

    #[test]
    fn what_was_cut_off_is_counted() {
        assert_eq!(clipped(" a ", 3), "a");
        assert_eq!(clipped("a", (1 << 20) + 5), "a\n... [raw output clipped at 1048576 bytes, 5 bytes discarded]");
    }
}
