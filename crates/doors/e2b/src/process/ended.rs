//! How a process ended, in words.

use std::time::Duration;

use box_core::call::{ExecInfo, ExecStatus};
use box_e2b_wire::process::Ended;

/// The reason given for a process that ended while its box was out of memory.
pub(crate) const OUT_OF_MEMORY: &str = "out of memory: the sandbox reached its memory limit";

/// How a process ended. One that was killed for taking too long ended by that signal.
pub(super) fn ended(info: &ExecInfo) -> Ended {
    if let Some(code) = info.exit_code {
        let status = format!("exit status {code}");
        return Ended { exit_code: code, exited: true, error: (code != 0).then(|| reason(info, &status)), status };
    }
    let status = format!("signal: {}", signal_name(info.signal.unwrap_or(9)));
    Ended { exit_code: -1, exited: false, error: Some(reason(info, &status)), status }
}

/// Why a process failed. Programs match E2B's words, so these come first.
fn reason(info: &ExecInfo, status: &str) -> String {
    let why = if info.oom_killed { Some(OUT_OF_MEMORY.to_owned()) } else { deadline_passed(info) };
    why.map_or_else(|| status.to_owned(), |why| format!("{status} ({why})"))
}

/// Which limit set the deadline that passed. None where that was the time that the caller gave.
pub(super) fn deadline_passed(info: &ExecInfo) -> Option<String> {
    let limit = info.timeout_limit.as_ref().filter(|_| info.status == ExecStatus::TimedOut)?;
    let seconds = Duration::from_millis(info.timeout_ms?).as_secs_f64();
    Some(format!("deadline of {seconds} s passed: {limit}"))
}

/// What a signal is called.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        5 => "trace/breakpoint trap",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        10 => "user defined signal 1",
        11 => "segmentation fault",
        12 => "user defined signal 2",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_http::testing::ended_exec;

    #[test]
    fn ends_have_words() {
        let of = |exit_code, signal| ended(&ExecInfo { exit_code, signal, ..ended_exec() });
        let well = of(Some(0), None);
        assert_eq!((well.exit_code, well.exited, well.status.as_str(), well.error), (0, true, "exit status 0", None));
        let badly = of(Some(3), None);
        assert_eq!((badly.exit_code, badly.exited, badly.error.as_deref()), (3, true, Some("exit status 3")));
        for (signal, words) in [
            (Some(9), "signal: killed"),
            (Some(15), "signal: terminated"),
            (Some(40), "signal: signal 40"),
            (None, "signal: killed"),
        ] {
            let killed = of(None, signal);
            assert_eq!((killed.exit_code, killed.exited), (-1, false));
            assert_eq!((killed.status.as_str(), killed.error.as_deref()), (words, Some(words)));
        }
    }

    #[test]
    fn a_deadline_that_passed_names_its_limit_behind_the_words_of_e2b() {
        let of = |status, limit: Option<&str>| {
            let limit = limit.map(str::to_owned);
            let info =
                ExecInfo { status, exit_code: None, timeout_ms: Some(1000), timeout_limit: limit, ..ended_exec() };
            ended(&info).error.unwrap()
        };
        assert_eq!(of(ExecStatus::TimedOut, Some("a limit")), "signal: killed (deadline of 1 s passed: a limit)");
        assert_eq!(of(ExecStatus::TimedOut, None), "signal: killed", "the caller gave it no more");
        assert_eq!(of(ExecStatus::Completed, Some("a limit")), "signal: killed", "something else killed it");
    }

    #[test]
    fn a_lack_of_memory_is_told_behind_the_words_of_e2b() {
        let of = |exit_code, signal| ended(&ExecInfo { exit_code, signal, oom_killed: true, ..ended_exec() });
        let killed = of(None, Some(9));
        let expected = "signal: killed (out of memory: the sandbox reached its memory limit)";
        assert_eq!((killed.status.as_str(), killed.error.as_deref()), ("signal: killed", Some(expected)));
        let by_a_shell = of(Some(137), None).error.unwrap();
        assert!(by_a_shell.starts_with("exit status 137 (out of memory"), "{by_a_shell}");
        assert_eq!(of(Some(0), None).error, None, "a command that recovered succeeded");
    }
}
