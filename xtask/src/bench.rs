//! `cargo xtask bench`: the benchmarks, next to the peers that this machine can have.

use crate::engines::{Engine, Engines, nsjail};
use crate::test::{e2b_clients, langbot};
use crate::{cargo, machine, packages, run};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What was asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Passed on to the benchmark program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// A program to compare with, and the variable by which the benchmark finds it. Unset means: not here.
struct Peer {
    name: &'static str,
    variable: &'static str,
    find: fn() -> Result<PathBuf>,
}

/// The group of benchmarks that needs private engines.
const ENGINES_GROUP: &str = "engines";

const PEERS: &[Peer] = &[
    Peer { name: "bwrap", variable: "STRONGBOX_BWRAP", find: || packaged("bwrap", "bubblewrap") },
    Peer { name: "ab", variable: "STRONGBOX_AB", find: || packaged("ab", "apache2-utils") },
    Peer { name: "crun", variable: "STRONGBOX_CRUN", find: || packaged("crun", "crun") },
    Peer { name: "nsjail", variable: "STRONGBOX_NSJAIL", find: nsjail::find },
    Peer { name: "langbot-plugin", variable: "STRONGBOX_LANGBOT", find: langbot::newest_sdk },
    Peer { name: "e2b", variable: "STRONGBOX_E2B", find: e2b_clients::newest_sdk },
    Peer { name: "docker", variable: "STRONGBOX_DOCKER", find: docker },
];

/// The verb: finds the peers, builds in release mode, runs.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let metadata = cargo::metadata()?;
    let root = metadata.workspace_root.as_std_path();
    let target = metadata.target_directory.as_std_path();
    let build = |package| ["build", "--release", "--package", package];
    let mut bench = Command::new(cargo::program(root, &build("box-benches"), "bench")?);
    bench.args(&options.arguments).current_dir(root);
    bench.env("STRONGBOX_BIN", cargo::program(root, &build("box-cli"), "strongbox")?);
    cargo::without_cargo_traces(&mut bench);
    bench.env("STRONGBOX_BENCH_DIR", target.join("bench"));
    for peer in PEERS {
        match (peer.find)() {
            Ok(path) => drop(bench.env(peer.variable, path)),
            Err(reason) => println!("skipped: {}: {reason:#}", peer.name),
        }
    }
    let is_success =
        if wants_engines(&options.arguments) { among_engines(&bench, target)? } else { run::plainly(bench)? };
    Ok(if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Only who asks for engines gets them: beside idle engines, and in their namespaces, other numbers would be others.
fn wants_engines(arguments: &[String]) -> bool {
    let follows = |pair: &[String]| pair[0] == "--only" && pair[1] == ENGINES_GROUP;
    arguments.windows(2).any(follows) || arguments.contains(&format!("--only={ENGINES_GROUP}"))
}

fn among_engines(bench: &Command, target: &Path) -> Result<bool> {
    let engines = Engines::start(target, &Engine::ALL)?;
    for reason in engines.missing() {
        println!("skipped: {reason}");
    }
    let is_success = run::plainly(engines.enter(bench))?;
    engines.stop()?;
    Ok(is_success)
}

fn packaged(program: &str, package: &str) -> Result<PathBuf> {
    if let Some(path) = machine::program(program) {
        return Ok(path);
    }
    let missing = packages::install(&[package]);
    let reason = missing.first().map_or("installed, but not in PATH", |it| it.reason.as_str());
    machine::program(program).with_context(|| reason.to_owned())
}

/// Docker counts only when an engine answers; starting one is the operator's decision.
fn docker() -> Result<PathBuf> {
    let program = machine::program("docker").context("docker is not installed")?;
    let asked =
        Command::new("timeout").args(["-k", "2", "5"]).arg(&program).args(["version", "--format", "ok"]).output()?;
    ensure!(asked.status.success(), "no engine answers");
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_started_only_for_who_asks_for_them() {
        let wants = |words: &[&str]| wants_engines(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(wants(&["--quick", "--only", "engines"]) && wants(&["--only=engines"]));
        assert!(!wants(&[]) && !wants(&["--only", "launch"]) && !wants(&["engines"]));
    }
}
