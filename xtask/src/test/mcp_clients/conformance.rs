//! The MCP conformance suite, through the gateway: once per protocol version, against a server in a box that speaks that
//! version.

use super::test_host::TestHost;
use super::{DRIVER_TIME_MAX, Proof};
use crate::node::Packages;
use crate::{cargo, run};
use anyhow::Result;
use std::process::Command;

/// The server's name for each version. Both run the same program.
const VERSIONS: [(&str, &str); 2] = [("2025-11-25", "conformance"), ("2026-07-28", "conformance-newest")];

/// The suite and its expected results.
pub(super) fn packages(proof: &Proof) -> Packages {
    let (clients, place) = (proof.root.join("tests/clients"), proof.target.join("clients").join("mcp-conformance"));
    Packages::new(clients.join("mcp/conformance"), clients.join("suite.js"), place)
}

/// Runs the suite for each version.
pub(super) fn run(proof: &mut Proof, test_host: &TestHost, packages: &Packages) -> Result<Vec<run::Ending>> {
    let mut endings = Vec::new();
    for (version, server) in VERSIONS {
        test_host.add_conformance(server, version)?;
        endings.push(proof.stream(driver(test_host, packages, version, server), DRIVER_TIME_MAX)?);
        test_host.remove(&[server])?;
    }
    Ok(endings)
}

fn driver(test_host: &TestHost, packages: &Packages, version: &str, server: &str) -> Command {
    // The suite needs a newer Node.js than many machines have.
    let mut command = run::mortal(packages.program("node"));
    command.arg(packages.file("main.js"));
    command.args(["--version", version, "--url", &format!("{}/mcp/{server}", test_host.server.url("http"))]);
    cargo::without_cargo_traces(&mut command);
    command
}
