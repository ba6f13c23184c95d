//! Runs the program as a caller would.
#![expect(dead_code, reason = "each test program uses another part of this")]

pub(crate) mod server;

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// One call of the program, being put together.
#[derive(Debug, Default)]
pub(crate) struct Strongbox {
    options: Vec<String>,
    input: Option<String>,
    env: Vec<(String, String)>,
    directory: Option<std::path::PathBuf>,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

/// Runs a command line in a box with nothing but defaults.
pub(crate) fn sh(line: &str) -> Ended {
    Strongbox::new().sh(line)
}

impl Strongbox {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub(crate) fn option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    #[must_use]
    pub(crate) fn input(mut self, input: &str) -> Self {
        self.input = Some(input.to_owned());
        self
    }

    pub(crate) fn env(&mut self, name: &str, value: &str) -> &mut Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn current_dir(&mut self, directory: &Path) {
        self.directory = Some(directory.to_owned());
    }

    pub(crate) fn sh(self, line: &str) -> Ended {
        self.run(&["sh", "-c", line])
    }

    /// The call, not yet made.
    pub(crate) fn command(&self, argv: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strongbox"));
        command.arg("run").args(&self.options).arg("--").args(argv);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    /// Makes the call and waits for its end.
    pub(crate) fn run(self, argv: &[&str]) -> Ended {
        let mut command = self.command(argv);
        command.stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let feeder = child.stdin.take().zip(self.input).map(|(mut stdin, input)| {
            // The command may end without having read everything.
            std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())))
        });
        let output = child.wait_with_output().unwrap();
        if let Some(feeder) = feeder {
            feeder.join().unwrap();
        }
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// A directory that may be mounted.
pub(crate) fn workspace() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Whether a box here has more users than one.
pub(crate) fn has_sub_ids() -> bool {
    let findings = box_host::doctor::findings();
    findings.iter().any(|finding| finding.name == "sub_ids" && finding.state == box_core::backend::FindingState::Good)
}

/// An argument that only this run of a test gives to its command, and which `sleep` takes.
pub(crate) fn marker() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}.{}", 4711 + COUNT.fetch_add(1, Ordering::Relaxed), std::process::id())
}

/// Waits until no process of this machine has `marker` among its arguments.
pub(crate) fn is_gone(marker: &str) -> bool {
    within_seconds(|| !is_running(marker))
}

/// Waits until a process of this machine has `marker` among its arguments.
pub(crate) fn appears(marker: &str) -> bool {
    within_seconds(|| is_running(marker))
}

/// Whether it becomes true. The wait is for a busy machine; nothing here takes that long.
fn within_seconds(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Whether a process of this machine has `marker` among its arguments.
fn is_running(marker: &str) -> bool {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let has = |arguments: Vec<u8>| arguments.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes());
    entries.map(|entry| entry.path().join("cmdline")).filter_map(|file| std::fs::read(file).ok()).any(has)
}
