//! An engine whose address is only where its own programs look for it: in a variable, or in a file of Docker's.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use box_core::BackendName;
use box_tests::engines;
use box_tests::server::{plain_command, program};
use serde_json::json;
use tempfile::TempDir;

use crate::site::Site;

/// The name of a Docker context.
const CONTEXT: &str = "ours";

pub(crate) fn an_engine_is_found_where_its_own_programs_find_it(site: &Site) -> Result<()> {
    let (backend, address) = (site.daemon.backend(), site.daemon.address());
    let home = tempfile::tempdir()?;
    let is_docker = backend == BackendName::Docker;
    let variable = if is_docker { "DOCKER_HOST" } else { "CONTAINER_HOST" };
    gives_a_box(run(site, &home)?.env(variable, &address), variable)?;
    let nowhere = format!("unix://{}", home.path().join("no.sock").display());
    let refused = run(site, &home)?.env(variable, &nowhere).output()?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(!refused.status.success() && said.contains(&nowhere), "another engine stood in: {said}");
    if is_docker {
        write_context(home.path(), &address)?;
        gives_a_box(run(site, &home)?.env("DOCKER_CONTEXT", CONTEXT), "the context of DOCKER_CONTEXT")?;
        std::fs::write(home.path().join(".docker/config.json"), json!({"currentContext": CONTEXT}).to_string())?;
        gives_a_box(&mut run(site, &home)?, "the current context")?;
    }
    Ok(())
}

/// One command in a box of the engine. None of our settings names the engine.
fn run(site: &Site, home: &TempDir) -> Result<Command> {
    let mut command = plain_command(&program()?);
    for name in ["DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    let backend = site.daemon.backend().as_str();
    for (setting, value) in [("IMAGE", engines::image()), ("PULL", "never".to_owned())] {
        command.env(format!("STRONGBOX_{}_{setting}", backend.to_uppercase()), value);
    }
    command.env("HOME", home.path()).env("STRONGBOX_STATE_DIR", site.state()?);
    command.args(["run", "--backend", backend, "--", "sh", "-c", "echo $((6 * 7))"]);
    Ok(command)
}

fn gives_a_box(command: &mut Command, source: &str) -> Result<()> {
    let Output { status, stdout, stderr } = command.output().context("starting the program")?;
    let (said, complaints) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    ensure!(status.success() && said == "42\n", "by {source}: {status}: {said}{complaints}");
    Ok(())
}

/// Writes a context as `docker context create` does.
fn write_context(home: &Path, address: &str) -> Result<()> {
    let meta = home.join(".docker/contexts/meta").join(box_core::hexadecimal::sha256(CONTEXT.as_bytes()));
    std::fs::create_dir_all(&meta)?;
    let written = json!({"Name": CONTEXT, "Metadata": {}, "Endpoints": {"docker": {"Host": address}}});
    Ok(std::fs::write(meta.join("meta.json"), written.to_string())?)
}
