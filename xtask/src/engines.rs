//! `cargo xtask engines`: real engines for tests, measurements and people: Docker, Podman and nsjail, started for one run.
//!
//! They live in an *engine host* of their own (namespaces of processes, mounts, network and cgroups, see
//! [`engine_host`]), so that nothing of the machine is touched, and killing one process ends everything that they
//! started. Their clients are started in the engine host too, because an engine resolves mount sources in its own
//! namespace.
//!
//! A *supervisor*, which is this program again, builds the engine host and takes it down when its standard input ends. So it does when we are
//! interrupted or killed.

mod docker;
mod engine_host;
mod image;
pub(crate) mod nsjail;
mod podman;
pub(crate) mod supervisor;

use crate::{cargo, machine, own_tmp, packages, run};
use anyhow::{Context, Result, bail, ensure};
use engine_host::Entrance;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The variables by which suites find the engines; see `tests/src/engines.rs`.
const DOCKER_VARIABLE: &str = "STRONGBOX_TEST_DOCKER";
const PODMAN_VARIABLE: &str = "STRONGBOX_TEST_PODMAN";
pub(crate) const NSJAIL_VARIABLE: &str = "STRONGBOX_TEST_NSJAIL";
const IMAGE_VARIABLE: &str = "STRONGBOX_TEST_IMAGE";

/// The same for who starts engines itself, or calls their programs.
const ARCHIVE_VARIABLE: &str = "STRONGBOX_TEST_IMAGE_ARCHIVE";
const PODMAN_CONFIGURATION_VARIABLE: &str = "STRONGBOX_TEST_PODMAN_CONFIGURATION";
const PODMAN_ROOT_VARIABLE: &str = "STRONGBOX_TEST_PODMAN_ROOT";
const PODMAN_RUN_VARIABLE: &str = "STRONGBOX_TEST_PODMAN_RUN";

/// Says to a suite that it is in a engine host already, and need not make namespaces of its own.
const ENGINE_HOST_VARIABLE: &str = "STRONGBOX_TEST_HOUSE";

/// What the engines are made of.
const PACKAGES: [&str; 9] = [
    "docker.io",
    "iptables",
    "podman",
    "containernetworking-plugins",
    "runc",
    "uidmap",
    "iproute2",
    "busybox-static",
    "docker-registry",
];

/// What was asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The command to run among them, for example a shell
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

/// The verb: starts the engines, runs the command among them, and ends them with it.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let metadata = cargo::metadata()?;
    let engines = Engines::start(metadata.target_directory.as_std_path(), &Engine::ALL)?;
    for reason in engines.missing() {
        println!("skipped: {reason}");
    }
    let (program, arguments) = options.command.split_first().context("no command was given")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(std::env::current_dir()?);
    let is_success = run::plainly(engines.enter(&command))?;
    engines.stop()?;
    Ok(if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An ordinary user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
}

impl std::fmt::Display for Account {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}:{}", self.uid, self.gid, self.home.display())
    }
}

impl std::str::FromStr for Account {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.splitn(3, ':').collect::<Vec<_>>()[..] {
            [uid, gid, home] => Ok(Self { uid: uid.parse()?, gid: gid.parse()?, home: PathBuf::from(home) }),
            _ => bail!("{text:?} is not UID:GID:HOME"),
        }
    }
}

/// An engine that can be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    Docker,
    Podman,
}

impl Engine {
    pub(crate) const ALL: [Self; 2] = [Self::Docker, Self::Podman];

    /// The value of `--engine` that starts it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

/// Engines that run until this is dropped.
pub(crate) struct Engines {
    supervisor: Child,
    /// Closing it ends the supervisor.
    until: Option<ChildStdin>,
    entrance: Entrance,
    environment: Vec<(String, String)>,
    missing: Vec<String>,
}

impl Engines {
    /// The name of the image of the tests.
    pub(crate) const IMAGE: &str = image::NAME;

    /// Installs missing packages, if this is root, and starts these engines. [`Engines::missing`] lists what could not be
    /// started. nsjail needs no engine and is always there.
    pub(crate) fn start(target: &Path, wanted: &[Engine]) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = target.join(format!("engines-{}-{number}", std::process::id()));
        Self::start_in(target, &directory, wanted, None)
    }

    /// The same with nothing but a Podman of an ordinary user, who may not be able to enter the target directory.
    pub(crate) fn start_as(target: &Path, account: &Account) -> Result<Self> {
        let place = tempfile::Builder::new().prefix("strongbox-engines-").tempdir_in(own_tmp::PLACE)?;
        std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        // From here on it is the supervisor's to remove.
        Self::start_in(target, &place.keep(), &[Engine::Podman], Some(account))
    }

    fn start_in(target: &Path, directory: &Path, wanted: &[Engine], account: Option<&Account>) -> Result<Self> {
        ensure!(machine::is_root(), "not root; engines in namespaces of their own need it");
        let (mut missing, image) = Self::prepare(target)?;
        let mut environment = vec![(ENGINE_HOST_VARIABLE.to_owned(), "1".to_owned())];
        match nsjail::find() {
            Ok(program) => environment.push((NSJAIL_VARIABLE.to_owned(), program.display().to_string())),
            Err(error) => missing.push(format!("nsjail: {error:#}")),
        }
        let mut supervisor = supervisor::command(directory, &image, wanted, account);
        // A group of its own: an interrupt at the terminal must reach us and not the one who tidies up after us.
        supervisor.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut supervisor = supervisor.spawn().context("starting the supervisor of the engines")?;
        let until = supervisor.stdin.take();
        let said = supervisor.stdout.take().context("the supervisor has no output")?;
        let mut engines = Self { supervisor, until, entrance: Entrance::default(), environment, missing };
        engines.hear(BufReader::new(said))?;
        Ok(engines)
    }

    /// Installs what engines need, and makes the image of the tests. Returns what is missing, and where the image is.
    pub(crate) fn prepare(target: &Path) -> Result<(Vec<String>, PathBuf)> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = packages::install(&PACKAGES);
        let missing = missing.into_iter().map(|it| format!("package {}: {}", it.package, it.reason)).collect();
        let image = image::ensure(&target.join("test-image")).context("making the image of the tests")?;
        Ok((missing, image))
    }

    /// Listens to the supervisor until it says that everything that can stand stands.
    fn hear(&mut self, said: impl BufRead) -> Result<()> {
        for line in said.lines() {
            let line = line?;
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("ready", _) => return Ok(()),
                ("init", pid) => pid.clone_into(&mut self.entrance.init),
                ("group", path) => self.entrance.groups.push(PathBuf::from(path)),
                ("set", pair) => {
                    let (name, value) = pair.split_once('=').context("a variable without a value")?;
                    self.environment.push((name.to_owned(), value.to_owned()));
                }
                ("missing", reason) => self.missing.push(reason.to_owned()),
                _ => println!("{line}"),
            }
        }
        bail!("the supervisor of the engines ended before they stood")
    }

    /// Whether this engine is selected.
    pub(crate) fn has(&self, engine: Engine) -> bool {
        let variable = match engine {
            Engine::Docker => DOCKER_VARIABLE,
            Engine::Podman => PODMAN_VARIABLE,
        };
        self.environment.iter().any(|(name, _)| name == variable)
    }

    /// What could not be started, and why.
    pub(crate) fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The same command, started in the engine host with the addresses of the engines in its environment.
    pub(crate) fn enter(&self, command: &Command) -> Command {
        let mut inside = self.entrance.command(command);
        inside.envs(self.environment.iter().map(|(name, value)| (name, value)));
        inside
    }

    /// The same for a command that must not inherit this environment.
    pub(crate) fn enter_without_ours(&self, command: &Command) -> Command {
        let known = self.enter(command);
        let mut inside = Command::new(known.get_program());
        inside.args(known.get_args()).env_clear();
        inside.envs(known.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside
    }

    /// Ends them and removes everything that they left.
    pub(crate) fn stop(mut self) -> Result<()> {
        drop(self.until.take());
        let status = self.supervisor.wait()?;
        ensure!(status.success(), "the supervisor of the engines ended with {status}");
        Ok(())
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        drop(self.until.take());
        let _ = self.supervisor.wait();
    }
}
