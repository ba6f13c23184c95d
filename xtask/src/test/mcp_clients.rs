//! `mcp-clients`: servers from PyPI and npm in real boxes, used by the official MCP clients through our gateway, and by LangBot
//! through its relay. `mcp-conformance`: the MCP conformance suite, through the gateway.
//!
//! The drivers in `tests/clients/mcp` say what must hold; here they get what they need: clients of several ages, and one server
//! with everything defined, by the command line and from the file of a desktop client.

mod conformance;
pub(super) mod registries;
mod test_host;

use super::{Proof, Verdict, langbot};
use crate::node::Packages;
use crate::python::Environment;
use crate::{cargo, machine, run};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use test_host::TestHost;

/// A version of the official Python client.
struct Python {
    version: &'static str,
    /// What is installed beside it.
    beside: &'static [&'static str],
    /// What it is driven with.
    transports: &'static [&'static str],
}

/// The newest, whose protocol needs no handshake any more; the last of its first generation; and one from when streamable HTTP was
/// new, which does not work with what is new now.
const PYTHON: &[Python] = &[
    Python { version: "2.3.0", beside: &[], transports: &["http", "sse", "newest"] },
    Python { version: "1.30.0", beside: &[], transports: &["http", "sse"] },
    Python { version: "1.9.4", beside: &["pydantic==2.11.10"], transports: &["http", "sse"] },
];

/// The generations of the official TypeScript client; which versions they are is in the driver's `package.json`.
const TYPESCRIPT: &[(&str, &[&str])] = &[("1", &["http", "sse", "stdio"]), ("2", &["http", "newest", "stdio"])];

/// Where boxes without an image find programs. What is elsewhere on this machine does not exist for them.
const SEEN_BY_BOXES: [&str; 2] = ["/usr/local/bin/npx", "/usr/bin/npx"];

const NOT_ROOT: &str = "not root; run `sudo cargo xtask test` for this";

/// One driver with all its cases. The first one waits until every server is installed.
const DRIVER_TIME_MAX: Duration = Duration::from_mins(20);

pub(super) fn run(proof: &mut Proof) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped(NOT_ROOT.into()));
    }
    let packages = typescript(proof);
    if let Err(error) = check_node().and_then(|()| install(proof, &packages)) {
        return Ok(Verdict::not_installed("the MCP clients", &error));
    }
    let strongbox = proof.artefacts()?.strongbox;
    let registries = registries::environment();
    let mut endings = vec![langbot::servers_from_registries(proof, &strongbox, &registries)?];
    let test_host = TestHost::open(proof, &strongbox, registries)?;
    for command in python_drivers(proof, &test_host).into_iter().chain(typescript_drivers(&packages, &test_host)) {
        endings.push(proof.stream(command, DRIVER_TIME_MAX)?);
        if proof.tally.results_seen < u64::try_from(endings.len())? {
            // Its servers are not there. The others would wait for them as long.
            break;
        }
    }
    let ended = test_host.clear();
    let verdict = langbot::finish(proof, test_host.server, &endings)?;
    ended?;
    Ok(verdict)
}

/// The conformance suite. It brings its own Node.js, and its server needs none, so every machine has it as root.
pub(super) fn run_conformance(proof: &mut Proof) -> Result<Verdict> {
    if !machine::is_root() {
        return Ok(Verdict::Skipped(NOT_ROOT.into()));
    }
    let packages = conformance(proof);
    if let Err(error) = packages.ensure() {
        return Ok(Verdict::not_installed("the MCP conformance suite", &error));
    }
    let strongbox = proof.artefacts()?.strongbox;
    let test_host = TestHost::start(proof, &strongbox, registries::environment())?;
    let endings = conformance::run(proof, &test_host, &packages)?;
    let ended = test_host.holds_no_box();
    let verdict = langbot::finish(proof, test_host.server, &endings)?;
    ended?;
    Ok(verdict)
}

/// Whether boxes without an image have a Node.js.
pub(super) fn boxes_see_npx() -> bool {
    SEEN_BY_BOXES.iter().any(|path| Path::new(path).exists())
}

/// The drivers run by this machine's Node.js, and servers by that of their box.
fn check_node() -> Result<()> {
    let fix = "install nodejs and npm, 18 or newer";
    ensure!(machine::program("node").is_some(), "node is missing: {fix}");
    ensure!(boxes_see_npx(), "boxes cannot see npx, which is in none of {}: {fix}", SEEN_BY_BOXES.join(", "));
    Ok(())
}

/// Installs the clients, unless they are there.
fn install(proof: &mut Proof, packages: &Packages) -> Result<()> {
    proof.log.write("installing the MCP clients");
    packages.ensure()?;
    langbot::install(proof, environments(proof))?;
    langbot::newest_sdk().map(drop)
}

/// The versions of the Python client that this run drives: all in a full run, else the newest and the oldest.
fn versions(proof: &Proof) -> impl Iterator<Item = &'static Python> {
    let (is_full, last) = (proof.is_full(), PYTHON.len() - 1);
    PYTHON.iter().enumerate().filter(move |(at, _)| is_full || *at == 0 || *at == last).map(|(_, python)| python)
}

/// Every environment that this stage uses in this run.
pub(super) fn environments(proof: &Proof) -> Vec<Environment> {
    versions(proof).map(environment).collect()
}

fn environment(python: &Python) -> Environment {
    let package = format!("mcp=={}", python.version);
    Environment::new(&format!("mcp-{}", python.version), &[&[package.as_str()], python.beside].concat())
}

/// The conformance suite and its expected results.
pub(super) fn conformance(proof: &Proof) -> Packages {
    conformance::packages(proof)
}

pub(super) fn typescript(proof: &Proof) -> Packages {
    let (clients, place) = (proof.root.join("tests/clients"), proof.target.join("clients").join("mcp-typescript"));
    Packages::new(clients.join("mcp/typescript"), clients.join("suite.js"), place)
}

fn python_drivers(proof: &Proof, test_host: &TestHost) -> Vec<Command> {
    let program = proof.root.join("tests/clients/mcp/python/main.py");
    let mut drivers = Vec::new();
    for python in versions(proof) {
        for transport in python.transports {
            let mut command = langbot::python(&environment(python), &program);
            describe(&mut command, test_host, transport);
            if drivers.is_empty() {
                command.args(["--also", "keeping"]);
            }
            drivers.push(command);
        }
    }
    drivers
}

fn typescript_drivers(packages: &Packages, test_host: &TestHost) -> Vec<Command> {
    let mut drivers = Vec::new();
    for (generation, transports) in TYPESCRIPT {
        for transport in *transports {
            let mut command = run::mortal("node");
            command.arg(packages.file("main.js"));
            command.args(["--generation", generation, "--state"]).arg(desktop_state(test_host));
            describe(&mut command, test_host, transport);
            cargo::without_cargo_traces(&mut command);
            drivers.push(command);
        }
    }
    drivers
}

/// `strongbox mcp serve --stdio` is a program of its own and keeps its state elsewhere.
fn desktop_state(test_host: &TestHost) -> PathBuf {
    test_host.server.directory().join("desktop")
}

fn describe(command: &mut Command, test_host: &TestHost, transport: &str) {
    command.args(["--transport", transport, "--url", &test_host.server.url("http"), "--house"]).arg(test_host.file());
}
