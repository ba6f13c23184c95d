//! One command in a box: the request and the result.

use serde::{Deserialize, Serialize};

use crate::{ExecId, FileRequest, GuestPath, Invalid, limits};

/// One command to run in a box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// Names the exec within its box; no two may run at once under one id.
    pub id: ExecId,
    /// The program.
    pub program: Program,
    /// The whole environment, in order. Nothing is inherited.
    pub env: Vec<(String, String)>,
    /// Its working directory. Resolved inside the box, as the workload, when the command starts.
    pub cwd: GuestPath,
    /// Whether standard input is empty or streamed.
    pub stdin: Stdin,
    /// A terminal of this size instead of three pipes.
    pub terminal: Option<WindowSize>,
    /// The whole process tree is killed after this time.
    pub timeout_ms: Option<u64>,
    /// Its user, if not the box's own workload user.
    pub user: Option<User>,
    /// Where its output goes, and whether it outlives its caller.
    pub output: Output,
}

/// The program of an exec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// A program, looked up in `PATH` unless it holds a slash, and its arguments.
    Argv(Vec<String>),
    /// A command line for `/bin/sh -c`.
    Shell(String),
    /// Nothing that is executed: the agent does this itself.
    FileOp(Box<FileRequest>),
}

/// The source of standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdin {
    /// `/dev/null`.
    Null,
    /// [`crate::Kind::Stdin`] frames, until [`crate::Kind::StdinEnd`].
    Stream,
}

/// Where the output of an exec goes, and with it how long the exec may live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// To the stream that asked for the exec, as it comes. Closing that stream kills the whole tree.
    Stream,
    /// Into files of the box's journal, with or without a client. Closing a stream only detaches it.
    Journal {
        /// Most bytes that are kept of each of the two streams: the beginning and the end, with a gap between them.
        bytes_max: u64,
    },
    /// The same, for a command that counts as running until its output is closed. It ends when its main process has
    /// ended and no process holds its output open, or at once when a signal ended that process. Its deadline applies to
    /// the main process alone; background processes live on until the box ends. Output waits for clients that pace it
    /// ([`crate::Request::Pace`]).
    Held {
        /// Most bytes that are kept of each of the two streams, as of a journalled one.
        bytes_max: u64,
    },
}

/// A user id and group id inside the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// User id inside the box.
    pub uid: u32,
    /// Group id inside the box.
    pub gid: u32,
}

impl User {
    /// Root of the box's own user namespace. It has capabilities only where the box was made so, and only over what is the box's own.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };
}

/// The size of a terminal in character cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// How an exec ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOutcome {
    /// How the main process ended.
    pub exit: Exit,
    /// The deadline passed and the whole tree was killed.
    pub timed_out: bool,
    /// The kernel killed a process of this exec because the box was out of memory.
    pub oom_killed: bool,
    /// After a kill: every process of the tree is known to be gone.
    pub tree_gone: bool,
    /// Its resource usage.
    pub usage: Usage,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// The resource usage of an exec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// From the start of the main process to its end.
    pub wall_us: u64,
    /// Processor time in user mode.
    pub cpu_user_us: u64,
    /// Processor time in the kernel.
    pub cpu_system_us: u64,
    /// Peak memory. Of the exec if its cgroup reports it, otherwise of its largest process.
    pub memory_peak_bytes: u64,
    /// Read from storage by the main process and the children it waited for.
    pub io_read_bytes: u64,
    /// Written to storage by the same.
    pub io_write_bytes: u64,
}

impl ExecRequest {
    /// A command with an empty environment, empty standard input and no deadline, in `/`.
    pub fn new(id: ExecId, program: Program) -> Self {
        Self {
            id,
            program,
            env: Vec::new(),
            cwd: GuestPath::root(),
            stdin: Stdin::Null,
            terminal: None,
            timeout_ms: None,
            user: None,
            output: Output::Stream,
        }
    }

    /// Checks every size and character before anything is started.
    pub fn validate(&self) -> Result<(), Invalid> {
        let mut bytes = self.program.validate()?;
        if self.env.len() > limits::ENVIRONMENT_ENTRIES_MAX {
            let allowed = format!("at most {} entries", limits::ENVIRONMENT_ENTRIES_MAX);
            return Err(Invalid::new("env", self.env.len(), allowed));
        }
        for (name, value) in &self.env {
            check_env(name, value)?;
            bytes += name.len() + value.len() + 2;
        }
        let id = |user: User| user.uid.max(user.gid);
        if let Some(user) = self.user.filter(|user| id(*user) > limits::GUEST_ID_MAX) {
            return Err(Invalid::new("user", id(user), format!("ids from 0 to {}", limits::GUEST_ID_MAX)));
        }
        if bytes > limits::COMMAND_BYTES_MAX {
            let allowed = format!("command and env of at most {} bytes together", limits::COMMAND_BYTES_MAX);
            return Err(Invalid::new("command", bytes, allowed));
        }
        self.output.validate()?;
        match self.timeout_ms {
            Some(ms) if ms == 0 || ms > limits::TIMEOUT_MS_MAX => {
                let allowed = format!("more than 0 and at most {} ms", limits::TIMEOUT_MS_MAX);
                Err(Invalid::new("timeout", ms, allowed))
            }
            _ => self.terminal.map_or(Ok(()), WindowSize::validate),
        }
    }
}

impl Output {
    /// A journal with the usual bound.
    pub const JOURNAL: Self = Self::Journal { bytes_max: limits::JOURNAL_BYTES_DEFAULT };

    fn validate(self) -> Result<(), Invalid> {
        let range = limits::JOURNAL_BYTES_MIN..=limits::JOURNAL_BYTES_MAX;
        match self {
            Self::Journal { bytes_max } | Self::Held { bytes_max } if !range.contains(&bytes_max) => {
                Err(Invalid::new("output", bytes_max, format!("from {} to {} bytes", range.start(), range.end())))
            }
            _ => Ok(()),
        }
    }
}

impl Program {
    /// The argument vector that is really executed.
    pub fn argv(&self) -> Vec<&str> {
        match self {
            Self::Argv(argv) => argv.iter().map(String::as_str).collect(),
            Self::Shell(line) => vec!["/bin/sh", "-c", line],
            Self::FileOp(_) => vec!["strongbox-file-op"],
        }
    }

    fn validate(&self) -> Result<usize, Invalid> {
        if let Self::FileOp(request) = self {
            return request.validate().map(|()| 0);
        }
        let argv = self.argv();
        if argv.first().is_none_or(|program| program.is_empty()) {
            return Err(Invalid::new("command", "", "a program to run"));
        }
        if argv.len() > limits::ARGUMENTS_MAX {
            let allowed = format!("at most {} arguments", limits::ARGUMENTS_MAX);
            return Err(Invalid::new("command", argv.len(), allowed));
        }
        let mut bytes = 0;
        for argument in argv {
            if argument.contains('\0') {
                return Err(Invalid::new("command", argument, "no NUL characters"));
            }
            if argument.len() > limits::ARGUMENT_BYTES_MAX {
                let allowed = format!(
                    "arguments of at most {} bytes; send larger input by stdin or a file",
                    limits::ARGUMENT_BYTES_MAX
                );
                return Err(Invalid::new("command", argument.len(), allowed));
            }
            bytes += argument.len() + 1;
        }
        Ok(bytes)
    }
}

impl WindowSize {
    /// Checks that both sides are between 1 and [`limits::WINDOW_CELLS_MAX`].
    pub fn validate(self) -> Result<(), Invalid> {
        let fits = |cells| (1..=limits::WINDOW_CELLS_MAX).contains(&cells);
        if fits(self.rows) && fits(self.columns) {
            return Ok(());
        }
        Err(Invalid::new("terminal", self, "rows and columns from 1 to 4096"))
    }
}

/// Checks one environment entry: a portable name and a value that `execve` takes.
pub fn check_env(name: &str, value: &str) -> Result<(), Invalid> {
    let head = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let tail = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !head || !tail || name.len() > limits::ENVIRONMENT_NAME_BYTES_MAX {
        return Err(Invalid::new("env", name, "names of letters, digits and _, not starting with a digit"));
    }
    if value.contains('\0') {
        return Err(Invalid::new("env", name, "values without NUL characters"));
    }
    if name.len() + value.len() + 1 > limits::ARGUMENT_BYTES_MAX {
        let allowed = format!("entries of at most {} bytes", limits::ARGUMENT_BYTES_MAX);
        return Err(Invalid::new("env", name, allowed));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> ExecRequest {
        ExecRequest::new("x".parse().unwrap(), Program::Shell(line.to_owned()))
    }

    #[test]
    fn sizes_and_characters_are_checked_before_anything_starts() {
        assert!(shell("true").validate().is_ok());
        assert!(shell(&"a".repeat(limits::ARGUMENT_BYTES_MAX)).validate().is_ok());
        assert!(shell(&"a".repeat(limits::ARGUMENT_BYTES_MAX + 1)).validate().is_err());
        assert!(shell("a\0b").validate().is_err());
        let argv = |argv: Vec<String>| ExecRequest { program: Program::Argv(argv), ..shell("") };
        assert!(argv(vec![]).validate().is_err());
        assert!(argv(vec![String::new()]).validate().is_err());
        assert!(argv(vec!["a".into(); limits::ARGUMENTS_MAX + 1]).validate().is_err());
        assert!(argv(vec!["a".repeat(100_000); 20]).validate().is_err(), "all together");
    }

    #[test]
    fn environment_names_follow_the_grammar() {
        for bad in ["", "1A", "A=B", "A B", "Ä", "A\0"] {
            assert_eq!(check_env(bad, "x").unwrap_err().field, "env", "{bad:?}");
        }
        assert!(check_env("_A1", "any = \n thing").is_ok());
        assert!(check_env("A", "a\0b").is_err());
        assert!(check_env("A", &"v".repeat(limits::ARGUMENT_BYTES_MAX)).is_err());
    }

    #[test]
    fn nobody_can_ask_to_be_the_agent() {
        for user in [User { uid: 65535, gid: 0 }, User { uid: 0, gid: 65535 }, User { uid: u32::MAX, gid: 0 }] {
            let request = ExecRequest { user: Some(user), ..shell("true") };
            assert_eq!(request.validate().unwrap_err().field, "user");
        }
    }

    #[test]
    fn the_bound_of_a_journal_is_bounded() {
        let with = |output| ExecRequest { output, ..shell("true") }.validate();
        for make in [|bytes_max| Output::Journal { bytes_max }, |bytes_max| Output::Held { bytes_max }] {
            for good in [limits::JOURNAL_BYTES_MIN, limits::JOURNAL_BYTES_DEFAULT, limits::JOURNAL_BYTES_MAX] {
                assert!(with(make(good)).is_ok());
            }
            for bad in [0, limits::JOURNAL_BYTES_MIN - 1, limits::JOURNAL_BYTES_MAX + 1, u64::MAX] {
                assert_eq!(with(make(bad)).unwrap_err().field, "output");
            }
        }
    }

    #[test]
    fn deadlines_are_positive_and_bounded() {
        for bad in [0, limits::TIMEOUT_MS_MAX + 1, u64::MAX] {
            let request = ExecRequest { timeout_ms: Some(bad), ..shell("true") };
            assert_eq!(request.validate().unwrap_err().field, "timeout");
        }
    }
}
