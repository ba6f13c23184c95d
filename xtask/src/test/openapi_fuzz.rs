//! `openapi-fuzz`: requests made from the OpenAPI document alone, by an independent tool, against a real server.

use super::server::Server;
use super::{Proof, Verdict};
use crate::cargo;
use crate::python::Environment;
use crate::run::Ending;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The tool and its generator, at versions that are known to work together.
const TOOLS: [&str; 2] = ["schemathesis==4.32.5", "hypothesis==6.170.15"];

/// Read by the tool when it starts. It would make the generator climb towards requests that are accepted, and there the generator
/// falls over now and then. And it does not know how to send an archive.
const HOOKS: &str = "\
import hypothesis, schemathesis
hypothesis.target = lambda observation, **label: observation
schemathesis.serializer.alias('application/zip', 'application/octet-stream')
";
const HOOKS_MODULE: &str = "fuzz_hooks";

/// The tool ends by itself after a minute and a half of requests; only a hang is ended by this.
const FUZZ_TIME_MAX: Duration = Duration::from_mins(20);

pub(super) fn run(proof: &mut Proof) -> Result<Verdict> {
    let environment = environment();
    if let Err(error) = environment.ensure() {
        return Ok(Verdict::not_installed("schemathesis", &error));
    }
    let strongbox = proof.artefacts()?.strongbox;
    let (server, token) = start(&strongbox)?;
    let command = fuzz(&environment.program("schemathesis"), &server, &token);
    let ending = proof.stream_uncounted(command, FUZZ_TIME_MAX, |_| ())?;
    let healthy = is_healthy(server.address());
    let log = server.stop()?;
    if log.contains("panicked") || log.contains("http.status=500") {
        return Ok(Verdict::Failed("the server's log tells of a panic or an answer with status 500".into()));
    }
    proof.tally.passed += 1;
    Ok(match (ending, healthy) {
        (_, false) => Verdict::Failed("the server does not answer any more".into()),
        (Ending::TimedOut, _) => Verdict::Failed("not finished in time".into()),
        (ending, _) if !ending.is_success() => Verdict::Failed(format!("schemathesis found something; {ending}")),
        _ => Verdict::Passed,
    })
}

/// The environment of the tool.
pub(super) fn environment() -> Environment {
    Environment::new("schemathesis", &TOOLS)
}

/// The checks hold for every request: no 5xx answer, and answers as documented. WebSockets and requests that wait for a
/// command's end are left to the doors suite, as a fuzzer can only wait there; so are tests of MCP servers, which wait
/// for the first answer of a program that the fuzzer made up, and ports of boxes, where a closed one is a legitimate
/// 502.
fn fuzz(tool: &Path, server: &Server, token: &str) -> Command {
    let mut command = Command::new(tool);
    command.arg("run").arg(format!("{}/openapi.json", server.url("http"))).current_dir(server.directory());
    command.args(["--checks", "not_a_server_error,response_schema_conformance,content_type_conformance"]);
    command.args(["--max-examples", "20", "--seed", "1", "--workers", "2", "--request-timeout", "10", "--no-color"]);
    command.args(["--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all"]);
    command.args([
        "--exclude-path-regex",
        "/ws$|/events$|/watch$|^/v1/mcp/.*test$|/ports/|/tcp/",
        "--generation-database",
        "none",
        "--max-time",
        "90",
    ]);
    command.arg("--header").arg(format!("Authorization: Bearer {token}"));
    command.args(["--generation-with-security-parameters", "false"]);
    command.env("SCHEMATHESIS_HOOKS", HOOKS_MODULE).env("PYTHONPATH", server.directory());
    cargo::without_cargo_traces(&mut command);
    command
}

/// Makes a token that opens every route.
fn token(strongbox: &Path, state: &Path, config: &Path) -> Result<String> {
    let mut command = Command::new(strongbox);
    command
        .args(["token", "create", "--name", "fuzz", "--scope", "exec,files,skills,mcp,admin", "--state-dir"])
        .arg(state);
    let output = command.arg("--config").arg(config).output().context("making a token")?;
    ensure!(output.status.success(), "no token: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A server whose sessions go soon: they are made at random, and must not fill the machine.
pub(super) fn start(strongbox: &Path) -> Result<(Server, String)> {
    let place = Server::place()?;
    let (config, state) = (place.path().join("config.toml"), place.path().join("state"));
    std::fs::write(place.path().join(HOOKS_MODULE).with_extension("py"), HOOKS)?;
    std::fs::write(&config, "session_ttl_sec = 5\nmax_sessions = 50\nmax_managed_processes = 20\n")?;
    let token = token(strongbox, &state, &config)?;
    let server = Server::start(strongbox, place, |command| {
        command.args(["serve", "--listen", "127.0.0.1:0", "--on-stop", "destroy-all", "--state-dir"]).arg(state);
        command.arg("--config").arg(config);
    })?;
    Ok((server, token))
}

fn is_healthy(address: &str) -> bool {
    let ask = || -> std::io::Result<String> {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}
