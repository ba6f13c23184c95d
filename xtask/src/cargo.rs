//! Asking cargo: about the workspace, and for the executables of a build.

use anyhow::{Context, Result, bail};
use cargo_metadata::{Message, Metadata, MetadataCommand, TargetKind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The platform whose dependencies count. Without it, crates that only Windows would use look like ours.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// The workspace with its resolved dependencies.
pub(crate) fn metadata() -> Result<Metadata> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
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

/// Builds with the given arguments and says where the executables are, by target name. Only executables of the asked
/// kind count: a library's unit tests have its name and are not a suite.
pub(crate) fn executables(root: &Path, arguments: &[&str], kind: &TargetKind) -> Result<BTreeMap<String, PathBuf>> {
    let mut build = command(root, arguments);
    build.args(["--quiet", "--message-format", "json-render-diagnostics"]);
    let output = build.stderr(Stdio::inherit()).output().context("cargo could not be started")?;
    if !output.status.success() {
        bail!("`cargo {}` failed; its messages are above", arguments.join(" "));
    }
    let mut found = BTreeMap::new();
    for message in Message::parse_stream(output.stdout.as_slice()) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.target.kind.contains(kind)
            && let Some(executable) = artifact.executable
        {
            found.insert(artifact.target.name, executable.into_std_path_buf());
        }
    }
    Ok(found)
}
