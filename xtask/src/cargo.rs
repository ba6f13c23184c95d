//! Asking cargo: about the workspace, and for the executables of a build.

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Message, Metadata, MetadataCommand, TargetKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The platform whose dependencies count. Without it, Windows-only crates look like dependencies.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

/// The workspace with its resolved dependencies.
pub(crate) fn metadata() -> Result<Metadata> {
    let manifest = root().join("Cargo.toml");
    let other_options = ["--filter-platform".to_owned(), PLATFORM.to_owned()];
    MetadataCommand::new()
        .manifest_path(manifest)
        .other_options(other_options)
        .exec()
        .context("cargo metadata failed; does `cargo check` work?")
}

/// The cargo that runs us, started in the root of the workspace.
pub(crate) fn command(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root);
    without_cargo_traces(&mut command);
    command
}

/// Takes away what cargo put into our environment to run us. It describes xtask, not what we start; and a library path
/// makes the start of every program slower, which would falsify measurements.
pub(crate) fn without_cargo_traces(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let is_trace = |name: &str| {
            name == "LD_LIBRARY_PATH" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        };
        if name.to_str().is_some_and(is_trace) {
            command.env_remove(name);
        }
    }
}

/// Whether `cargo SUBCOMMAND` is installed here.
pub(crate) fn has_subcommand(root: &Path, subcommand: &str) -> bool {
    command(root, &[subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The same cargo, with clippy as the compiler of our crates. Clippy compiles like rustc and looks for lints on the way, so one
/// compilation serves lints, tests and the tested program. What we depend on is compiled by rustc.
pub(crate) fn linting(root: &Path, arguments: &[&str]) -> Result<Command> {
    let asked =
        Command::new("rustc").args(["--print", "sysroot"]).current_dir(root).output().context("starting rustc")?;
    let driver = Path::new(String::from_utf8(asked.stdout)?.trim()).join("bin/clippy-driver");
    ensure!(driver.is_file(), "{} is missing; run: rustup component add clippy", driver.display());
    let mut command = command(root, arguments);
    command.env("RUSTC_WORKSPACE_WRAPPER", driver);
    Ok(command)
}

/// An executable that a build made.
#[derive(Debug, Clone)]
pub(crate) struct Executable {
    /// The directory of its package, relative to the root of the workspace.
    pub(crate) package: PathBuf,
    pub(crate) target: String,
    pub(crate) kind: TargetKind,
    pub(crate) path: PathBuf,
}

impl Executable {
    /// Reads one line of `--message-format json`; none if it is another kind of message. The tests inside a library or
    /// a program are not separate executables.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let Message::CompilerArtifact(artifact) = serde_json::from_str(line).ok()? else { return None };
        let kind = artifact.target.kind.first()?.clone();
        let is_own = kind == TargetKind::Test || !artifact.profile.test;
        let package = artifact.manifest_path.parent()?.as_std_path().strip_prefix(root()).ok()?.to_owned();
        let path = artifact.executable?.into_std_path_buf();
        is_own.then_some(Self { package, target: artifact.target.name, kind, path })
    }
}

/// Builds with the given arguments and returns the program of this name.
pub(crate) fn program(root: &Path, arguments: &[&str], name: &str) -> Result<PathBuf> {
    let mut build = command(root, arguments);
    build.args(["--quiet", "--message-format", "json-render-diagnostics"]);
    let output = build.stderr(Stdio::inherit()).output().context("cargo could not be started")?;
    ensure!(output.status.success(), "`cargo {}` failed; its messages are above", arguments.join(" "));
    let said = String::from_utf8_lossy(&output.stdout);
    let mut programs = said.lines().filter_map(Executable::parse).filter(|it| it.kind == TargetKind::Bin);
    programs.find(|it| it.target == name).map(|it| it.path).with_context(|| format!("no program {name} was built"))
}
