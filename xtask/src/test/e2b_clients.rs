//! `e2b-clients`: the real, unmodified packages of E2B in several versions, and the LangBot backend that uses them, against our
//! server.
//!
//! The drivers in `tests/clients/e2b` say what must hold; here they get what they need: an environment with one version each, a
//! server that takes every key, and one that takes only those of its two tenants.

mod servers;

use super::{Proof, Verdict, langbot, suites};
use crate::engines::{Engine, Engines};
use crate::node::Packages;
use crate::python::Environment;
use crate::{cargo, machine, run};
use anyhow::{Context, Result};
use servers::Servers;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The versions of `e2b` that stand for its families: what differs between them is in the table of the drivers' `README.md`.
const PYTHON: &[&str] = &["2.15.0", "2.30.0", "2.45.1", "2.63.0"];

/// The package has everything twice: with calls that block and with calls that are awaited.
const FORMS: [&str; 2] = ["sync", "async"];

/// What runs code statement by statement, with the newest `e2b`; IPython is carried into a box from there.
const INTERPRETER: &[&str] = &["e2b-code-interpreter==2.11.5", "e2b==2.63.0", "ipython==8.18.1"];

/// LangBot with the oldest `e2b` that it takes, which names a sandbox by nothing but its token once it has connected. With newer
/// ones it is in the environments of the other stages.
const OLD_LANGBOT: &[&str] = &["langbot-plugin==0.7.18", "e2b==2.15.0"];

/// Topics that the drivers run only when asked to. `networks` is one that our server does not serve.
const ALSO: &[&str] = &[];

/// Drivers that run at the same time.
const DRIVERS_TIME_MAX: Duration = Duration::from_mins(10);

/// Fewer checks mean that the list of cases was emptied by mistake.
const CHECKS_MIN: u64 = 800;

pub(super) fn run(proof: &mut Proof) -> Result<Verdict> {
    if let Some(reason) = missing() {
        return Ok(Verdict::Skipped(reason));
    }
    let packages = javascript(proof);
    if let Err(error) = install(proof, &packages) {
        return Ok(Verdict::not_installed("the packages of E2B", &error));
    }
    let (_, image) = Engines::prepare(&proof.target)?;
    let servers = Servers::start(&proof.artefacts()?.strongbox, &image)?;
    let mut endings = Vec::new();
    for drivers in in_turn(proof, &packages, &servers) {
        endings.extend(proof.stream_all(drivers, DRIVERS_TIME_MAX)?);
    }
    let open = servers.stop_guarded()?;
    let verdict = langbot::finish(proof, open, &endings)?;
    let passed = proof.tally.passed;
    Ok(match verdict {
        Verdict::Passed if passed < CHECKS_MIN => Verdict::Failed(format!("{passed} checks of at least {CHECKS_MIN}")),
        other => other,
    })
}

/// How long the one driver on Docker may take.
const ON_DOCKER_TIME_MAX: Duration = Duration::from_mins(15);

/// Drives a server whose sandboxes are containers of Docker with the newest package.
pub(super) fn on_docker(proof: &mut Proof) -> Result<Verdict> {
    if let Some(reason) = missing() {
        return Ok(Verdict::Skipped(reason));
    }
    let python = match newest_sdk() {
        Ok(python) => python,
        Err(error) => return Ok(Verdict::not_installed("the packages of E2B", &error)),
    };
    let engines = match Engines::start(&proof.target, &[Engine::Docker]) {
        Ok(engines) => engines,
        Err(error) => return Ok(Verdict::Skipped(format!("no engines: {error:#}"))),
    };
    if !engines.has(Engine::Docker) {
        return Ok(Verdict::Skipped(engines.missing().join("; ")));
    }
    let mut command = run::mortal(proof.root.join("tests/clients/e2b/on-docker"));
    command.arg(proof.artefacts()?.strongbox).arg(python);
    cargo::without_cargo_traces(&mut command);
    let verdict = suites::run(proof, ON_DOCKER_TIME_MAX, vec![engines.enter(&command)]);
    engines.stop()?;
    verdict
}

/// The Python that has the newest of our versions of the SDK.
pub(crate) fn newest_sdk() -> Result<PathBuf> {
    let environment = python(PYTHON.last().context("the list of versions is empty")?);
    environment.ensure()?;
    Ok(environment.program("python"))
}

/// What this machine lacks.
fn missing() -> Option<String> {
    if !machine::is_root() {
        Some("not root; run `sudo cargo xtask test` for this".into())
    } else if machine::program("node").is_none() || machine::program("npm").is_none() {
        Some("node or npm is missing; install nodejs and npm, 20 or newer".into())
    } else {
        None
    }
}

/// Installs missing packages.
fn install(proof: &mut Proof, packages: &Packages) -> Result<()> {
    let wanted = environments(proof);
    langbot::install(proof, wanted)?;
    proof.log.write("installing the packages of E2B for JavaScript");
    packages.ensure()
}

/// Every environment that these stages use in this run.
pub(super) fn environments(proof: &Proof) -> Vec<Environment> {
    let versions = langbot::chosen(proof, PYTHON).into_iter().map(python);
    let langbots = langbot::chosen(proof, langbot::SDKS).into_iter().map(langbot::sdk);
    versions.chain(langbots).chain([interpreter(), old_langbot()]).collect()
}

fn python(version: &str) -> Environment {
    Environment::new(&format!("e2b-{version}"), &[&format!("e2b=={version}")])
}

/// The newest packages and code interpreter.
pub(super) fn interpreter() -> Environment {
    Environment::new("e2b-code-interpreter", INTERPRETER)
}

fn old_langbot() -> Environment {
    Environment::new("e2b-old-langbot", OLD_LANGBOT)
}

pub(super) fn javascript(proof: &Proof) -> Packages {
    let (clients, place) = (proof.root.join("tests/clients"), proof.target.join("clients").join("e2b-javascript"));
    Packages::new(clients.join("e2b/javascript"), clients.join("suite.js"), place)
}

/// All drivers; those of a group run at the same time, because most of their time is spent waiting.
fn in_turn(proof: &Proof, packages: &Packages, servers: &Servers) -> Vec<Vec<Command>> {
    let both = |environment: &Environment| FORMS.map(|form| python_driver(proof, environment, form, servers)).into();
    let versions = langbot::chosen(proof, PYTHON);
    let mut groups: Vec<Vec<Command>> = versions.into_iter().map(|version| both(&python(version))).collect();
    groups.push(both(&interpreter()));
    let langbots = langbot::chosen(proof, langbot::SDKS).into_iter().map(langbot::sdk);
    let langbots: Vec<Environment> = langbots.chain([old_langbot()]).collect();
    let mut last = vec![javascript_driver(packages, servers)];
    last.extend(langbots.iter().map(|environment| langbot_driver(proof, environment, servers)));
    groups.push(last);
    groups
}

fn python_driver(proof: &Proof, environment: &Environment, form: &str, servers: &Servers) -> Command {
    let mut command = langbot::python(environment, &proof.root.join("tests/clients/e2b/python/main.py"));
    command.args(["--form", form]);
    describe(&mut command, servers);
    command
}

fn javascript_driver(packages: &Packages, servers: &Servers) -> Command {
    let mut command = run::mortal("node");
    command.arg(packages.file("main.js"));
    cargo::without_cargo_traces(&mut command);
    describe(&mut command, servers);
    command
}

fn langbot_driver(proof: &Proof, environment: &Environment, servers: &Servers) -> Command {
    let mut command = langbot::python(environment, &proof.root.join("tests/clients/e2b/langbot/main.py"));
    let directory = environment.place().file_name().unwrap_or_default();
    command.args(["--url", &servers.url(), "--directory"]).arg(servers.directory().join(directory));
    command
}

fn describe(command: &mut Command, servers: &Servers) {
    command.args(["--url", &servers.url(), "--guarded"]).arg(servers.guarded_file());
    command.args(ALSO.iter().flat_map(|topic| ["--also", topic]));
}
