//! A private Docker engine, with networks: in the engine host it may filter and route as it likes.

use super::engine_host::{EngineHost, RUN};
use super::image;
use crate::machine;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An engine that does not answer by then will not.
const START_TIME_MAX: Duration = Duration::from_mins(1);

/// The command line that Debian's package brings. One of another origin may speak a newer protocol than the engine.
const CLIENT: &str = "/usr/bin/docker";

/// Starts the engine, gives it the image, and returns its address.
pub(super) fn start(engine_host: &EngineHost, directory: &Path, archive: &Path) -> Result<String> {
    let daemon = machine::program("dockerd").context("dockerd is not installed")?;
    let address = format!("unix://{RUN}/docker.sock");
    let mut command = Command::new(daemon);
    command.arg("--data-root").arg(directory.join("docker")).args(["--exec-root", &format!("{RUN}/docker")]);
    command.args(["-H", &address, "-p", &format!("{RUN}/docker.pid"), "--exec-opt", "native.cgroupdriver=cgroupfs"]);
    let log = directory.join("dockerd.log");
    let mut daemon = spawn(engine_host, &command, &log)?;
    let client = |arguments: &[&str]| {
        let mut command = Command::new(CLIENT);
        command.args(["-H", &address]).args(arguments);
        engine_host.entrance.command(&command)
    };
    answers(&mut daemon, || client(&["version"]), &log)?;
    let mut import = client(&["import", "-", image::NAME]);
    succeed(import.stdin(File::open(archive)?)).context("importing the image")?;
    Ok(address)
}

/// Starts a daemon in the engine host; what it says goes to a file. It ends with the engine host.
pub(super) fn spawn(engine_host: &EngineHost, command: &Command, log: &Path) -> Result<Child> {
    let log = File::create(log)?;
    let mut inside = engine_host.entrance.command(command);
    inside.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    inside.spawn().with_context(|| format!("starting {}", command.get_program().display()))
}

/// Asks a daemon until it answers.
pub(super) fn answers(daemon: &mut Child, question: impl Fn() -> Command, log: &Path) -> Result<()> {
    let deadline = Instant::now() + START_TIME_MAX;
    while succeed(&mut question()).is_err() {
        let ended = daemon.try_wait()?;
        if ended.is_some() || Instant::now() >= deadline {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
            let _ = daemon.kill();
            bail!("{}: {last}", ended.map_or("no answer".to_owned(), |status| format!("it ended with {status}")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Runs a command to its end; what it said last is the reason of a failure.
pub(super) fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("starting {}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", output.status, said.trim());
    Ok(())
}
