//! A Strongbox server for clients in other languages: on a free port, with a directory of its own, ended with the test
//! run.

use crate::run;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running server.
pub(super) struct Server {
    child: Child,
    address: String,
    place: tempfile::TempDir,
}

impl Server {
    /// A directory for a server that is about to be started. Its real path, because boxes may mount what is below.
    pub(super) fn place() -> Result<tempfile::TempDir> {
        let real = std::env::temp_dir().canonicalize()?;
        Ok(tempfile::Builder::new().prefix("sbt-").tempdir_in(real)?)
    }

    /// Starts what the arguments say, in that directory, and waits until it says where it listens.
    pub(super) fn start(
        strongbox: &Path,
        place: tempfile::TempDir,
        arguments: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let log = std::fs::File::create(place.path().join("log"))?;
        let mut command = run::mortal(strongbox);
        command.current_dir(place.path());
        arguments(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().context("starting the server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no standard output")?).read_line(&mut line)?;
        let address = line.split_whitespace().find_map(|word| word.strip_prefix("http://")).map(str::to_owned);
        let Some(address) = address else {
            child.kill()?;
            child.wait()?;
            bail!("the server did not start: {}", log_in(place.path())?);
        };
        Ok(Self { child, address, place })
    }

    /// Its address, with this scheme.
    pub(super) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address)
    }

    /// Its directory, which goes with it.
    pub(super) fn directory(&self) -> &Path {
        self.place.path()
    }

    /// Where it listens.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Ends it with all its boxes, and returns what it logged.
    pub(super) fn stop(mut self) -> Result<String> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        let status = self.child.wait()?;
        let log = log_in(self.place.path())?;
        ensure!(status.success(), "the server ended with {status}: {log}");
        Ok(log)
    }
}

fn log_in(place: &Path) -> Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(place.join("log"))?).into_owned())
}
