//! How a command ended, as an exit code and as words.

use std::io::Write;

use box_core::{Error, Guarantees};
use box_wire::{ExecOutcome, Exit, Usage};
use serde::Serialize;

use super::intent::Intent;
use crate::exit::{EXIT_OUTPUT_CLOSED, EXIT_OWN_ERROR, EXIT_TIMED_OUT, SIGKILL, SIGSYS, after_signal};
use crate::fault::{self, Fault};
use crate::values::as_seconds;

/// How a command ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// By itself, by a limit or by its deadline.
    Exited(ExecOutcome),
    /// A signal to us removed the box.
    Interrupted(i32),
    /// Whoever read our output has gone away.
    OutputClosed,
    /// It could not be run, or its end could not be learnt.
    Failed(Error),
    /// Nothing was run, because a typed limit cannot be enforced.
    Refused(Fault),
}

impl Ending {
    /// What came of an exec.
    pub(crate) fn of(outcome: box_core::Result<ExecOutcome>) -> Self {
        match outcome {
            Ok(outcome) => Self::Exited(outcome),
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::BrokenPipe => Self::OutputClosed,
            Err(error) => Self::Failed(error),
        }
    }
}

/// Says what there is to say and gives the exit code.
pub(crate) fn report(intent: &Intent, ending: &Ending, guarantees: Option<&Guarantees>, json: bool) -> u8 {
    let exit_code = match ending {
        Ending::Exited(outcome) => {
            explain(intent, outcome);
            exit_code(outcome)
        }
        Ending::Interrupted(signal) => after_signal(*signal),
        Ending::OutputClosed => EXIT_OUTPUT_CLOSED,
        Ending::Failed(error) => return report_fault(&Fault::from(error), json),
        Ending::Refused(fault) => return report_fault(fault, json),
    };
    if json {
        write_json(&Receipt::new(ending, guarantees));
    }
    exit_code
}

/// Says what went wrong and gives the exit code.
pub(crate) fn report_fault(fault: &Fault, json: bool) -> u8 {
    if json {
        let Fault { code, message, hint, exit_code, .. } = fault;
        write_json(
            &serde_json::json!({ "status": "failed", "error": { "code": code, "message": message, "hint": hint } }),
        );
        return *exit_code;
    }
    fault.report()
}

fn exit_code(outcome: &ExecOutcome) -> u8 {
    match outcome.exit {
        _ if outcome.timed_out => EXIT_TIMED_OUT,
        Exit::Code(code) => u8::try_from(code).unwrap_or(EXIT_OWN_ERROR),
        Exit::Signal(signal) => after_signal(signal),
    }
}

/// Explains an end that the command itself could not explain.
fn explain(intent: &Intent, outcome: &ExecOutcome) {
    if outcome.timed_out {
        let seconds = intent.request.timeout_ms.unwrap_or_default();
        let (seconds, fix) = (as_seconds(seconds), &intent.fixes.timeout);
        fault::say(&format!("killed: the deadline of {seconds} s passed ({fix})"));
    } else if outcome.oom_killed {
        let what = if outcome.exit == Exit::Signal(SIGKILL) { "killed" } else { "a process of the command was killed" };
        let (limit, fix) = (intent.spec.memory_mb, &intent.fixes.memory);
        fault::say(&format!("{what}: out of memory (limit {limit} MiB; {fix})"));
    } else if outcome.exit == Exit::Signal(SIGSYS) {
        fault::say(
            "killed by SIGSYS: it made a system call of another kind than this machine's own, such as that of a 32-bit \
             program; a box runs only native ones",
        );
    }
}

/// The line that `--json` ends with.
#[derive(Serialize)]
struct Receipt<'a> {
    status: &'static str,
    exit_code: Option<i32>,
    signal: Option<i32>,
    oom_killed: bool,
    timed_out: bool,
    usage: Option<Usage>,
    guarantees: Option<&'a Guarantees>,
}

impl<'a> Receipt<'a> {
    fn new(ending: &Ending, guarantees: Option<&'a Guarantees>) -> Self {
        let base = Self {
            status: "completed",
            exit_code: None,
            signal: None,
            oom_killed: false,
            timed_out: false,
            usage: None,
            guarantees,
        };
        match ending {
            Ending::Exited(outcome) => Self {
                status: if outcome.timed_out { "timed_out" } else { "completed" },
                // A command that was killed at its deadline has no result of its own.
                exit_code: match outcome.exit {
                    Exit::Code(code) if !outcome.timed_out => Some(code),
                    _ => None,
                },
                signal: match outcome.exit {
                    Exit::Signal(signal) => Some(signal),
                    Exit::Code(_) => None,
                },
                oom_killed: outcome.oom_killed,
                timed_out: outcome.timed_out,
                usage: Some(outcome.usage),
                ..base
            },
            Ending::Interrupted(signal) => Self { status: "interrupted", signal: Some(*signal), ..base },
            Ending::OutputClosed => Self { status: "output_closed", ..base },
            Ending::Failed(_) | Ending::Refused(_) => Self { status: "failed", ..base },
        }
    }
}

fn write_json(value: &impl Serialize) {
    if let Ok(line) = serde_json::to_string(value) {
        // Nobody can be told when standard error is gone.
        drop(writeln!(std::io::stderr(), "{line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(exit: Exit) -> ExecOutcome {
        ExecOutcome { exit, timed_out: false, oom_killed: false, tree_gone: true, usage: Usage::default() }
    }

    #[test]
    fn exit_codes_are_as_documented() {
        assert_eq!(exit_code(&outcome(Exit::Code(0))), 0);
        assert_eq!(exit_code(&outcome(Exit::Code(3))), 3);
        assert_eq!(exit_code(&outcome(Exit::Signal(9))), 137);
        assert_eq!(exit_code(&ExecOutcome { timed_out: true, ..outcome(Exit::Signal(9)) }), 124);
        // What a hostile box may claim stays a number that an exit code can hold.
        for exit in [Exit::Code(-1), Exit::Code(256), Exit::Signal(-5), Exit::Signal(i32::MAX)] {
            assert_eq!(exit_code(&outcome(exit)), EXIT_OWN_ERROR);
        }
        assert_eq!(exit_code(&outcome(Exit::Signal(200))), 255);
    }

    #[test]
    fn seconds_are_shown_without_needless_digits() {
        assert_eq!((as_seconds(1000), as_seconds(500), as_seconds(1250)), ("1".into(), "0.5".into(), "1.25".into()));
    }

    #[test]
    fn a_timed_out_command_has_no_exit_code_in_the_receipt() {
        let ending = Ending::Exited(ExecOutcome { timed_out: true, ..outcome(Exit::Signal(9)) });
        let receipt = serde_json::to_value(Receipt::new(&ending, None)).unwrap();
        assert_eq!(receipt["status"], "timed_out");
        assert!(receipt["exit_code"].is_null());
    }
}
