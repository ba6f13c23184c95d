//! Environments of Python with packages of their own, in the user's cache: a fresh clone finds them there.

use crate::{machine, run};
use anyhow::{Context, Result, ensure};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Installing is downloading; longer than this is a network that hangs.
const INSTALL_TIME_MAX: Duration = Duration::from_mins(15);

/// An environment, and what it must hold.
pub(crate) struct Environment {
    place: PathBuf,
    packages: Vec<String>,
}

impl Environment {
    /// An environment of this name. One with other packages has another place, so that checkouts do not disturb each other.
    pub(crate) fn new(name: &str, packages: &[&str]) -> Self {
        let mut hasher = std::hash::DefaultHasher::new();
        packages.hash(&mut hasher);
        let place = machine::cache().join(format!("{name}-{:08x}", hasher.finish() & 0xffff_ffff));
        Self { place, packages: packages.iter().map(ToString::to_string).collect() }
    }

    /// Where it is.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// A program in it.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.place.join("bin").join(name)
    }

    /// What it must hold, as pip takes it.
    pub(crate) fn packages(&self) -> String {
        self.packages.join(" ")
    }

    /// Makes it, unless it is there with exactly these packages.
    pub(crate) fn ensure(&self) -> Result<()> {
        let cache = self.place.parent().context("an environment without a directory")?;
        std::fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
        // Stages, and runs in other checkouts, may want the same one at the same time.
        let lock = std::fs::File::create(self.place.with_extension("lock"))?;
        lock.lock()?;
        if self.is_there() { Ok(()) } else { self.install() }
    }

    /// Whether it was made to its end.
    pub(crate) fn is_there(&self) -> bool {
        std::fs::read_to_string(self.mark()).is_ok_and(|text| text == self.packages())
    }

    /// Written last: an installation that was interrupted does not have it.
    fn mark(&self) -> PathBuf {
        self.place.join("installed")
    }

    fn install(&self) -> Result<()> {
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&self.place);
        succeed(make).context("python3 -m venv (package python3-venv)")?;
        let mut fetch = Command::new(self.program("pip"));
        fetch.args(["install", "--quiet", "--disable-pip-version-check"]).args(&self.packages);
        succeed(fetch)?;
        Ok(std::fs::write(self.mark(), self.packages())?)
    }
}

/// Runs a program to its end, with a limit; the last line that it said is the reason of a failure.
pub(crate) fn succeed(mut command: Command) -> Result<()> {
    command.stdin(Stdio::null());
    let mut last = String::from("failed silently");
    let finished = run::streamed(command, INSTALL_TIME_MAX, |line| {
        if !line.trim().is_empty() {
            line.clone_into(&mut last);
        }
    })?;
    ensure!(finished.ending.is_success(), "{last}");
    Ok(())
}
