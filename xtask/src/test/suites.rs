//! Running the suites: as root, and as an ordinary user.
//!
//! They prove the native backend, so they may never be skipped: with root at hand, a suite that cannot run has failed.

use super::delegation::Delegation;
use super::rootless::{self, TestUser};
use super::{Proof, Verdict};
use crate::run::Ending;
use crate::{cargo, machine};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A suite that takes longer hangs.
const SUITE_TIME_MAX: Duration = Duration::from_mins(20);

/// Runs a suite as root, from where it was built.
pub(super) fn as_root(proof: &mut Proof, suite: &str) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; run `sudo cargo xtask test` for this half".into()));
    }
    let reports = report_directory(proof, &format!("{suite}-root"))?;
    in_place(proof, suite, &reports)
}

/// Runs a suite as an ordinary user: as the caller, or as our test user when the caller is root.
pub(super) fn rootless(proof: &mut Proof, suite: &str) -> Result<Verdict> {
    let reports = report_directory(proof, &format!("{suite}-rootless"))?;
    if machine::is_root() { as_test_user(proof, suite, &reports) } else { in_place(proof, suite, &reports) }
}

/// Runs a suite as our test user, with cgroups that root has handed to it.
pub(super) fn delegated(proof: &mut Proof, suite: &str) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; run `sudo cargo xtask test` for this part".into()));
    }
    let reports = report_directory(proof, &format!("{suite}-delegated"))?;
    let user = TestUser::ensure()?;
    let Some(delegation) = Delegation::make(&user)? else {
        return Ok(Verdict::Skipped(
            "cgroups are not laid out in the hybrid way; the vm stage covers the other".into(),
        ));
    };
    let artefacts = proof.artefacts()?;
    let executable = artefacts.suites.get(suite).with_context(|| format!("{suite} was not built"))?;
    let stage = rootless::Staging::new(&user, executable, &artefacts.strongbox)?;
    let ending = proof.stream(delegation.enter(&stage.command(&user)), SUITE_TIME_MAX)?;
    stage.collect_reports(&reports)?;
    Ok(judge(proof, ending))
}

fn in_place(proof: &mut Proof, suite: &str, reports: &Path) -> Result<Verdict> {
    let artefacts = proof.artefacts()?;
    let executable = artefacts.suites.get(suite).with_context(|| format!("{suite} was not built"))?;
    // The suite dies with us: it has a process group of its own, which an interrupt at the terminal does not reach.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(executable);
    command.env("STRONGBOX_BIN", &artefacts.strongbox).env("STRONGBOX_REPORT_DIR", reports).current_dir(&proof.root);
    cargo::without_cargo_traces(&mut command);
    let ending = proof.stream(command, SUITE_TIME_MAX)?;
    Ok(judge(proof, ending))
}

fn as_test_user(proof: &mut Proof, suite: &str, reports: &Path) -> Result<Verdict> {
    let artefacts = proof.artefacts()?;
    let executable = artefacts.suites.get(suite).with_context(|| format!("{suite} was not built"))?;
    let user = TestUser::ensure()?;
    let stage = rootless::Staging::new(&user, executable, &artefacts.strongbox)?;
    let ending = proof.stream(stage.command(&user), SUITE_TIME_MAX)?;
    stage.collect_reports(reports)?;
    Ok(judge(proof, ending))
}

/// An exit code alone proves nothing: the suite must have said that cases passed and that none failed.
fn judge(proof: &Proof, ending: Ending) -> Verdict {
    let tally = &proof.tally;
    if tally.results_seen == 0 {
        return Verdict::Failed(format!("no `suite-result:` line; {ending}"));
    }
    if tally.failed > 0 || !ending.is_success() {
        return Verdict::Failed(format!("{} cases failed; {ending}", tally.failed));
    }
    if tally.passed == 0 {
        return Verdict::Failed("not one case ran".into());
    }
    Verdict::Passed
}

/// An empty directory for the tables that a suite writes.
fn report_directory(proof: &Proof, stage: &str) -> Result<PathBuf> {
    let directory = proof.target.join("reports").join(stage);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).with_context(|| format!("cannot empty {}", directory.display()))?;
    }
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}
