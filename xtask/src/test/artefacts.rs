//! `build`: one compilation of the workspace, by clippy, for lints, unit tests, suites and the program that the suites test.
//!
//! The tested program has the checks of a debug build. What users build is the profile `release`, which `cargo xtask weigh`
//! and the benchmarks build.

use super::{Proof, Verdict};
use crate::cargo::{self, Executable};
use anyhow::{Context, Result, ensure};
use cargo_metadata::TargetKind;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Its directory.
const SUITES_DIRECTORY: &str = "tests";

/// The suites: programs that run their own cases and end with a `suite-result:` line.
pub(super) const SUITES: &[&str] = &["contract", "security", "faults", "doors", "restart", "mcp", AMONG_ENGINES];

/// The suite that runs only among engines, and only as root.
pub(super) const AMONG_ENGINES: &str = "engines";

/// Test programs of crates that need engines: directory of the package, and target.
pub(super) const ENGINE_TESTS: &[(&str, &str)] =
    &[("crates/backends/docker", "engines"), ("crates/backends/nsjail", "jail")];

/// Far more than a build needs; only a hang is ended by it.
const BUILD_TIME_MAX: Duration = Duration::from_hours(1);

/// What was built.
#[derive(Debug, Clone)]
pub(super) struct Artefacts {
    /// The `strongbox` program.
    pub(super) strongbox: PathBuf,
    /// The suites by name.
    pub(super) suites: BTreeMap<String, PathBuf>,
    /// The programs of [`ENGINE_TESTS`].
    pub(super) engine_tests: Vec<PathBuf>,
    /// How many warnings the compiler and clippy had.
    pub(super) warnings: usize,
}

impl Artefacts {
    /// The program of a suite.
    pub(super) fn suite(&self, name: &str) -> Result<PathBuf> {
        self.suites.get(name).cloned().with_context(|| format!("{name} was not built"))
    }
}

pub(super) fn run(proof: &mut Proof) -> Result<Verdict> {
    proof.artefacts()?;
    Ok(Verdict::Passed)
}

/// Compiles everything. Warnings are counted, not fatal: the stage `clippy` judges them.
pub(super) fn build(proof: &mut Proof) -> Result<Artefacts> {
    let arguments = ["build", "--workspace", "--all-targets", "--message-format", "json-render-diagnostics"];
    let command = cargo::linting(&proof.root, &arguments)?;
    let (mut built, mut warnings) = (Vec::new(), 0);
    let ending = proof.stream_uncounted(command, BUILD_TIME_MAX, |line| {
        built.extend(Executable::parse(line));
        warnings += usize::from(line.starts_with("warning"));
    })?;
    ensure!(ending.is_success(), "`cargo {}`: {ending}", arguments.join(" "));
    let strongbox = built.iter().find(|it| it.kind == TargetKind::Bin && it.target == "strongbox");
    let strongbox = strongbox.context("no program strongbox was built")?.path.clone();
    let tests: Vec<&Executable> = built.iter().filter(|it| it.kind == TargetKind::Test).collect();
    let of_suites = tests.iter().filter(|it| it.package == Path::new(SUITES_DIRECTORY));
    let suites: BTreeMap<_, _> = of_suites.map(|it| (it.target.clone(), it.path.clone())).collect();
    // A suite without a stage would never run, and a stage without a suite would prove nothing.
    ensure!(suites.keys().eq(sorted(SUITES)), "the suites are {:?}, but the stages run {SUITES:?}", suites.keys());
    let is_engine_test = |it: &&&Executable| {
        ENGINE_TESTS.iter().any(|(package, target)| it.package == Path::new(package) && it.target == *target)
    };
    let engine_tests: Vec<PathBuf> = tests.iter().filter(is_engine_test).map(|it| it.path.clone()).collect();
    ensure!(engine_tests.len() == ENGINE_TESTS.len(), "of {ENGINE_TESTS:?} only {engine_tests:?} were built");
    Ok(Artefacts { strongbox, suites, engine_tests, warnings })
}

fn sorted<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}
