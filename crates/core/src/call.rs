//! What callers ask of a session, and what they are told: commands, managed processes, output.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use box_wire::{ExecId, GuestPath, Invalid, Program, Usage, User, WindowSize};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::session::{OnTimeout, SessionId};
use crate::{BackendName, limits};

/// One command.
#[derive(Debug, Clone)]
pub struct ExecCall {
    /// What to run.
    pub program: Program,
    /// Added to the session's environment.
    pub env: Vec<(String, String)>,
    /// Where to run it; the session's workspace when not given.
    pub workdir: Option<GuestPath>,
    /// Standard input.
    pub stdin: CallStdin,
    /// A terminal of this size instead of three pipes.
    pub terminal: Option<WindowSize>,
    /// Deadline; the session's default when not given, and never more than its profile allows.
    pub timeout_ms: Option<u64>,
    /// What a passed deadline does to the session, when not what the session says.
    pub on_timeout: Option<OnTimeout>,
    /// Most characters of each stream in the result.
    pub output_limit_chars: Option<usize>,
    /// The result carries the first so many bytes of each stream, instead of beginning and end.
    pub output_head_bytes: Option<usize>,
    /// Who runs it, when not the session's own user.
    pub user: Option<User>,
    /// Two calls with one key are one command.
    pub idempotency_key: Option<String>,
    /// When it is over.
    pub span: ExecSpan,
    /// What a door wants to be told again with it, at most [`limits::NOTE_BYTES_MAX`]. Callers do not see it.
    pub note: Option<String>,
}

/// When a command is over, and with it how long it may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExecSpan {
    /// With its main process. Its deadline is the session's when it names none, and ends every process of it.
    #[default]
    Main,
    /// With its output: when its main process has ended and nobody holds its output open, or when a signal ended that process. It
    /// has no deadline but its own, which ends its main process alone. Its output waits for those who follow all of it.
    Output,
}

impl ExecCall {
    /// A command and nothing else.
    pub fn new(program: Program) -> Self {
        Self {
            program,
            env: Vec::new(),
            workdir: None,
            stdin: CallStdin::Empty,
            terminal: None,
            timeout_ms: None,
            on_timeout: None,
            output_limit_chars: None,
            output_head_bytes: None,
            user: None,
            idempotency_key: None,
            span: ExecSpan::Main,
            note: None,
        }
    }
}

/// Where the standard input of a command comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallStdin {
    /// Nowhere.
    Empty,
    /// These bytes, and then it ends. At most [`limits::STDIN_BYTES_MAX`].
    Bytes(Vec<u8>),
    /// [`crate::Service::write_stdin`], until its end is said.
    Stream,
}

/// How a command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecStatus {
    /// It runs.
    Running,
    /// It ended by itself, or by a signal.
    Completed,
    /// Its deadline passed and its whole process tree was killed.
    TimedOut,
    /// Its box was lost before its end was known.
    Lost,
}

/// A command, as callers see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ExecInfo {
    /// Our id for it.
    #[schema(value_type = String)]
    pub exec_id: ExecId,
    /// The session in which it runs.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// Where that session's box lives.
    #[schema(value_type = String, example = "native")]
    pub backend_name: BackendName,
    /// What it runs: its words, or the line for the shell. Cut after a while.
    #[serde(default)]
    pub command: String,
    /// Process id inside the box, once it has started.
    #[serde(default)]
    pub pid: Option<u32>,
    /// How it stands.
    pub status: ExecStatus,
    /// What it returned; nothing while it runs, when its deadline passed, and when a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The kernel killed a process of it because the box was out of memory.
    pub oom_killed: bool,
    /// Its workspace held more than its quota allows: while it ran, and it was killed for that, or when it had ended.
    #[serde(default)]
    pub quota_exceeded: bool,
    /// The deadline that holds for it; nothing where only the life of its session bounds it.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// The limit that keeps the deadline from being longer, where it is reached: requesting more changes nothing.
    #[serde(default)]
    pub timeout_limit: Option<String>,
    /// The same limit, where it made the deadline shorter than requested.
    #[serde(default)]
    pub timeout_cut: Option<String>,
    /// From its start to its end, or until now.
    pub duration_ms: u64,
    /// When it started.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// Bytes that it wrote to standard output, kept or not.
    pub stdout_bytes: u64,
    /// Bytes that it wrote to standard error, kept or not.
    pub stderr_bytes: u64,
    /// What it consumed, once it has ended.
    pub receipt: Option<Receipt>,
}

impl ExecInfo {
    /// A command that starts now.
    pub fn started(exec_id: ExecId, session_id: SessionId, backend_name: BackendName, program: &Program) -> Self {
        let words = match program {
            Program::Shell(line) => line.clone(),
            Program::Argv(_) | Program::FileOp(_) => program.argv().join(" "),
        };
        Self {
            exec_id,
            session_id,
            backend_name,
            command: words.chars().take(limits::COMMAND_SHOWN_CHARS).collect(),
            pid: None,
            status: ExecStatus::Running,
            exit_code: None,
            signal: None,
            oom_killed: false,
            quota_exceeded: false,
            timeout_ms: None,
            timeout_limit: None,
            timeout_cut: None,
            duration_ms: 0,
            started_at: Timestamp::now(),
            ended_at: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            receipt: None,
        }
    }

    /// What a shell would say of how it ended: the code, or 128 and the signal.
    pub fn shell_code(&self) -> Option<i32> {
        self.exit_code.or_else(|| self.signal.map(|signal| 128 + signal))
    }

    /// What LangBot says of a command whose deadline passed.
    pub fn timeout_message(&self) -> String {
        let after = self.timeout_ms.map(|ms| format!(" after {} seconds", Duration::from_millis(ms).as_secs_f64()));
        format!("Command timed out{}.", after.unwrap_or_default())
    }

    /// The message for clients that cannot see [`Self::timeout_limit`], when the deadline passed or was cut.
    pub fn deadline_notice(&self) -> Option<String> {
        let limit = if self.status == ExecStatus::TimedOut { &self.timeout_limit } else { &self.timeout_cut };
        limit.as_ref().map(|limit| format!("The deadline cannot be longer: {limit}."))
    }

    /// The message for clients that cannot see [`Self::oom_killed`]: a process was killed, and why.
    pub fn memory_notice(&self) -> Option<&'static str> {
        self.oom_killed.then_some(MEMORY_NOTICE)
    }
}

/// What clients read that have no field for a lack of memory.
const MEMORY_NOTICE: &str = "Out of memory: a process of the command was killed because the session reached its memory_mb. \
                             Use less memory, or make a session with more.";

/// A command with what a door noted of it.
#[derive(Debug, Clone, PartialEq)]
pub struct NotedExec {
    /// The command.
    pub info: ExecInfo,
    /// What was noted.
    pub note: Arc<str>,
}

/// What a command consumed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Receipt {
    /// Processor time, of every process of it.
    pub cpu_ms: u64,
    /// Peak memory.
    pub memory_peak_bytes: u64,
    /// Read from storage.
    pub io_read_bytes: u64,
    /// Written to storage.
    pub io_write_bytes: u64,
}

impl From<Usage> for Receipt {
    fn from(usage: Usage) -> Self {
        Self {
            cpu_ms: (usage.cpu_user_us + usage.cpu_system_us) / 1000,
            memory_peak_bytes: usage.memory_peak_bytes,
            io_read_bytes: usage.io_read_bytes,
            io_write_bytes: usage.io_write_bytes,
        }
    }
}

/// A command that has ended, with what it said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ExecResult {
    /// The command.
    #[serde(flatten)]
    pub info: ExecInfo,
    /// Standard output, or everything that a terminal showed; head and tail when it is too long.
    pub stdout: String,
    /// Standard error; head and tail when it is too long.
    pub stderr: String,
    /// Whether the middle of standard output was left out.
    pub stdout_truncated: bool,
    /// Whether the middle of standard error was left out.
    pub stderr_truncated: bool,
}

box_wire::checked_text! {
    /// The caller's name for a managed process, unique in its session.
    pub struct ProcessId = check_process_id;
}

impl Default for ProcessId {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

fn check_process_id(text: String) -> Result<String, Invalid> {
    let readable = !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control);
    if readable && text.len() <= limits::PROCESS_ID_BYTES_MAX {
        return Ok(text);
    }
    let allowed = format!("1 to {} bytes of readable text", limits::PROCESS_ID_BYTES_MAX);
    Err(Invalid::new("process_id", text, allowed))
}

/// A process that lives until it is stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessCall {
    /// The caller's name for it.
    pub process_id: ProcessId,
    /// The program, looked up in `PATH` unless it holds a slash.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Added to the session's environment.
    pub env: Vec<(String, String)>,
    /// Where to run it; the session's workspace when not given.
    pub cwd: Option<GuestPath>,
    /// How its program is started.
    #[serde(default)]
    pub launch: Launch,
    /// Bytes of each stream that are kept until somebody reads them, when not as many as of everything else.
    #[serde(default)]
    pub journal_bytes_max: Option<u64>,
    /// What happens when it ends by itself.
    pub restart: RestartPolicy,
    /// What happens when a process of that id runs already.
    pub replace: Replace,
}

/// How the program of a managed process is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Launch {
    /// As it is. A program that does not exist is refused, and so is a directory.
    #[default]
    Directly,
    /// By a login shell, which makes the directory first. A program that does not exist is a process that ends with 127.
    LoginShell,
}

/// What happens when a managed process ends by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// It stays ended.
    #[default]
    Never,
    /// It is started again when it failed.
    OnFailure,
    /// It is started again.
    Always,
}

/// What happens when a process is started under an id that runs already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replace {
    /// It is refused.
    #[default]
    Refuse,
    /// The running one is stopped first.
    Replace,
}

/// How a managed process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProcessStatus {
    /// It runs, or waits to be started again.
    Running,
    /// It has ended.
    Exited,
}

/// A managed process, as callers see it.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct ProcessInfo {
    /// The session in which it runs.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// The caller's name for it.
    #[schema(value_type = String)]
    pub process_id: ProcessId,
    /// How it stands.
    pub status: ProcessStatus,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it runs.
    pub cwd: String,
    /// Names in its environment. Values may be secrets.
    pub env_keys: Vec<String>,
    /// Whether somebody is attached now.
    pub attached: bool,
    /// Process id inside the box, while it runs.
    pub pid: Option<u32>,
    /// When it was last started.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub exited_at: Option<Timestamp>,
    /// What it returned; as a shell would say it when a signal ended it.
    pub exit_code: Option<i32>,
    /// The kernel killed a process of it because the box was out of memory: in the run that ended last.
    pub oom_killed: bool,
    /// How often it was started again.
    pub restarts: u32,
    /// What happens when it ends by itself.
    pub restart: RestartPolicy,
    /// The end of its standard error.
    pub stderr_preview: String,
    /// Where its output stands now: attach from here to see only what is new.
    #[schema(value_type = String)]
    pub cursor: Cursor,
}

impl ProcessInfo {
    /// The message for clients that cannot see [`Self::oom_killed`].
    pub fn memory_notice(&self) -> Option<&'static str> {
        self.oom_killed.then_some(MEMORY_NOTICE)
    }
}

/// A command or a managed process of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// A command, by our id.
    Exec(ExecId),
    /// A managed process, by the caller's.
    Process(ProcessId),
}

/// Which stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StreamName {
    /// Standard output, or everything that a terminal shows.
    Stdout,
    /// Standard error.
    Stderr,
}

impl From<StreamName> for box_wire::StreamName {
    fn from(name: StreamName) -> Self {
        match name {
            StreamName::Stdout => Self::Stdout,
            StreamName::Stderr => Self::Stderr,
        }
    }
}

/// Up to where somebody has read. Written `run.stdout.stderr`; the start is `0.0.0`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Which start of a managed process, from 0. Always 0 for a command.
    pub run: u32,
    /// Bytes of standard output.
    pub stdout: u64,
    /// Bytes of standard error.
    pub stderr: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.run, self.stdout, self.stderr)
    }
}

impl FromStr for Cursor {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let parse = || {
            let mut parts = text.split('.');
            let (run, stdout, stderr) = (parts.next()?, parts.next()?, parts.next()?);
            let cursor = Self { run: run.parse().ok()?, stdout: stdout.parse().ok()?, stderr: stderr.parse().ok()? };
            parts.next().is_none().then_some(cursor)
        };
        parse().ok_or_else(|| Invalid::new("cursor", text, "run.stdout.stderr as three numbers, such as 0.0.0"))
    }
}

impl Serialize for Cursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What somebody who follows a command or process is told, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowEvent {
    /// More output. The cursor is behind it.
    Output {
        /// Which stream.
        stream: StreamName,
        /// What it said. At most [`limits::FOLLOW_BYTES_MAX`].
        bytes: Vec<u8>,
        /// Where to go on.
        cursor: Cursor,
    },
    /// Output that is not kept any more was skipped. The cursor is behind it.
    Gap {
        /// Which stream.
        stream: StreamName,
        /// How much is missing.
        bytes: u64,
        /// Where to go on.
        cursor: Cursor,
    },
    /// A managed process was started again.
    Restarted {
        /// Where to go on: the start of the new run.
        cursor: Cursor,
    },
    /// It has ended, and this was all. Nothing follows.
    Ended {
        /// How it ended.
        info: Box<ExecInfo>,
        /// Where its output ended.
        cursor: Cursor,
    },
}

/// A piece of standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StdinChunk {
    /// Bytes. At most [`limits::STDIN_BYTES_MAX`].
    Bytes(Vec<u8>),
    /// Nothing more will come.
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_survive_being_written() {
        let cursor = Cursor { run: 2, stdout: u64::MAX, stderr: 7 };
        assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        for bad in ["", "1", "1.2", "1.2.3.4", "a.b.c", "-1.0.0", "1.2.99999999999999999999"] {
            assert_eq!(bad.parse::<Cursor>().unwrap_err().field, "cursor", "{bad}");
        }
    }

    #[test]
    fn process_ids_are_readable_text() {
        assert!("default".parse::<ProcessId>().is_ok());
        for bad in ["", " a", "a\n", &"x".repeat(65)] {
            assert!(bad.parse::<ProcessId>().is_err(), "{bad:?}");
        }
    }
}
