//! The stages that look at the sources and run the tests inside the crates.

use super::artefacts::SUITES_PACKAGE;
use super::{Proof, Verdict};
use crate::{cargo, tidy};
use anyhow::Result;
use std::time::Duration;

/// Far more than any of these needs; only a hang is ended by it.
const CARGO_TIME_MAX: Duration = Duration::from_hours(1);

pub(super) fn fmt(proof: &mut Proof) -> Result<Verdict> {
    cargo_succeeds(proof, &["fmt", "--all", "--check"], "run `cargo fmt --all`")
}

pub(super) fn clippy(proof: &mut Proof) -> Result<Verdict> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    cargo_succeeds(proof, &arguments, "each warning is an error here")
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

/// All but what passes without engines because it does nothing then; it has a stage of its own.
const NOT_AMONG_ENGINES: &str = "not (binary_id(box-docker::engines) + binary_id(box-nsjail::jail))";

/// Unit and integration tests of all crates. The suites have a runner of their own and get stages of their own; of
/// their package only the library's tests run here.
pub(super) fn unit(proof: &mut Proof) -> Result<Verdict> {
    let has_nextest = cargo::has_subcommand(&proof.root, "nextest");
    let (runner, keep_going): (&[&str], _) = if has_nextest {
        (
            &["nextest", "run"],
            &["--no-fail-fast", "--no-tests=pass", "--retries=1", "--filterset", NOT_AMONG_ENGINES][..],
        )
    } else {
        (&["test"], &["--no-fail-fast"][..])
    };
    let crates: &[&str] = &["--workspace", "--exclude", SUITES_PACKAGE];
    let suites_library: &[&str] = &["--package", SUITES_PACKAGE, "--lib"];
    let mut failures = Vec::new();
    for which in [crates, suites_library] {
        // Without nextest, doc tests would run here too; they are the next stage.
        let kinds: &[&str] = if has_nextest || which == suites_library { &[] } else { &["--lib", "--bins", "--tests"] };
        let arguments = [runner, which, kinds, keep_going].concat();
        if let Verdict::Failed(reason) = cargo_succeeds(proof, &arguments, "the failed tests are named above")? {
            failures.push(reason);
        }
    }
    Ok(if failures.is_empty() { Verdict::Passed } else { Verdict::Failed(failures.join("; ")) })
}

pub(super) fn doc(proof: &mut Proof) -> Result<Verdict> {
    cargo_succeeds(proof, &["test", "--doc", "--workspace"], "an example in a doc comment fails")
}

fn cargo_succeeds(proof: &mut Proof, arguments: &[&str], advice: &str) -> Result<Verdict> {
    let command = cargo::command(&proof.root, arguments);
    let ending = proof.stream(command, CARGO_TIME_MAX)?;
    Ok(if ending.is_success() {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("`cargo {}`: {ending}; {advice}", arguments.join(" ")))
    })
}
