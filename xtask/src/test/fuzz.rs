//! `fuzz`: every fuzz target for some seconds, beginning with its corpus.
//!
//! The targets are compiled as cargo-fuzz does it, so that libFuzzer sees which code an input reaches, but with the stable compiler:
//! without a sanitizer of addresses, which code without `unsafe` does not need.

use super::{Proof, Verdict};
use crate::cargo::{self, Executable};
use anyhow::{Context, Result, ensure};
use cargo_metadata::TargetKind;
use std::process::Command;
use std::time::Duration;

/// How long each target runs. Run it longer after a change to the parser that it feeds.
const SECONDS: u32 = 5;

/// Only a hang is ended by these.
const BUILD_TIME_MAX: Duration = Duration::from_mins(30);
const TARGET_TIME_MAX: Duration = Duration::from_mins(2);

/// What cargo-fuzz passes to the compiler.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

pub(super) fn run(proof: &mut Proof) -> Result<Verdict> {
    let sources = proof.root.join("fuzz");
    let targets = std::fs::read_dir(sources.join("fuzz_targets"))?.count();
    let built = build(proof)?;
    ensure!(built.len() == targets, "{targets} targets, but {} programs were built", built.len());
    let found = proof.target.join("reports/fuzz/");
    std::fs::create_dir_all(&found)?;
    let mut failed = Vec::new();
    for Executable { target, path, .. } in built {
        let corpus = sources.join("corpus").join(&target);
        ensure!(corpus.is_dir(), "{} is missing: the inputs that {target} begins with", corpus.display());
        // New inputs go to the first directory, which is gone afterwards.
        let inputs = tempfile::tempdir()?;
        let mut command = Command::new(path);
        command.arg(inputs.path()).arg(corpus).arg(format!("-max_total_time={SECONDS}"));
        command.args(["-timeout=20", "-rss_limit_mb=2048"]).arg(format!("-artifact_prefix={}/", found.display()));
        let ending = proof.stream_uncounted(command, TARGET_TIME_MAX, |_| ())?;
        if ending.is_success() {
            proof.tally.passed += 1;
        } else {
            proof.tally.observe(&format!("FAILED {target}: {ending}; the input is in {}", found.display()));
            proof.tally.failed += 1;
            failed.push(target);
        }
    }
    Ok(if failed.is_empty() { Verdict::Passed } else { Verdict::Failed(failed.join(", ")) })
}

/// Builds all targets, with the versions of dependencies that the workspace has.
fn build(proof: &mut Proof) -> Result<Vec<Executable>> {
    let sources = proof.root.join("fuzz");
    std::fs::copy(proof.root.join("Cargo.lock"), sources.join("Cargo.lock")).context("copying Cargo.lock")?;
    let arguments = ["build", "--target", "x86_64-unknown-linux-gnu", "--message-format", "json-render-diagnostics"];
    let mut command = cargo::command(&sources, &arguments);
    // In the target directory, where the agent is that was built already.
    command.env("RUSTFLAGS", FLAGS).arg("--target-dir").arg(proof.target.join("fuzz"));
    let mut built = Vec::new();
    let ending = proof.stream_uncounted(command, BUILD_TIME_MAX, |line| built.extend(Executable::parse(line)))?;
    ensure!(ending.is_success(), "cargo build in fuzz/: {ending}");
    built.retain(|it| it.kind == TargetKind::Bin);
    Ok(built)
}
