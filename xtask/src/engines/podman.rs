//! A Podman service of our own, which speaks the protocol of Docker.

use super::docker::{answers, spawn, succeed};
use super::house::{House, RUN};
use super::image;
use crate::machine;
use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};
use std::process::Command;

/// More files than root may open here.
const FILES_MAX: u64 = 1 << 20;

/// Where it keeps what it knows of running containers; what must not outlive the machine lies in `tmp` below it.
pub(super) const RUN_ROOT: &str = "/run/engines/podman";

/// What it is told on this machine.
pub(super) fn configuration(directory: &Path) -> PathBuf {
    directory.join("containers.conf")
}

/// Where it keeps images and containers.
pub(super) fn root(directory: &Path) -> PathBuf {
    directory.join("podman")
}

/// Starts the service, gives it the image, and returns its address.
pub(super) fn start(house: &House, directory: &Path, archive: &Path) -> Result<String> {
    let program = machine::program("podman").context("podman is not installed")?;
    let configuration = configuration(directory);
    std::fs::write(&configuration, configuration_text())?;
    let address = format!("unix://{RUN}/podman.sock");
    let podman = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.env("CONTAINERS_CONF", &configuration).arg("--root").arg(root(directory));
        command.args(["--runroot", RUN_ROOT, "--tmpdir", &format!("{RUN_ROOT}/tmp")]);
        command.args(arguments);
        command
    };
    let archive = archive.display().to_string();
    succeed(&mut house.entrance.command(&podman(&["import", "--quiet", &archive, image::NAME])))
        .context("importing the image")?;
    let log = directory.join("podman.log");
    let mut service = spawn(house, &podman(&["system", "service", "--time", "0", &address]), &log)?;
    answers(&mut service, || house.entrance.command(&remote(&program, &address)), &log)?;
    Ok(address)
}

/// Asks the service for its version. As a client of a service, Podman takes none of the other options.
fn remote(program: &Path, address: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--remote", "--url", address, "version"]);
    command
}

/// What differs from what Podman would choose. It asks for more open files than root may have on every machine, and its usual runtime
/// refuses machines on which both versions of cgroups are mounted.
fn configuration_text() -> String {
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(FILES_MAX).min(FILES_MAX);
    format!(
        "[containers]\ndefault_ulimits = [\"nofile={files}:{files}\", \"nproc=16384:16384\"]\n\
         [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n\
         [network]\nnetwork_config_dir = \"{RUN}/networks\"\n"
    )
}
