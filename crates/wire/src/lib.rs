//! Words shared by the host and the agent in the box: ids, paths, frames, plans and the limits on all of them.
//!
//! Nothing here does I/O. Everything that crosses the boundary is a type of this crate, so the list of what a hostile
//! box can say to the host is the list of types in [`message`] and of files in [`journal`].

pub mod capability;
mod codec;
pub mod exec;
pub mod file_op;
pub mod frame;
pub mod id;
pub mod journal;
pub mod limits;
pub mod message;
pub mod path;
pub mod plan;
pub mod version;

pub use capability::RootCapability;
pub use exec::{ExecOutcome, ExecRequest, Exit, Output, Program, Stdin, Usage, User, WindowSize};
pub use file_op::{Answer, FileError, FileErrorCode, FileOp, FileRequest};
pub use frame::{FrameError, Header, Kind};
pub use id::{BoxId, ExecId};
pub use journal::{EndRecord, Ending, StreamName};
pub use message::{Event, ReadPosition, Refusal, RefusalCode, Report, Request, RunningExec, SignalScope};
pub use path::GuestPath;
pub use plan::{ContainerSetup, Plan};

/// A value that was refused at the edge: which field, what it was, and what would have been accepted.
///
/// The reader is often a language model that will try again, so all three parts are always there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {field}: {value} ({allowed})")]
pub struct Invalid {
    /// The field as the caller knows it.
    pub field: &'static str,
    /// The value, quoted and shortened.
    pub value: String,
    /// The allowed values.
    pub allowed: String,
}

impl Invalid {
    /// Names the field, quotes the value and says what is allowed.
    pub fn new(field: &'static str, value: impl std::fmt::Debug, allowed: impl Into<String>) -> Self {
        let quoted = format!("{value:?}");
        let value = match quoted.char_indices().nth(limits::QUOTED_VALUE_CHARS_MAX) {
            Some((cut, _)) => format!("{}…", &quoted[..cut]),
            None => quoted,
        };
        Self { field, value, allowed: allowed.into() }
    }
}
