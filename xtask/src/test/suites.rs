//! Running the suites: as root, as an ordinary user, and among engines.
//!
//! They prove the native backend, so they may never be skipped: with root at hand, a suite that cannot run has failed. Only what
//! engines do can be missing where there are none.

use super::cell::Cell;
use super::delegation::Delegation;
use super::rootless::{self, TestUser};
use super::{Proof, Verdict};
use crate::engines::{Engine, Engines};
use crate::run::{Ending, mortal};
use crate::{cargo, machine};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

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
    let verdict = in_place(proof, suite, &reports)?;
    let skipped = proof.tally.skip_reasons.iter().find(|skip| !NOT_NATIVE.iter().any(|case| skip.starts_with(case)));
    Ok(match (verdict, skipped) {
        (Verdict::Passed, Some(skip)) => Verdict::Failed(format!("a native case was skipped as root: {skip}")),
        (verdict, _) => verdict,
    })
}

/// What may be skipped as root: cases that mean nothing on the native backend, and one that would fill the machine.
const NOT_NATIVE: &[&str] = &[
    "contract/native/where_no_box_can_be_saved_that_is_said: ",
    "restart/killed_at/disk_made: ",
    "doors/corpus/BK-03: ",
    "doors/corpus/BK-07: ",
    "doors/corpus/BK-09: ",
    "doors/corpus/API-18: ",
];

/// Runs a suite as an ordinary user: as the caller, or as our test user when the caller is root.
pub(super) fn rootless(proof: &mut Proof, suite: &str) -> Result<Verdict> {
    let reports = report_directory(proof, &format!("{suite}-rootless"))?;
    if machine::is_root() { as_test_user(proof, suite, &reports) } else { in_place(proof, suite, &reports) }
}

/// Runs a suite as root on these backends at the same time, each among engines of its own. An engine that is not there costs its
/// cases, which are skipped with the reason.
pub(super) fn among_engines(proof: &mut Proof, suite: &str, backends: &[&str]) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; engines of our own need it".into()));
    }
    let reports = report_directory(proof, &format!("{suite}-engines"))?;
    let artefacts = proof.artefacts()?;
    let executable = artefacts.suite(suite)?;
    let (mut engines, mut commands) = (Vec::new(), Vec::new());
    for backend in backends {
        let wanted: &[Engine] = match *backend {
            "docker" => &[Engine::Docker],
            "podman" => &[Engine::Podman],
            _ => &[],
        };
        let one = match start_engines(proof, wanted) {
            Ok(one) => one,
            Err(skipped) => return Ok(skipped),
        };
        let reports = reports.join(backend);
        std::fs::create_dir(&reports)?;
        let mut command = mortal(&executable);
        command.args(["--backend", backend]);
        in_place_environment(&mut command, &artefacts.strongbox, &reports, &proof.root);
        commands.push(one.enter(&command));
        engines.push(one);
    }
    let verdict = run(proof, ENGINES_TIME_MAX, commands);
    engines.into_iter().try_for_each(Engines::stop)?;
    verdict
}

/// Starts engines for a stage, or says why the stage is skipped. What is missing is reported once, however many engines miss it.
fn start_engines(proof: &mut Proof, wanted: &[Engine]) -> Result<Engines, Verdict> {
    let engines = Engines::start(&proof.target, wanted);
    let engines = engines.map_err(|error| Verdict::Skipped(format!("no engines: {error:#}")))?;
    for reason in engines.missing() {
        if !proof.tally.skip_reasons.contains(reason) {
            proof.skip(reason.clone());
        }
    }
    Ok(engines)
}

/// Runs a suite as root on the backend `e2b`, whose provider is a Strongbox server that the suite starts.
pub(super) fn on_e2b(proof: &mut Proof, suite: &str) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; run `sudo cargo xtask test` for this part".into()));
    }
    let reports = report_directory(proof, &format!("{suite}-e2b"))?;
    let artefacts = proof.artefacts()?;
    let executable = artefacts.suite(suite)?;
    let root = proof.root.clone();
    run_shards(proof, ENGINES_TIME_MAX, |cell| {
        let mut command = cell.command(&executable);
        in_place_environment(&mut command, &artefacts.strongbox, &reports, &root);
        command.args(["--backend", "e2b"]).env("STRONGBOX_TEST_E2B", "own");
        command
    })
}

/// Runs the tests of crates that do nothing without engines, as root and among those that were started.
pub(super) fn crates_among_engines(proof: &mut Proof) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; engines of our own need it".into()));
    }
    let built = proof.artefacts()?.engine_tests;
    let engines = match start_engines(proof, &Engine::ALL) {
        Ok(engines) => engines,
        Err(skipped) => return Ok(skipped),
    };
    let command = |executable: &PathBuf| {
        let mut command = mortal(executable);
        // What a passed test says is shown: it may say that it was skipped.
        command.args(["--test-threads=2", "--show-output"]);
        command.current_dir(&proof.root);
        cargo::without_cargo_traces(&mut command);
        engines.enter(&command)
    };
    let commands = built.iter().map(command).collect();
    let verdict = run(proof, ENGINES_TIME_MAX, commands);
    engines.stop()?;
    verdict
}

/// Runs a suite as our test user, on a Podman that is the user's own.
pub(super) fn rootless_podman(proof: &mut Proof, suite: &str) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped("not root; engines of our own need it".into()));
    }
    let reports = report_directory(proof, &format!("{suite}-podman-rootless"))?;
    let user = TestUser::ensure()?;
    let artefacts = proof.artefacts()?;
    let stage = rootless::Staging::new(&user, &artefacts.suite(suite)?, &artefacts.strongbox)?;
    let engines = Engines::start_as(&proof.target, &user.account())?;
    for reason in engines.missing() {
        proof.skip(reason.clone());
    }
    let mut command = stage.command(&user);
    command.args(["--backend", "podman"]);
    let verdict = run(proof, ENGINES_TIME_MAX, vec![engines.enter_without_ours(&command)]);
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
    let stage = rootless::Staging::new(&user, &artefacts.suite(suite)?, &artefacts.strongbox)?;
    let verdict = run_shards(proof, SUITE_TIME_MAX, |cell| delegation.enter(&stage.in_cell(&user, cell)));
    stage.collect_reports(&reports)?;
    verdict
}

fn in_place(proof: &mut Proof, suite: &str, reports: &Path) -> Result<Verdict> {
    let artefacts = proof.artefacts()?;
    let (executable, root) = (artefacts.suite(suite)?, proof.root.clone());
    run_whole(proof, suite, |cell| {
        let mut command = cell.command(&executable);
        in_place_environment(&mut command, &artefacts.strongbox, reports, &root);
        command
    })
}

/// What a suite must know that runs where it was built.
fn in_place_environment(command: &mut Command, strongbox: &Path, reports: &Path, root: &Path) {
    command.env("STRONGBOX_BIN", strongbox).env("STRONGBOX_REPORT_DIR", reports).current_dir(root);
    cargo::without_cargo_traces(command);
}

fn as_test_user(proof: &mut Proof, suite: &str, reports: &Path) -> Result<Verdict> {
    let artefacts = proof.artefacts()?;
    let user = TestUser::ensure()?;
    let stage = rootless::Staging::new(&user, &artefacts.suite(suite)?, &artefacts.strongbox)?;
    let verdict = run_whole(proof, suite, |cell| stage.in_cell(&user, cell));
    stage.collect_reports(reports)?;
    verdict
}

/// Runs a suite in shards, and after them the case that looks at what all shards did, where there is one.
fn run_whole(proof: &mut Proof, suite: &str, command: impl Fn(&Cell) -> Command) -> Result<Verdict> {
    let rounds: &[_] = if proof.is_full() { FULL_ROUNDS } else { &[] };
    let verdict = run_shards(proof, SUITE_TIME_MAX, |cell| {
        let mut command = command(cell);
        command.envs(rounds.iter().copied());
        command
    })?;
    let (Verdict::Passed, Some((_, case))) = (&verdict, AFTER_SHARDS.iter().find(|(name, _)| *name == suite)) else {
        return Ok(verdict);
    };
    let cell = Cell::new()?;
    let mut last = command(&cell);
    last.arg(case);
    run(proof, SUITE_TIME_MAX, vec![last])
}

/// How often a full run repeats random kills and races: what suites take from these variables.
const FULL_ROUNDS: &[(&str, &str)] = &[("STRONGBOX_TEST_KILLS", "200"), ("STRONGBOX_TEST_RACES", "20000")];

/// A suite with a case that looks at what all shards did.
const AFTER_SHARDS: &[(&str, &str)] = &[("doors", "every_route_of_the_document_was_asked")];

/// Into how many programs a suite is split.
const SHARDS: usize = 2;

/// Says to a suite which part of its cases it runs; see `tests/src/suite.rs`.
const SHARD_VARIABLE: &str = "STRONGBOX_TEST_SHARD";

/// Runs the same command for each shard, in cells of their own.
fn run_shards(proof: &mut Proof, time_max: Duration, command: impl Fn(&Cell) -> Command) -> Result<Verdict> {
    let cells = (0..SHARDS).map(|_| Cell::new()).collect::<Result<Vec<_>>>()?;
    let shard = |(at, cell): (usize, &Cell)| {
        let mut command = command(cell);
        command.env(SHARD_VARIABLE, format!("{}/{SHARDS}", at + 1));
        command
    };
    let commands = cells.iter().enumerate().map(shard).collect();
    run(proof, time_max, commands)
}

/// Runs programs of a suite at the same time and judges them together.
pub(super) fn run(proof: &mut Proof, time_max: Duration, commands: Vec<Command>) -> Result<Verdict> {
    let (before, expected) = (proof.tally.results_seen, u64::try_from(commands.len())?);
    let endings = proof.stream_all(commands, time_max)?;
    let silent = (before + expected).saturating_sub(proof.tally.results_seen);
    if silent > 0 {
        return Ok(Verdict::Failed(format!("{silent} of {expected} programs did not come to their end: {endings:?}")));
    }
    let worst = endings.into_iter().find(|ending| !ending.is_success());
    Ok(judge(proof, worst))
}

/// An exit code alone proves nothing: the suite must have said that cases passed and that none failed.
fn judge(proof: &Proof, failed_ending: Option<Ending>) -> Verdict {
    let tally = &proof.tally;
    if let Some(ending) = failed_ending {
        return Verdict::Failed(format!("{} cases failed; {ending}", tally.failed));
    }
    if tally.failed > 0 {
        return Verdict::Failed(format!("{} cases failed", tally.failed));
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
