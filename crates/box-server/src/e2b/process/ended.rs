//! How a process ended, in words.

use box_core::call::ExecInfo;
use box_e2b_wire::process::Ended;

/// How a process ended. One that was killed for taking too long ended by that signal.
pub(super) fn ended(info: &ExecInfo) -> Ended {
    if let Some(code) = info.exit_code {
        let status = format!("exit status {code}");
        return Ended { exit_code: code, exited: true, error: (code != 0).then(|| status.clone()), status };
    }
    let status = format!("signal: {}", signal_name(info.signal.unwrap_or(9)));
    Ended { exit_code: -1, exited: false, error: Some(status.clone()), status }
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
    use crate::testing::ended_exec;

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
}
