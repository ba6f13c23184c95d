//! What is said when something went wrong: one line, and one more when there is something to do about it.

use std::borrow::Cow;
use std::io::Write;

use box_core::Error;
use owo_colors::OwoColorize;

use crate::exit::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_OWN_ERROR};

/// Something that went wrong, ready to be shown.
#[derive(Debug)]
pub(crate) struct Fault {
    /// A stable word for programs.
    pub(crate) code: Cow<'static, str>,
    /// What happened.
    pub(crate) message: String,
    /// What to do next.
    pub(crate) hint: Option<String>,
    /// By which the server's log knows what was asked.
    pub(crate) request_id: Option<String>,
    /// What the program exits with.
    pub(crate) exit_code: u8,
}

impl Fault {
    /// An error of ours without a hint.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        let code = Cow::Borrowed("invalid");
        Self { code, message: message.into(), hint: None, request_id: None, exit_code: EXIT_OWN_ERROR }
    }

    /// Gives it a stable word.
    #[must_use]
    pub(crate) fn code(mut self, code: impl Into<Cow<'static, str>>) -> Self {
        self.code = code.into();
        self
    }

    /// Adds what to do next.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Writes it to standard error and gives the exit code.
    pub(crate) fn report(&self) -> u8 {
        say(&self.message);
        if let Some(hint) = &self.hint {
            let mut stderr = anstream::stderr();
            drop(writeln!(stderr, "{} {hint}", "hint:".cyan()));
        }
        if let Some(id) = &self.request_id {
            let mut stderr = anstream::stderr();
            drop(writeln!(stderr, "{} {id}", "request:".cyan()));
        }
        self.exit_code
    }
}

/// Writes one line of ours to standard error. Nobody can be told when that fails.
pub(crate) fn say(message: &str) {
    // In one piece: what others write to the same terminal must not come between the words and the end of the line.
    let line = format!("{} {message}\n", "strongbox:".bold());
    drop(anstream::stderr().write_all(line.as_bytes()));
}

impl From<&Error> for Fault {
    fn from(error: &Error) -> Self {
        let code = error.code();
        let (message, hint) = match error {
            Error::Unavailable { what, reason, fix } | Error::MissingFacility { what, reason, fix } => {
                (format!("{what} is not available here: {reason}"), Some(fix.clone()))
            }
            Error::FloorNotHeld { dimension, .. } => {
                let hint = format!("leave out --require {dimension}, or run `strongbox doctor` to see what it needs");
                (error.to_string(), Some(hint))
            }
            Error::Setup { .. } => {
                (error.to_string(), Some("`strongbox doctor` says what this machine lacks".to_owned()))
            }
            _ => (error.to_string(), None),
        };
        let exit_code = match error {
            Error::Refused(refusal) => match refusal.code {
                box_wire::RefusalCode::NotFound => EXIT_NOT_FOUND,
                box_wire::RefusalCode::NotExecutable => EXIT_NOT_EXECUTABLE,
                _ => EXIT_OWN_ERROR,
            },
            _ => EXIT_OWN_ERROR,
        };
        Self { code: code.into(), message, hint, request_id: None, exit_code }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<box_wire::Invalid> for Fault {
    fn from(invalid: box_wire::Invalid) -> Self {
        Error::from(invalid).into()
    }
}
