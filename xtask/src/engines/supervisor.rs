//! The supervisor: builds the engine host, starts engines in it, says where they are, and takes all of it down when its input ends.

use super::engine_host::EngineHost;
use super::{
    ARCHIVE_VARIABLE, Account, DOCKER_VARIABLE, Engine, IMAGE_VARIABLE, PODMAN_CONFIGURATION_VARIABLE,
    PODMAN_ROOT_VARIABLE, PODMAN_RUN_VARIABLE, PODMAN_VARIABLE, docker, image, podman,
};
use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread::ScopedJoinHandle;

/// The name of the hidden verb.
const VERB: &str = "keep-engines";

/// The arguments of the supervisor.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where the engines may write; removed at the end
    directory: PathBuf,
    /// The image that they get
    image: PathBuf,
    /// An engine to start; may be given several times
    #[arg(long, value_name = "ENGINE")]
    engine: Vec<Engine>,
    /// Start Podman as this user instead of as root
    #[arg(long, value_name = "UID:GID:HOME")]
    account: Option<Account>,
}

/// The command that starts a supervisor.
pub(super) fn command(directory: &Path, image: &Path, wanted: &[Engine], account: Option<&Account>) -> Command {
    // Not by our path: a build may have replaced the file since we were started.
    let mut command = Command::new("/proc/self/exe");
    command.arg(VERB).arg(directory).arg(image);
    command.args(wanted.iter().flat_map(|engine| ["--engine", engine.name()]));
    if let Some(account) = account {
        command.arg("--account").arg(account.to_string());
    }
    command
}

/// The hidden verb.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    std::fs::create_dir_all(&options.directory)?;
    let outcome = keep(options);
    std::fs::remove_dir_all(&options.directory).with_context(|| format!("removing {}", options.directory.display()))?;
    outcome.map(|()| ExitCode::SUCCESS)
}

fn keep(options: &Options) -> Result<()> {
    let engine_host = EngineHost::build(&format!("strongbox-engines-{}", std::process::id()), &options.directory)?;
    let outcome = populate(&engine_host, options).and_then(|()| {
        // The pipe carries no data: this returns when the parent has ended, in whatever way.
        std::io::stdin().read_to_end(&mut Vec::new())?;
        Ok(())
    });
    engine_host.demolish().and(outcome)
}

/// Starts the engines, side by side, and returns the result.
fn populate(engine_host: &EngineHost, options: &Options) -> Result<()> {
    say(&format!("init {}", engine_host.entrance.init))?;
    for group in &engine_host.entrance.groups {
        say(&format!("group {}", group.display()))?;
    }
    let Options { directory, image: archive, engine, account } = options;
    let is_wanted = |wanted: Engine| engine.contains(&wanted);
    let (docker, podman) = std::thread::scope(|scope| {
        let docker = is_wanted(Engine::Docker).then(|| scope.spawn(|| docker::start(engine_host, directory, archive)));
        let podman =
            is_wanted(Engine::Podman).then(|| podman::start(engine_host, directory, archive, account.as_ref()));
        (docker.map(ScopedJoinHandle::join), podman)
    });
    let unforeseen = || anyhow::anyhow!("starting it went wrong in an unforeseen way");
    let docker = docker.map(|docker| docker.unwrap_or_else(|_| Err(unforeseen())));
    for (name, variable, started) in [("docker", DOCKER_VARIABLE, docker), ("podman", PODMAN_VARIABLE, podman)] {
        match started {
            Some(Ok(address)) => say(&format!("set {variable}={address}"))?,
            Some(Err(error)) => say(&format!("missing {name}: {}", format!("{error:#}").replace('\n', " ")))?,
            None => {}
        }
    }
    say(&format!("set {IMAGE_VARIABLE}={}", image::NAME))?;
    say(&format!("set {ARCHIVE_VARIABLE}={}", archive.display()))?;
    say(&format!("set {PODMAN_CONFIGURATION_VARIABLE}={}", podman::configuration(directory).display()))?;
    say(&format!("set {PODMAN_ROOT_VARIABLE}={}", podman::root(directory).display()))?;
    say(&format!("set {PODMAN_RUN_VARIABLE}={}", podman::RUN_ROOT))?;
    say("ready")
}

fn say(line: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}
