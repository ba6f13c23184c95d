//! `mcp-clients`: servers from PyPI and npm in real boxes, used by the official MCP clients through our gateway, and by LangBot
//! through its relay.
//!
//! The drivers in `tests/clients/mcp` say what must hold; here they get what they need: clients of several ages, and one server
//! with everything defined, by the command line and from the file of a desktop client.

mod house;
mod registries;

use super::{Proof, Verdict, langbot};
use crate::node::Packages;
use crate::python::Environment;
use crate::{cargo, machine, run};
use anyhow::Result;
use house::House;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

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

/// One driver with all its cases. The first one waits until every server is installed.
const DRIVER_TIME_MAX: Duration = Duration::from_mins(20);

pub(super) fn run(proof: &mut Proof) -> Result<Verdict> {
    if let Some(reason) = missing() {
        return Ok(Verdict::Skipped(reason));
    }
    let packages = typescript(proof);
    if let Err(error) = install(proof, &packages) {
        return Ok(Verdict::not_installed("the MCP clients", &error));
    }
    let strongbox = proof.artefacts()?.strongbox;
    let registries = registries::environment();
    let mut endings = vec![langbot::servers_from_registries(proof, &strongbox, &registries)?];
    let house = House::open(proof, &strongbox, registries)?;
    for command in python_drivers(proof, &house).into_iter().chain(typescript_drivers(&packages, &house)) {
        endings.push(proof.stream(command, DRIVER_TIME_MAX)?);
        if proof.tally.results_seen < u64::try_from(endings.len())? {
            // Its servers are not there. The others would wait for them as long.
            break;
        }
    }
    let ended = house.clear();
    let verdict = langbot::finish(proof, house.server, &endings)?;
    ended?;
    Ok(verdict)
}

/// What this machine lacks.
fn missing() -> Option<String> {
    if !machine::is_root() {
        Some("not root; run `sudo cargo xtask test` for this".into())
    } else if machine::program("node").is_none() || machine::program("npm").is_none() {
        Some("there is no node with npm here; install nodejs and npm, 18 or newer".into())
    } else if !SEEN_BY_BOXES.iter().any(|path| Path::new(path).exists()) {
        Some(format!("boxes cannot see npx: it is none of {}", SEEN_BY_BOXES.join(", ")))
    } else {
        None
    }
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

pub(super) fn typescript(proof: &Proof) -> Packages {
    let (clients, place) = (proof.root.join("tests/clients"), proof.target.join("clients").join("mcp-typescript"));
    Packages::new(clients.join("mcp/typescript"), clients.join("suite.js"), place)
}

fn python_drivers(proof: &Proof, house: &House) -> Vec<Command> {
    let program = proof.root.join("tests/clients/mcp/python/main.py");
    let mut drivers = Vec::new();
    for python in versions(proof) {
        for transport in python.transports {
            let mut command = langbot::python(&environment(python), &program);
            describe(&mut command, house, transport);
            if drivers.is_empty() {
                command.args(["--also", "keeping"]);
            }
            drivers.push(command);
        }
    }
    drivers
}

fn typescript_drivers(packages: &Packages, house: &House) -> Vec<Command> {
    let mut drivers = Vec::new();
    for (generation, transports) in TYPESCRIPT {
        for transport in *transports {
            let mut command = run::mortal("node");
            command.arg(packages.file("main.js"));
            command.args(["--generation", generation, "--state"]).arg(desktop_state(house));
            describe(&mut command, house, transport);
            cargo::without_cargo_traces(&mut command);
            drivers.push(command);
        }
    }
    drivers
}

/// `strongbox mcp serve --stdio` is a program of its own and keeps its state elsewhere.
fn desktop_state(house: &House) -> PathBuf {
    house.server.directory().join("desktop")
}

fn describe(command: &mut Command, house: &House, transport: &str) {
    command.args(["--transport", transport, "--url", &house.server.url("http"), "--house"]).arg(house.file());
}
