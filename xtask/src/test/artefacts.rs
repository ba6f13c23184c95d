//! `build`: the strongbox program as it is shipped, but for the optimisation that is made while linking; and the suites, with the checks of a debug
//! build, for which nearly everything was compiled already.

use super::{Proof, Verdict};
use crate::cargo;
use anyhow::{Context, Result, ensure};
use cargo_metadata::TargetKind;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The package that holds the suites.
pub(super) const SUITES_PACKAGE: &str = "box-tests";

/// The suites: programs that run their own cases and end with a `suite-result:` line.
pub(super) const SUITES: &[&str] = &["contract", "security", "faults", "doors", "restart", "mcp", AMONG_ENGINES];

/// The suite that runs only among engines, and only as root.
pub(super) const AMONG_ENGINES: &str = "engines";

/// What was built.
#[derive(Debug, Clone)]
pub(super) struct Artefacts {
    /// The `strongbox` program.
    pub(super) strongbox: PathBuf,
    /// The suites by name.
    pub(super) suites: BTreeMap<String, PathBuf>,
}

pub(super) fn run(proof: &mut Proof) -> Result<Verdict> {
    proof.artefacts()?;
    Ok(Verdict::Passed)
}

/// Builds everything that the later stages run.
pub(super) fn build(root: &Path) -> Result<Artefacts> {
    let strongbox = build_strongbox(root)?;
    let arguments = ["test", "--package", SUITES_PACKAGE, "--no-run"];
    let suites = cargo::executables(root, &arguments, &TargetKind::Test)?;
    // A suite that no stage runs would be a proof that nobody asks for, and a missing one a proof that we only claim.
    let unknown: Vec<&String> = suites.keys().filter(|name| !SUITES.contains(&name.as_str())).collect();
    ensure!(unknown.is_empty(), "{SUITES_PACKAGE} has test programs that no stage runs: {unknown:?}");
    let missing: Vec<&&str> = SUITES.iter().filter(|name| !suites.contains_key(**name)).collect();
    ensure!(missing.is_empty(), "{SUITES_PACKAGE} lacks the test programs {missing:?}");
    Ok(Artefacts { strongbox, suites })
}

/// Builds the `strongbox` program alone, for tests.
pub(super) fn build_strongbox(root: &Path) -> Result<PathBuf> {
    build_as(root, "proof")
}

/// Builds the `strongbox` program as it is shipped.
pub(crate) fn build_shipped(root: &Path) -> Result<PathBuf> {
    build_as(root, "release")
}

fn build_as(root: &Path, profile: &str) -> Result<PathBuf> {
    let built = cargo::executables(root, &["build", "--profile", profile, "--package", "box-cli"], &TargetKind::Bin)?;
    built.get("strongbox").cloned().context("box-cli has no program named strongbox")
}
