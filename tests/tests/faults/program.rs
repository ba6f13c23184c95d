//! The command line program as a child that can be killed.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use box_tests::ground::private_directory;
use box_tests::{Leaks, leaks};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// How long one run of the program may take.
const LIMIT: Duration = Duration::from_secs(40);

/// How long after the next start something may still be on its way out.
const SETTLE: Duration = Duration::from_secs(30);

/// The program under test with a state directory of its own.
pub(crate) struct Program {
    path: PathBuf,
    /// Where it keeps its state.
    pub(crate) state: TempDir,
    /// A directory that may be mounted.
    pub(crate) workspace: TempDir,
    before: Leaks,
}

impl Program {
    /// Finds the program, and lets it make its empty skeleton once, so that only what a killed run left can differ later.
    pub(crate) async fn fresh() -> Result<Self> {
        let path =
            std::env::var_os("STRONGBOX_BIN").context("set STRONGBOX_BIN to the path of the strongbox program")?;
        let (state, workspace) = (private_directory()?, private_directory()?);
        let mut program = Self { path: path.into(), state, workspace, before: Leaks::default() };
        program.succeeds().await.context("a run without a fault")?;
        // The first comparison is with a machine that has had one clean run; that run itself must leave only directories.
        for path in leaks::files(program.state.path()) {
            let full = program.state.path().join(&path);
            let empty_lock = full.metadata().is_ok_and(|data| data.len() == 0);
            let is_kept = leaks::KEPT.iter().any(|kept| path.starts_with(kept));
            ensure!(full.is_dir() || empty_lock || is_kept, "a clean run leaves the file {path}");
        }
        program.before = Leaks::snapshot(program.state.path());
        Ok(program)
    }

    /// `strongbox run OPTIONS -- COMMAND` in this state directory, not started yet.
    pub(crate) fn command(&self, options: &[&str], command: &[&str]) -> Command {
        let mut child = Command::new(&self.path);
        child.arg("run").arg("--state-dir").arg(self.state.path()).args(options).arg("--").args(command);
        child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        child
    }

    /// Runs `true` in a box and holds that it works: the next start.
    pub(crate) async fn succeeds(&self) -> Result<()> {
        let child = self.command(&[], &["true"]).spawn().context("starting the program")?;
        let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await.context("the program hangs")??;
        ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    /// Holds that nothing is left of killed runs after the next start.
    pub(crate) async fn next_start_leaves_nothing(&self) -> Result<()> {
        leaks::remember(self.state.path());
        self.succeeds().await.context("the next start")?;
        self.before.settle(|| Leaks::snapshot(self.state.path()), SETTLE).await.context("after the next start")
    }

    /// The workspace as an option of the program.
    pub(crate) fn mount_option(&self, target: &str) -> Result<String> {
        Ok(format!("{}:{target}:rw", self.workspace.path().canonicalize()?.display()))
    }
}

/// Waits for a child, with a guard against hanging.
pub(crate) async fn wait(child: &mut Child) -> Result<ExitStatus> {
    match tokio::time::timeout(LIMIT, child.wait()).await {
        Ok(status) => Ok(status?),
        Err(_) => bail!("the program hangs"),
    }
}

/// Whether the kernel killed it.
pub(crate) fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}

/// All directories in which the program remembers something.
pub(crate) fn directories(state: &Path) -> Vec<PathBuf> {
    let real = |path: &PathBuf| path.symlink_metadata().is_ok_and(|data| data.is_dir());
    let mut found = Vec::new();
    for place in leaks::places(state) {
        found.extend(leaks::files(&place).into_iter().map(|name| place.join(name)).filter(real));
        found.push(place);
    }
    found
}
