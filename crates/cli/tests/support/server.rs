//! A server of the test's own, and the program as its client.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A server with a state of its own, on a free port.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) place: tempfile::TempDir,
    pub(crate) said: Lines<BufReader<ChildStdout>>,
    log: mpsc::Receiver<String>,
}

pub(crate) fn strongbox(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strongbox"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STRONGBOX_")) {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", home).stdin(Stdio::null());
    command
}

impl Server {
    pub(crate) fn start(config: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("config.toml"), config).unwrap();
        Self::start_in(place, "")
    }

    /// Starts a server one thread of which waits forever at a step.
    pub(crate) fn start_hanging_at(step: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("config.toml"), "").unwrap();
        Self::start_in(place, step)
    }

    /// Kills the server, which has no time to say good-bye, and starts another on its state.
    pub(crate) fn killed_and_started_again(mut self) -> Self {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        Self::start_in(std::mem::replace(&mut self.place, elsewhere), "")
    }

    fn start_in(place: tempfile::TempDir, hangs_at: &str) -> Self {
        drop(std::fs::remove_file(place.path().join("notify")));
        let notify = UnixDatagram::bind(place.path().join("notify")).unwrap();
        let mut command = strongbox(place.path());
        command.arg("serve").arg("--config").arg(place.path().join("config.toml"));
        command.arg("--state-dir").arg(place.path().join("state")).args(["--listen=127.0.0.1:0", "--log-format=json"]);
        // Boxes outlive a server; those of a test must not.
        command.arg("--on-stop=destroy-all");
        command.env("NOTIFY_SOCKET", place.path().join("notify")).env("STRONGBOX_FAULT", hangs_at);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let log = gather(child.stderr.take().unwrap());
        let server = Self { child, place, said, log };
        let mut told = [0; 64];
        let count = notify.recv(&mut told).unwrap();
        assert_eq!(&told[..count], b"READY=1");
        server
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.place.path().join("state")
    }

    pub(crate) fn config(&self, text: &str) {
        std::fs::write(self.place.path().join("config.toml"), text).unwrap();
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Reads the log up to a line with these words.
    pub(crate) fn wait_for(&self, words: &str) -> Value {
        loop {
            let line = self.log.recv().unwrap_or_else(|_| panic!("the log ended without {words:?}"));
            if line.contains(words) {
                return serde_json::from_str(&line).unwrap();
            }
        }
    }

    /// Asks the server by its socket.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Output {
        strongbox(self.place.path()).args(arguments).arg("--state-dir").arg(self.state()).output().unwrap()
    }
}

/// Takes the log as it comes, so that a full pipe never holds the server up.
fn gather(stderr: ChildStderr) -> mpsc::Receiver<String> {
    let (lines, log) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // Whoever does not look at the log has dropped it.
            drop(lines.send(line));
        }
    });
    log
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that was killed or stopped before is no longer there to be asked.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.send(Signal::TERM);
        }
        drop(self.child.wait());
    }
}
