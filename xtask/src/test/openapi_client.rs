//! `openapi-client`: a client generated from the served OpenAPI document works against the server.

use super::openapi_fuzz::start;
use super::{Proof, Verdict, suites};
use crate::python::Environment;
use crate::{cargo, run};
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The generator. It installs what its clients need.
const GENERATOR: &[&str] = &["openapi-python-client==0.29.1"];

/// Printed when the generator omits an operation.
const LEFT_OUT: &str = "Endpoint will not be generated";

/// Disables formatting of the generated code.
const CONFIG: &str = "post_hooks: []\n";

const CLIENT_TIME_MAX: Duration = Duration::from_mins(5);

pub(super) fn run(proof: &mut Proof) -> Result<Verdict> {
    let environment = environment();
    if let Err(error) = environment.ensure() {
        return Ok(Verdict::not_installed("openapi-python-client", &error));
    }
    let strongbox = proof.artefacts()?.strongbox;
    let (server, token) = start(&strongbox)?;
    generate(proof, &environment, &server.url("http"), server.directory())?;
    let mut check = run::mortal(environment.program("python"));
    check.arg(proof.root.join("tests/clients/openapi/check.py")).args([&server.url("http"), &token]);
    check.env("PYTHONPATH", server.directory()).current_dir(server.directory());
    cargo::without_cargo_traces(&mut check);
    let verdict = suites::run(proof, CLIENT_TIME_MAX, vec![check])?;
    server.stop()?;
    Ok(verdict)
}

/// The environment of the generator.
pub(super) fn environment() -> Environment {
    Environment::new("openapi-client", GENERATOR)
}

/// Generates the package `client` in a directory, and checks that no operation is omitted.
fn generate(proof: &mut Proof, environment: &Environment, url: &str, directory: &Path) -> Result<()> {
    std::fs::write(directory.join("generator.yml"), CONFIG)?;
    let mut generator = Command::new(environment.program("openapi-python-client"));
    generator.args(["generate", "--url"]).arg(format!("{url}/openapi.json"));
    generator.args(["--meta", "none", "--output-path", "client", "--config", "generator.yml"]).current_dir(directory);
    cargo::without_cargo_traces(&mut generator);
    let mut left_out = Vec::new();
    let ending = proof.stream_uncounted(generator, CLIENT_TIME_MAX, |line| {
        if line.contains(LEFT_OUT) {
            left_out.push(line.to_owned());
        }
    })?;
    ensure!(ending.is_success(), "openapi-python-client: {ending}");
    ensure!(left_out.is_empty(), "the generated client lacks operations: {left_out:?}");
    Ok(())
}
