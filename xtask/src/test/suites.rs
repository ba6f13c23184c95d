//! Running the suites: as root, as an ordinary user, and among engines.
//!
//! They prove the native backend, so they may never be skipped: with root at hand, a suite that cannot run has failed. Only what
//! engines do can be missing where there are none.

use super::delegation::Delegation;
use super::rootless::{self, TestUser};
use super::{Proof, Verdict};
use crate::engines::Engines;
use crate::run::Ending;
use crate::{cargo, machine};
use anyhow::{Context, Result};
use cargo_metadata::TargetKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Cases of a suite that are run once more when they failed. More than these are no accident.
const SECOND_TRIES_MAX: usize = 3;

/// The suite in which a case that fails once has failed: whoever attacks needs to succeed only once.
const WITHOUT_SECOND_TRY: &str = "security";

/// A suite that takes longer hangs.
const SUITE_TIME_MAX: Duration = Duration::from_mins(20);

/// The same for one that runs on every backend. Engines take a third of a second for each box.
const ENGINES_TIME_MAX: Duration = Duration::from_mins(40);

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

/// Runs a suite as root on these backends, among engines that were started for it, and shows its table of cases by backends. An
/// engine that is not there costs its cases, which are skipped with the reason.
pub(super) fn among_engines(proof: &mut Proof, suite: &str, backends: &[&str]) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; engines of our own need it".into()));
    }
    let reports = report_directory(proof, &format!("{suite}-engines"))?;
    let artefacts = proof.artefacts()?;
    let executable = artefacts.suites.get(suite).with_context(|| format!("{suite} was not built"))?.clone();
    let engines = match proof.engines() {
        Ok(engines) => engines,
        Err(error) => return Ok(Verdict::Skipped(format!("no engines: {error:#}"))),
    };
    for reason in engines.missing() {
        proof.skip(reason.clone());
    }
    let root = proof.root.clone();
    let verdict = run(proof, suite, ENGINES_TIME_MAX, |cases| {
        let mut command = plain(&executable, &artefacts.strongbox, &reports, &root);
        command.args(backends.iter().flat_map(|name| ["--backend", *name])).args(cases);
        engines.enter(&command)
    });
    if let Ok(table) = std::fs::read_to_string(reports.join(format!("{suite}-by-backend-root.md"))) {
        println!("{table}");
    }
    verdict
}

/// The variable that asks for the suites on the backend `e2b`, each of whose commands passes two servers.
const ON_E2B: &str = "STRONGBOX_TEST_ON_E2B";

/// Runs a suite as root on the backend `e2b`, whose provider is a server of ours that the suite starts.
pub(super) fn on_e2b(proof: &mut Proof, suite: &str) -> Result<Verdict> {
    if std::env::var_os(ON_E2B).is_none() {
        return Ok(Verdict::Skipped(format!("it takes ten minutes; set {ON_E2B}=1 for it")));
    }
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; run `sudo cargo xtask test` for this part".into()));
    }
    let reports = report_directory(proof, &format!("{suite}-e2b"))?;
    let artefacts = proof.artefacts()?;
    let executable = artefacts.suites.get(suite).with_context(|| format!("{suite} was not built"))?.clone();
    let root = proof.root.clone();
    run(proof, suite, ENGINES_TIME_MAX, |cases| {
        let mut command = plain(&executable, &artefacts.strongbox, &reports, &root);
        command.args(["--backend", "e2b"]).args(cases).env("STRONGBOX_TEST_E2B", "own");
        command
    })
}

/// Runs the tests of crates that do nothing without engines, as root and among those that were started.
pub(super) fn crates_among_engines(proof: &mut Proof) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; engines of our own need it".into()));
    }
    let arguments = ["test", "--package", "box-docker", "--package", "box-nsjail", "--no-run"];
    let built = cargo::executables(&proof.root, &arguments, &TargetKind::Test)?;
    let engines = match proof.engines() {
        Ok(engines) => engines,
        Err(error) => return Ok(Verdict::Skipped(format!("no engines: {error:#}"))),
    };
    for reason in engines.missing() {
        proof.skip(reason.clone());
    }
    let mut verdict = Verdict::Failed("not one test program was built".into());
    for executable in built.values() {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(executable).arg("--test-threads=2").current_dir(&proof.root);
        cargo::without_cargo_traces(&mut command);
        let ending = proof.stream(engines.enter(&command), ENGINES_TIME_MAX)?;
        verdict = judge(proof, ending);
        if verdict != Verdict::Passed {
            break;
        }
    }
    Ok(verdict)
}

/// Runs a suite as our test user, on a Podman that is the user's own.
pub(super) fn rootless_podman(proof: &mut Proof, suite: &str) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; engines of our own need it".into()));
    }
    let reports = report_directory(proof, &format!("{suite}-podman-rootless"))?;
    let user = TestUser::ensure()?;
    let artefacts = proof.artefacts()?;
    let executable = artefacts.suites.get(suite).with_context(|| format!("{suite} was not built"))?;
    let stage = rootless::Staging::new(&user, executable, &artefacts.strongbox)?;
    let engines = Engines::start_as(&proof.target, &user.account())?;
    for reason in engines.missing() {
        proof.skip(reason.clone());
    }
    let verdict = run(proof, suite, ENGINES_TIME_MAX, |cases| {
        let mut command = stage.command(&user);
        command.args(["--backend", "podman"]).args(cases);
        engines.enter_without_ours(&command)
    });
    engines.stop()?;
    stage.collect_reports(&reports)?;
    verdict
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
    let verdict = run(proof, suite, SUITE_TIME_MAX, |cases| {
        let mut command = stage.command(&user);
        command.args(cases);
        delegation.enter(&command)
    });
    stage.collect_reports(&reports)?;
    verdict
}

fn in_place(proof: &mut Proof, suite: &str, reports: &Path) -> Result<Verdict> {
    let artefacts = proof.artefacts()?;
    let executable = artefacts.suites.get(suite).with_context(|| format!("{suite} was not built"))?;
    let root = proof.root.clone();
    run(proof, suite, SUITE_TIME_MAX, |cases| {
        let mut command = plain(executable, &artefacts.strongbox, reports, &root);
        command.args(cases);
        command
    })
}

/// A suite where it was built. It dies with us: it has a process group of its own, which an interrupt at the terminal does not reach.
fn plain(executable: &Path, strongbox: &Path, reports: &Path, root: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(executable);
    command.env("STRONGBOX_BIN", strongbox).env("STRONGBOX_REPORT_DIR", reports).current_dir(root);
    cargo::without_cargo_traces(&mut command);
    command
}

fn as_test_user(proof: &mut Proof, suite: &str, reports: &Path) -> Result<Verdict> {
    let artefacts = proof.artefacts()?;
    let executable = artefacts.suites.get(suite).with_context(|| format!("{suite} was not built"))?;
    let user = TestUser::ensure()?;
    let stage = rootless::Staging::new(&user, executable, &artefacts.strongbox)?;
    let verdict = run(proof, suite, SUITE_TIME_MAX, |cases| {
        let mut command = stage.command(&user);
        command.args(cases);
        command
    });
    stage.collect_reports(reports)?;
    verdict
}

/// Runs a suite, and what failed of it once more. A machine that stood still for a second fails a case now and then, and so does
/// a race of ours: what passes only then is named in the report.
fn run(proof: &mut Proof, suite: &str, time_max: Duration, command: impl Fn(&[String]) -> Command) -> Result<Verdict> {
    let ending = proof.stream(command(&[]), time_max)?;
    let verdict = judge(proof, ending);
    let failed = proof.tally.failed_cases();
    let is_worth_it = (1..=SECOND_TRIES_MAX).contains(&failed.len()) && failed.len() as u64 == proof.tally.failed;
    if suite == WITHOUT_SECOND_TRY || !is_worth_it {
        return Ok(verdict);
    }
    let first = std::mem::take(&mut proof.tally);
    let ending = proof.stream(command(&failed), time_max)?;
    let again = judge(proof, ending);
    let all_ran = proof.tally.passed >= failed.len() as u64;
    let has_passed = again == Verdict::Passed && all_ran;
    proof.tally = if has_passed { first.forgiven() } else { first };
    Ok(if has_passed { Verdict::Passed } else { verdict })
}

/// An exit code alone proves nothing: the suite must have said that cases passed and that none failed.
pub(super) fn judge(proof: &Proof, ending: Ending) -> Verdict {
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
