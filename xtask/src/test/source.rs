//! The stages that look at the sources and run the tests inside the crates.

use super::{Proof, Verdict};
use crate::{cargo, tidy};
use anyhow::Result;
use std::time::Duration;

/// Far more than any of these needs; only a hang is ended by it.
const CARGO_TIME_MAX: Duration = Duration::from_hours(1);

pub(super) fn fmt(proof: &mut Proof) -> Result<Verdict> {
    cargo_succeeds(proof, &["fmt", "--all", "--check"], "run `cargo fmt --all`")
}

/// Clippy was the compiler of the build; here its warnings count as errors.
pub(super) fn clippy(proof: &mut Proof) -> Result<Verdict> {
    Ok(match proof.artefacts()?.warnings {
        0 => Verdict::Passed,
        count => Verdict::Failed(format!("{count} warnings; see build.log beside this stage's log")),
    })
}

pub(super) fn tidy(proof: &mut Proof) -> Result<Verdict> {
    let violations = tidy::check()?;
    for violation in &violations {
        proof.log.write(&format!("{}: {}", violation.place, violation.message));
    }
    Ok(match violations.len() {
        0 => Verdict::Passed,
        count => Verdict::Failed(format!("{count} to put right")),
    })
}

pub(super) fn deny(proof: &mut Proof) -> Result<Verdict> {
    if !cargo::has_subcommand(&proof.root, "deny") {
        return Ok(Verdict::Skipped("cargo-deny is not installed; `cargo install --locked cargo-deny`".into()));
    }
    cargo_succeeds(proof, &["deny", "check"], "see deny.toml for what is allowed")
}

/// The suites have a runner and stages of their own, and so do tests that need engines.
const UNIT_TESTS: &str =
    "not (package(box-tests) & kind(test)) - binary_id(box-docker::engines) - binary_id(box-nsjail::jail)";

/// Unit and integration tests of all crates. A test that cannot run here says so in a line that begins with `skipped: `.
pub(super) fn unit(proof: &mut Proof) -> Result<Verdict> {
    if !cargo::has_subcommand(&proof.root, "nextest") {
        return Ok(Verdict::Failed("cargo-nextest is not installed; run: cargo install --locked cargo-nextest".into()));
    }
    let arguments = ["nextest", "run", "--workspace", "--no-fail-fast", "--success-output", "immediate"];
    let arguments = [&arguments[..], &["--retries", "0", "--filterset", UNIT_TESTS]].concat();
    let verdict = cargo_succeeds(proof, &arguments, "the failed tests are named above")?;
    // For nextest a test that returned early has passed.
    let skipped = u64::try_from(proof.tally.skip_reasons.len())?;
    proof.tally.passed = proof.tally.passed.saturating_sub(skipped);
    proof.tally.skipped += skipped;
    Ok(verdict)
}

pub(super) fn doc(proof: &mut Proof) -> Result<Verdict> {
    cargo_succeeds(proof, &["test", "--doc", "--workspace"], "an example in a doc comment fails")
}

fn cargo_succeeds(proof: &mut Proof, arguments: &[&str], advice: &str) -> Result<Verdict> {
    let command = cargo::linting(&proof.root, arguments)?;
    let ending = proof.stream(command, CARGO_TIME_MAX)?;
    Ok(if ending.is_success() {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("`cargo {}`: {ending}; {advice}", arguments.join(" ")))
    })
}
