//! What can go wrong, by what the caller can do about it.

use box_wire::{FileError, FrameError, Invalid, Refusal};

use crate::call::ProcessId;
use crate::caller::Scope;
use crate::code::CodeLanguage;
use crate::guarantee::{Dimension, Level};
use crate::mcp::McpError;
use crate::quota::QuotaMoment;
use crate::session::{Difference, SessionId};
use crate::skills::SkillError;
use crate::snapshots::SnapshotError;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value was refused at the edge. Nothing was made.
    #[error(transparent)]
    Invalid(#[from] Invalid),

    /// A host path may not be mounted. Nothing was made.
    #[error("mount of {path} refused: {reason}")]
    MountDenied {
        /// As the caller wrote it.
        path: String,
        /// Which rule, and what would be allowed.
        reason: String,
    },

    /// The image does not exist or is not a usable root file system.
    #[error("image {image} cannot be used: {reason}")]
    BadImage {
        /// As the caller wrote it.
        image: String,
        /// What is wrong with it.
        reason: String,
    },

    /// The machine cannot give what was asked.
    #[error("{what} is not available here: {reason}; {fix}")]
    Unavailable {
        /// What was asked.
        what: String,
        /// Why it cannot be had.
        reason: String,
        /// What would change that.
        fix: String,
    },

    /// The backend of the box lacks an ability. Trying again never helps.
    #[error("{what} is not supported: {reason}; {fix}")]
    Unsupported {
        /// What was asked.
        what: String,
        /// What the backend lacks.
        reason: String,
        /// What to do instead.
        fix: String,
    },

    /// The machine lacks a network or disk facility that the request needs. Trying again helps only after the fix.
    #[error("{what} is not available here: {reason}; {fix}")]
    MissingFacility {
        /// What was asked.
        what: String,
        /// What the machine lacks.
        reason: String,
        /// What to install or set.
        fix: String,
    },

    /// A guarantee that was set as a floor cannot be held. Nothing was made.
    #[error("cannot enforce {dimension} as required: it must be hard and would be {found} here: {reason}")]
    FloorNotHeld {
        /// Which guarantee.
        dimension: Dimension,
        /// What it would have been.
        found: Level,
        /// Why, and what would change it.
        reason: String,
    },

    /// A step of making or changing a box failed; what had been made is gone again.
    #[error("{step} failed: {reason}")]
    Setup {
        /// Which step, as a stable word.
        step: String,
        /// What happened.
        reason: String,
    },

    /// The box does not exist any more.
    #[error("the box is gone: {reason}")]
    Gone {
        /// How that is known.
        reason: String,
    },

    /// There is no session of that id.
    #[error("session {session} not found")]
    SessionNotFound {
        /// As the caller wrote it.
        session: SessionId,
    },

    /// There is no command of that id.
    #[error("session {session} has no exec {exec}; finished ones are remembered for a while only")]
    ExecNotFound {
        /// The session.
        session: SessionId,
        /// As the caller wrote it.
        exec: String,
    },

    /// There is no managed process of that id.
    #[error("session {session} has no managed process with process_id={process}")]
    ProcessNotFound {
        /// The session.
        session: SessionId,
        /// As the caller wrote it.
        process: ProcessId,
    },

    /// The session lacks a code context of that id.
    #[error("session {session} has no code context {context:?}; list its contexts, or name a language instead")]
    CodeContextNotFound {
        /// The session.
        session: SessionId,
        /// As the caller wrote it, shortened.
        context: String,
    },

    /// The box lacks the interpreter of a language.
    #[error("{language} needs {needs} in the box: {reason}; use an image that has it, or install it")]
    InterpreterMissing {
        /// The language.
        language: CodeLanguage,
        /// Which program, from which version on.
        needs: &'static str,
        /// What was found instead.
        reason: String,
    },

    /// Nothing takes connections on that port of the box.
    #[error(
        "port {port} of session {session} is closed: {reason}; start a service in the box that listens on 127.0.0.1 or 0.0.0.0"
    )]
    PortClosed {
        /// The session.
        session: SessionId,
        /// Which port.
        port: u16,
        /// What the box said.
        reason: String,
    },

    /// The tenant has no such volume.
    #[error("volume {volume:?} not found; list the volumes to see their names, or create it first")]
    VolumeNotFound {
        /// As the caller wrote it, shortened.
        volume: String,
    },

    /// There is no tool of that name.
    #[error("there is no tool {tool:?}; known are {known}")]
    ToolNotFound {
        /// As the caller wrote it.
        tool: String,
        /// Those that there are.
        known: String,
    },

    /// The session exists and is something else.
    #[error("session {session} already exists with {}; use another session_id, or delete it first", list(.differences))]
    SessionConflict {
        /// The session.
        session: SessionId,
        /// Every field that differs.
        differences: Vec<Difference>,
    },

    /// What was asked does not fit how things stand.
    #[error("{what}; {fix}")]
    Conflict {
        /// How they stand.
        what: String,
        /// What would change that.
        fix: String,
    },

    /// A managed process of that id runs already, or does not run.
    #[error("managed process {process} in session {session} {what}")]
    ProcessConflict {
        /// The session.
        session: SessionId,
        /// The process.
        process: ProcessId,
        /// How it stands, and what to do.
        what: String,
    },

    /// There is no room for more.
    #[error("{what} capacity reached ({limit}); {fix}")]
    Capacity {
        /// Of what.
        what: String,
        /// How many there may be.
        limit: usize,
        /// What would make room.
        fix: String,
    },

    /// The workspace holds more than it may.
    #[error(
        "workspace quota exceeded {when} execution: it holds at least {used_bytes} bytes of {quota_bytes} and {used_inodes} files \
         of {quota_inodes}; remove files from it, or raise workspace_quota_mb"
    )]
    QuotaExceeded {
        /// When that was found.
        when: QuotaMoment,
        /// Bytes that it holds, or more.
        used_bytes: u64,
        /// Bytes that it may hold.
        quota_bytes: u64,
        /// Files that it holds, or more.
        used_inodes: u64,
        /// Files that it may hold.
        quota_inodes: u64,
    },

    /// The disk of the state directory has no more free than its reserve.
    #[error(
        "the disk of the state directory is full: {free_mb} MiB free, {reserve_mb} MiB reserved; delete sessions, snapshots, volumes or \
         skills, or free space on it"
    )]
    DiskFull {
        /// What is free.
        free_mb: u64,
        /// What only deletions and the audit log may use.
        reserve_mb: u64,
    },

    /// The audit log cannot be written, and nothing is done that it would not hold.
    #[error(
        "the audit log cannot be written: {reason}; nothing runs unrecorded: free space on its disk, or make it writable"
    )]
    Unrecorded {
        /// What the system said.
        reason: String,
    },

    /// The box was made by an older program, whose agent does not support a request.
    #[error("agent too old: the agent of this box does not support {feature}; delete the session and make it again")]
    AgentTooOld {
        /// What it lacks.
        feature: &'static str,
    },

    /// The operator has switched boxes off.
    #[error("strongbox is disabled by its configuration; set enabled = true and start it again")]
    Disabled,

    /// The caller lacks a right.
    #[error("this needs the scope {scope}; use a token that has it")]
    Forbidden {
        /// Which one.
        scope: Scope,
    },

    /// The service is stopping.
    #[error("the service is stopping; try again in a moment")]
    Stopping,

    /// The agent would not carry out a request.
    #[error(transparent)]
    Refused(#[from] Refusal),

    /// What was asked of the files of a box could not be done.
    #[error(transparent)]
    File(#[from] FileError),

    /// A skill cannot be used as it was asked.
    #[error(transparent)]
    Skill(#[from] SkillError),

    /// An MCP server cannot be used as it was asked.
    #[error(transparent)]
    Mcp(#[from] McpError),

    /// A snapshot or template cannot be made, found or used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),

    /// What came out of a box was not our protocol. The stream was dropped.
    #[error("the box broke the protocol: {0}")]
    Protocol(#[from] FrameError),

    /// An operating system call failed.
    #[error("{context}: {source}")]
    Io {
        /// What was being done.
        context: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::MountDenied { .. } => "mount_denied",
            Self::BadImage { .. } => "bad_image",
            Self::Unavailable { .. } | Self::MissingFacility { .. } => "unavailable",
            Self::Unsupported { .. } => "unsupported",
            Self::FloorNotHeld { .. } => "floor_not_held",
            Self::Setup { .. } => "setup_failed",
            Self::Gone { .. } => "box_gone",
            Self::SessionNotFound { .. } => "session_not_found",
            Self::ExecNotFound { .. } => "exec_not_found",
            Self::ProcessNotFound { .. } => "managed_process_not_found",
            Self::CodeContextNotFound { .. } => "code_context_not_found",
            Self::InterpreterMissing { .. } => "interpreter_missing",
            Self::PortClosed { .. } => "port_closed",
            Self::VolumeNotFound { .. } => "volume_not_found",
            Self::ToolNotFound { .. } => "tool_not_found",
            Self::SessionConflict { .. } => "session_conflict",
            Self::Conflict { .. } => "conflict",
            Self::ProcessConflict { .. } => "managed_process_conflict",
            Self::Capacity { .. } => "capacity_exceeded",
            Self::QuotaExceeded { .. } => "quota_exceeded",
            Self::DiskFull { .. } => "disk_full",
            Self::Unrecorded { .. } => "audit_unavailable",
            Self::AgentTooOld { .. } => "agent_too_old",
            Self::Disabled => "disabled",
            Self::Forbidden { .. } => "forbidden",
            Self::Stopping => "stopping",
            Self::Refused(_) => "refused",
            Self::File(error) => error.code.as_str(),
            Self::Skill(error) => error.code(),
            Self::Mcp(error) => error.code(),
            Self::Snapshot(error) => error.code(),
            Self::Protocol(_) => "protocol",
            Self::Io { .. } => "io",
        }
    }

    /// The same error once more, for another who waited for the same thing.
    pub(crate) fn replica(&self) -> Self {
        match self {
            Self::Invalid(invalid) => Self::Invalid(invalid.clone()),
            Self::MountDenied { path, reason } => Self::MountDenied { path: path.clone(), reason: reason.clone() },
            Self::BadImage { image, reason } => Self::BadImage { image: image.clone(), reason: reason.clone() },
            Self::Unavailable { what, reason, fix } => {
                Self::Unavailable { what: what.clone(), reason: reason.clone(), fix: fix.clone() }
            }
            Self::Unsupported { what, reason, fix } => {
                Self::Unsupported { what: what.clone(), reason: reason.clone(), fix: fix.clone() }
            }
            Self::MissingFacility { what, reason, fix } => {
                Self::MissingFacility { what: what.clone(), reason: reason.clone(), fix: fix.clone() }
            }
            Self::FloorNotHeld { dimension, found, reason } => {
                Self::FloorNotHeld { dimension: *dimension, found: *found, reason: reason.clone() }
            }
            Self::Setup { step, reason } => Self::Setup { step: step.clone(), reason: reason.clone() },
            Self::Gone { reason } => Self::Gone { reason: reason.clone() },
            Self::QuotaExceeded { when, used_bytes, quota_bytes, used_inodes, quota_inodes } => Self::QuotaExceeded {
                when: *when,
                used_bytes: *used_bytes,
                quota_bytes: *quota_bytes,
                used_inodes: *used_inodes,
                quota_inodes: *quota_inodes,
            },
            Self::DiskFull { free_mb, reserve_mb } => Self::DiskFull { free_mb: *free_mb, reserve_mb: *reserve_mb },
            Self::Unrecorded { reason } => Self::Unrecorded { reason: reason.clone() },
            Self::AgentTooOld { feature } => Self::AgentTooOld { feature },
            Self::Disabled => Self::Disabled,
            Self::Snapshot(error) => Self::Snapshot(error.clone()),
            Self::Refused(refusal) => Self::Refused(refusal.clone()),
            Self::Protocol(error) => Self::Protocol(error.clone()),
            Self::Io { context, source } => {
                Self::Io { context: context.clone(), source: std::io::Error::new(source.kind(), source.to_string()) }
            }
            // What callers do wrong is told to them at once and is never waited for by others.
            other => Self::Setup { step: other.code().to_owned(), reason: other.to_string() },
        }
    }

    /// Says what was being done when the system refused.
    pub fn io(context: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Io { context: context.into(), source: source.into() }
    }
}

fn list(differences: &[Difference]) -> String {
    let one =
        |difference: &Difference| format!("{}={} (asked: {})", difference.field, difference.existing, difference.asked);
    differences.iter().map(one).collect::<Vec<_>>().join(", ")
}
