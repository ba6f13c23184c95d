//! How a command in a session ended, as an exit code and as words.

use box_core::call::{ExecInfo, ExecStatus};

use super::live::Finish;
use crate::exit::{EXIT_OUTPUT_CLOSED, EXIT_OWN_ERROR, EXIT_TIMED_OUT, SIGKILL, SIGSYS, after_signal};
use crate::fault;
use crate::values::as_seconds;

/// Says what the command itself could not say, and gives the exit code.
pub(crate) fn report(finish: &Finish) -> u8 {
    match finish {
        Finish::Ended(info) => {
            if let Some(words) = explanation(info) {
                fault::say(&words);
            }
            exit_code(info)
        }
        Finish::Detached => 0,
        Finish::Interrupted(signal) => after_signal(*signal),
        Finish::OutputClosed => EXIT_OUTPUT_CLOSED,
    }
}

/// What a shell would make of it.
pub(crate) fn exit_code(info: &ExecInfo) -> u8 {
    match (info.status, info.exit_code, info.signal) {
        _ if info.quota_exceeded => EXIT_OWN_ERROR,
        (ExecStatus::TimedOut, ..) => EXIT_TIMED_OUT,
        (ExecStatus::Completed, Some(code), _) => u8::try_from(code).unwrap_or(EXIT_OWN_ERROR),
        (ExecStatus::Completed, None, Some(signal)) => after_signal(signal),
        _ => EXIT_OWN_ERROR,
    }
}

/// Which deadline passed, and what makes it longer.
fn deadline_passed(info: &ExecInfo) -> String {
    let after = info.timeout_ms.map(|ms| format!(" of {} s", as_seconds(ms))).unwrap_or_default();
    // At a limit, --timeout cannot help.
    let fix = info.timeout_limit.as_deref().unwrap_or("a longer one: --timeout");
    format!("killed: its deadline{after} passed; {fix}")
}

fn explanation(info: &ExecInfo) -> Option<String> {
    let words = match info.status {
        ExecStatus::TimedOut => return Some(deadline_passed(info)),
        _ if info.quota_exceeded => {
            "the workspace holds more than its quota; see `strongbox errors`, and remove files or raise workspace_quota_mb"
        }
        ExecStatus::Lost => "its box was lost before its end was known; see `strongbox errors`",
        _ if info.oom_killed && info.signal == Some(SIGKILL) => "killed: the session is out of memory",
        _ if info.oom_killed => "a process of the command was killed: the session is out of memory",
        _ if info.signal == Some(SIGSYS) => {
            "killed by SIGSYS: it made a system call of another kind than this machine's own, such as that of a 32-bit \
             program; a box runs only native ones"
        }
        _ => return None,
    };
    Some(words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(change: impl FnOnce(&mut ExecInfo)) -> ExecInfo {
        let mut info = ExecInfo {
            exec_id: "e".parse().unwrap(),
            session_id: "s".parse().unwrap(),
            backend_name: box_core::BackendName::Native,
            command: "true".to_owned(),
            pid: None,
            status: ExecStatus::Completed,
            exit_code: None,
            signal: None,
            oom_killed: false,
            quota_exceeded: false,
            timeout_ms: Some(30_000),
            timeout_limit: None,
            timeout_cut: None,
            duration_ms: 1,
            started_at: jiff::Timestamp::UNIX_EPOCH,
            ended_at: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            receipt: None,
        };
        change(&mut info);
        info
    }

    #[test]
    fn exit_codes_are_those_of_run() {
        let code = |code| info(|info| info.exit_code = Some(code));
        let signal = |signal| info(|info| info.signal = Some(signal));
        let status = |status| info(|info| (info.status, info.exit_code) = (status, Some(0)));
        let table = [
            (code(0), 0),
            (code(3), 3),
            (code(-1), 125),
            (code(256), 125),
            (signal(9), 137),
            (signal(15), 143),
            (status(ExecStatus::TimedOut), 124),
            (status(ExecStatus::Lost), 125),
        ];
        for (info, expected) in table {
            assert_eq!(exit_code(&info), expected, "{info:?}");
        }
    }

    #[test]
    fn only_ends_that_nobody_else_explains_are_explained() {
        assert_eq!(explanation(&info(|info| info.exit_code = Some(1))), None);
        assert_eq!(explanation(&info(|info| info.signal = Some(15))), None);
        let late = |limit: Option<&str>| {
            let info =
                info(|info| (info.status, info.timeout_limit) = (ExecStatus::TimedOut, limit.map(str::to_owned)));
            explanation(&info).unwrap()
        };
        assert_eq!(late(None), "killed: its deadline of 30 s passed; a longer one: --timeout");
        assert_eq!(late(Some("a limit")), "killed: its deadline of 30 s passed; a limit", "--timeout cannot help");
        let oom = info(|info| (info.oom_killed, info.signal) = (true, Some(9)));
        assert!(explanation(&oom).unwrap().starts_with("killed: the session is out of memory"));
    }
}
