//! Builds the agent as a static program of its own and hands its path to the crate.
//!
//! It runs a nested cargo with a target directory of its own, because the outer cargo holds the lock of the usual one. All
//! profiles share that directory, so a checkout builds the agent once. `--target` is named so that the flags for a static
//! program do not reach build scripts and procedural macros.

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() -> Result<(), String> {
    let workspace = workspace()?;
    for watched in ["crates/agent", "crates/wire", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(watched).display());
    }
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|error| error.to_string())?);
    let binary =
        build(&workspace, &agent_directory(&out)).map_err(|error| format!("running cargo for the agent: {error}"))?;
    println!("cargo::rustc-env=STRONGBOX_AGENT={}", binary.display());
    let bytes = std::fs::read(&binary).map_err(|error| format!("reading {}: {error}", binary.display()))?;
    let digest = Sha256::digest(&bytes).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    println!("cargo::rustc-env=STRONGBOX_AGENT_DIGEST={digest}");
    Ok(())
}

fn workspace() -> Result<PathBuf, String> {
    let manifest = env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    let above = Path::new(&manifest).parent().and_then(Path::parent);
    above.map(Path::to_owned).ok_or_else(|| format!("{manifest} is not two levels below the workspace"))
}

/// `agent` in the outermost target directory; cargo marks each with this file. Where no ancestor is marked, the agent is built
/// in `OUT_DIR`.
fn agent_directory(out: &Path) -> PathBuf {
    let target = out.ancestors().filter(|directory| directory.join("CACHEDIR.TAG").exists()).last();
    target.unwrap_or(out).join("agent")
}

fn build(workspace: &Path, target_dir: &Path) -> io::Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(workspace);
    command.args(["build", "--package", "box-agent", "--bin", "strongbox-agent", "--profile", "agent"]);
    command.args(["--target", TARGET, "--target-dir"]).arg(target_dir);
    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static");
    // Flags and wrappers of the outer build do not apply to this program.
    for inherited in ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET"] {
        command.env_remove(inherited);
    }
    let status = command.status()?;
    if !status.success() {
        return Err(io::Error::other(format!("cargo ended with {status}")));
    }
    Ok(target_dir.join(TARGET).join("agent/strongbox-agent"))
}
