//! Running code in contexts: what callers ask and what they get back.
//!
//! A context is a managed process of a session that runs a small program of Strongbox (`programs/`), which needs only the
//! interpreter of its language. Names that a cell defines are there for the next cell of the same context. What cells print is
//! the output of the process; values, errors and the bounds of a cell are frames between it ([`scanner`]).

mod display;
mod json_line;
mod language;
mod listener;
#[cfg(test)]
mod program_tests;
mod result;
mod scanner;

use std::collections::BTreeMap;

use box_wire::{GuestPath, Invalid};
use jiff::Timestamp;
use serde::Serialize;

use crate::call::StreamName;
use crate::limits;

pub use display::{CodeError, DisplayValue};
pub use json_line::ascii_line;
pub(crate) use language::Cell;
pub use language::CodeLanguage;
pub(crate) use listener::Listener;
pub use result::{CodeCollector, CodeResult};
pub(crate) use scanner::{Part, Scanner};

/// A piece of code to run.
#[derive(Debug, Clone, PartialEq)]
pub struct CodeCall {
    /// The code, at most [`limits::CODE_BYTES_MAX`] bytes.
    pub code: String,
    /// Where to run it.
    pub context: ContextChoice,
    /// Environment variables for this call only.
    pub env: BTreeMap<String, String>,
    /// The working directory of the language's own context, if this call starts it; the session's workspace when not given.
    pub cwd: Option<GuestPath>,
    /// How long it may take, the wait for earlier cells of the context included.
    pub timeout: CodeTimeout,
}

/// The context of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContextChoice {
    /// The context that every language has, which is started by its first use.
    OfLanguage(CodeLanguage),
    /// A context by its id.
    Existing(String),
}

/// How long a call may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CodeTimeout {
    /// As long as a command of the session without a deadline of its own.
    #[default]
    OfSession,
    /// This long, within the session's limit.
    Ms(u64),
    /// Until the caller stops listening.
    Unlimited,
}

impl CodeCall {
    /// Code for the own context of a language.
    pub fn new(language: CodeLanguage, code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            context: ContextChoice::OfLanguage(language),
            env: BTreeMap::new(),
            cwd: None,
            timeout: CodeTimeout::OfSession,
        }
    }

    /// Checks everything that does not depend on the session.
    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        if self.code.len() > limits::CODE_BYTES_MAX {
            let allowed = format!("at most {} bytes; write more to a file and import it", limits::CODE_BYTES_MAX);
            return Err(Invalid::new("code", self.code.len(), allowed));
        }
        if self.env.len() > box_wire::limits::ENVIRONMENT_ENTRIES_MAX {
            let allowed = format!("at most {} variables", box_wire::limits::ENVIRONMENT_ENTRIES_MAX);
            return Err(Invalid::new("env", self.env.len(), allowed));
        }
        Ok(())
    }
}

/// A context to create.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContextCall {
    /// The language of its cells.
    pub language: CodeLanguage,
    /// Its working directory; the session's workspace when not given.
    pub cwd: Option<GuestPath>,
}

/// A context, as callers see it.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct CodeContext {
    /// Its id: `default-` and the language for the own context of a language.
    #[schema(example = "default-python")]
    pub context_id: String,
    /// The language of its cells.
    pub language: CodeLanguage,
    /// Where its process was started.
    #[schema(example = "/workspace")]
    pub cwd: String,
    /// Whether its process runs. The next call restarts one that does not, without the names that it knew.
    pub running: bool,
    /// When its process was started.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
}

/// What happens while a call runs, in order. The last event is [`CodeEvent::Ended`].
#[derive(Debug, Clone, PartialEq)]
pub enum CodeEvent {
    /// The code starts.
    Started {
        /// Cells that the context has run, with this one.
        execution_count: u64,
    },
    /// Text was printed.
    Output(CodeOutput),
    /// A value is displayed: that of the last expression, or one that the code displays itself.
    Display(Box<DisplayValue>),
    /// The code failed.
    Failed(CodeError),
    /// The call is over.
    Ended(CodeStatus),
}

/// Text that code printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeOutput {
    /// On which stream.
    pub stream: StreamName,
    /// The text.
    pub text: String,
    /// When it arrived.
    pub at: Timestamp,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CodeStatus {
    /// The code ran to its end.
    Completed,
    /// It raised an error, or its process ended.
    Failed,
    /// It did not end in time and was interrupted.
    TimedOut,
}

impl CodeEvent {
    /// Text of Strongbox about a call, among its standard error.
    pub(crate) fn notice(text: impl Into<String>) -> Self {
        Self::Output(CodeOutput { stream: StreamName::Stderr, text: text.into(), at: Timestamp::now() })
    }

    /// An error that Strongbox found, not the language.
    pub(crate) fn failed(name: &str, value: impl Into<String>) -> Self {
        let value = value.into();
        Self::Failed(CodeError { name: name.to_owned(), traceback: format!("{name}: {value}"), value })
    }
}
