//! The closed list of what host and agent say to each other.

use serde::{Deserialize, Serialize};

use crate::{ExecId, ExecOutcome, ExecRequest};

/// What the host asks on a freshly dialled stream. One stream, one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Run a command. Closing the stream kills it.
    Exec(ExecRequest),
    /// Send a signal to the main process of an exec.
    Signal {
        /// Which exec.
        exec: ExecId,
        /// The signal's number.
        signal: i32,
    },
    /// Kill the whole process tree of an exec.
    Kill {
        /// Which exec.
        exec: ExecId,
    },
    /// Are you there?
    Ping,
}

/// What the agent answers on a dialled stream, between raw output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The command was started.
    Started {
        /// Process id inside the box.
        pid: u32,
    },
    /// The command ended; all output that it wrote before has been sent. Last on the stream.
    Exited(ExecOutcome),
    /// The request was not carried out. Last on the stream.
    Refused(Refusal),
    /// The request was carried out and has nothing more to say. Last on the stream.
    Done,
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of refusal it is.
    pub code: RefusalCode,
    /// What happened, in words.
    pub message: String,
}

/// The kinds of refusal that a caller can act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalCode {
    /// The program does not exist in the box.
    NotFound,
    /// The program exists but cannot be executed by the workload.
    NotExecutable,
    /// The working directory cannot be entered.
    BadWorkdir,
    /// The box has no room for another process.
    OutOfProcesses,
    /// No exec of that id is running, or one is running already.
    BadExecId,
    /// The request itself is malformed or out of bounds.
    BadRequest,
    /// Something failed inside the box that should not have.
    Internal,
}

/// What the agent says after it applied the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The box stands as planned, and this is what was verified from inside.
    Ready(Verified),
    /// A step failed. The box is gone.
    Failed {
        /// Which step, as a stable word.
        step: String,
        /// What happened.
        message: String,
    },
}

/// What the agent found to be true from inside, after set-up and before the first command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Landlock ABI in force; 0 when the kernel has none.
    pub landlock_abi: u32,
    /// What every command inherits was found in place: `no_new_privs`, an empty bounding set, a powerless uid 0. Each command
    /// checks the rest itself before it starts, and does not start otherwise.
    pub workload_confined: bool,
    /// Mounts that were found read-only, of those planned to be.
    pub read_only_mounts: u32,
}
