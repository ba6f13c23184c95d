//! The closed list of what host and agent say to each other.

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use crate::{ExecId, ExecOutcome, ExecRequest, RootCapability};

/// The host's request on a newly dialed stream. One stream, one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Run a command. Closing the stream kills it, unless its output is journalled.
    Exec(ExecRequest),
    /// Follow a journalled exec that is running, as the stream that started it does.
    Attach {
        /// Which exec.
        exec: ExecId,
    },
    /// Which execs are running?
    List,
    /// Send a signal to processes of an exec.
    Signal {
        /// Which exec.
        exec: ExecId,
        /// The signal's number.
        signal: i32,
        /// Which of its processes.
        scope: SignalScope,
    },
    /// Kill the whole process tree of an exec.
    Kill {
        /// Which exec.
        exec: ExecId,
    },
    /// Are you there?
    Ping,
    /// Hold back the output of a held exec while it is far ahead of what [`crate::Kind::Taken`] frames on this stream say. Nothing is
    /// answered unless it is refused; closing the stream ends the waiting.
    Pace {
        /// Which exec.
        exec: ExecId,
        /// Up to where its output was taken before.
        taken: ReadPosition,
    },
    /// Connect to a TCP port on the box's own loopback, and carry bytes between it and this stream. Answered by
    /// [`Event::Connected`]; behind that both directions are raw, and each ends by itself.
    Port {
        /// Which port.
        port: NonZeroU16,
    },
    /// The host is there while this stream is open. A box that had such a stream ends itself when no host is there and one of these
    /// times is over. The last request counts. The only answer is a refusal, as from agents older than this request.
    Lease {
        /// How long the box may be left alone: no stream is open, and nothing runs in it.
        idle_ms: u64,
        /// Time from this request until the box ends, whatever runs in it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left_ms: Option<u64>,
    },
}

/// How far a client has read the output of an exec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadPosition {
    /// Bytes of standard output, or of the terminal.
    pub stdout_bytes: u64,
    /// Bytes of standard error.
    pub stderr_bytes: u64,
}

/// Which processes of an exec a signal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignalScope {
    /// The main process.
    Main,
    /// Every process of its tree.
    Tree,
}

/// The agent's answers on a dialed stream, between raw output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The command was started.
    Started {
        /// Process id inside the box.
        pid: u32,
    },
    /// A journalled command has written this much so far, and all of it that is kept is in the journal's files. Sent
    /// when the totals have grown and the stream has taken everything else, so that a slow client costs nothing.
    Progress {
        /// Bytes of standard output, or of the terminal.
        stdout_bytes: u64,
        /// Bytes of standard error.
        stderr_bytes: u64,
    },
    /// The command ended; all output that it wrote before has been sent, or is in the journal. Last on the stream.
    Exited(ExecOutcome),
    /// The execs that are running, at most [`crate::limits::EXECS_PER_BOX_MAX`]. Last on the stream.
    Running(Vec<RunningExec>),
    /// The request was not carried out. Last on the stream.
    Refused(Refusal),
    /// The request was carried out and has nothing more to say. Last on the stream.
    Done,
    /// The port took the connection. Last on the stream that is framed: what follows is what the service in the box says.
    Connected,
}

/// One exec that is running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningExec {
    /// Which.
    pub id: ExecId,
    /// Process id inside the box.
    pub pid: u32,
    /// Whether it still takes standard input.
    pub stdin_open: bool,
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind of refusal.
    pub code: RefusalCode,
    /// The reason, for a reader.
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
    /// Nothing takes connections on that port of the box.
    PortClosed,
    /// Something failed inside the box that should not have. Codes of newer agents are read as this one; the message says more.
    #[serde(other)]
    Internal,
}

/// The agent's answer to the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The box stands as planned, and this is what was verified from inside.
    Ready(Verified),
    /// A step failed. The box is gone.
    Failed {
        /// Which step, as a stable word.
        step: String,
        /// The reason.
        message: String,
    },
}

/// Facts that the agent verified from inside, after setup and before the first command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Landlock ABI in force; 0 when the kernel has none.
    pub landlock_abi: u32,
    /// What every command inherits was found in place: `no_new_privs`, a bounding set of nothing but `root_capabilities`, and with
    /// none of them a powerless uid 0. Each command checks the rest itself before it starts, and does not start otherwise.
    pub workload_confined: bool,
    /// The capabilities of the box's root.
    pub root_capabilities: Vec<RootCapability>,
    /// Mounts that were found read-only, of those planned to be.
    pub read_only_mounts: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{self, HEADER_BYTES};
    use crate::{Kind, limits};

    #[test]
    fn whatever_was_taken_can_be_told() {
        let taken = ReadPosition { stdout_bytes: u64::MAX, stderr_bytes: u64::MAX };
        let frame = frame::encode(Kind::Taken, &taken).unwrap();
        assert_eq!(frame::decode::<ReadPosition>(Kind::Taken, &frame[HEADER_BYTES..]).unwrap(), taken);
    }

    #[test]
    fn a_list_of_all_execs_fits_into_what_a_box_may_say() {
        let id: ExecId = "x".repeat(limits::ID_BYTES_MAX).parse().unwrap();
        let one = RunningExec { id, pid: u32::MAX, stdin_open: true };
        let event = Event::Running(vec![one; limits::EXECS_PER_BOX_MAX]);
        let frame = frame::encode(Kind::Event, &event).unwrap();
        assert_eq!(frame::decode::<Event>(Kind::Event, &frame[HEADER_BYTES..]).unwrap(), event);
    }
}
