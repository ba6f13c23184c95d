//! Builds the agent as a static program of its own and hands its path to the crate.
//!
//! A nested cargo with its own target directory: the outer one holds the lock of the usual directory, and flags for a static
//! program must not reach build scripts or procedural macros, which is why the target is named.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() -> Result<(), String> {
    let workspace = workspace()?;
    for watched in ["crates/box-agent", "crates/box-wire", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(watched).display());
    }
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|error| error.to_string())?);
    let binary = build(&workspace, &out).map_err(|error| format!("running cargo for the agent: {error}"))?;
    println!("cargo::rustc-env=STRONGBOX_AGENT={}", binary.display());
    Ok(())
}

fn workspace() -> Result<PathBuf, String> {
    let manifest = env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    let above = Path::new(&manifest).parent().and_then(Path::parent);
    above.map(Path::to_owned).ok_or_else(|| format!("{manifest} is not two levels below the workspace"))
}

fn build(workspace: &Path, out: &Path) -> io::Result<PathBuf> {
    let target_dir = out.join("agent");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(workspace);
    command.args(["build", "--package", "box-agent", "--bin", "strongbox-agent", "--profile", "agent"]);
    command.args(["--target", TARGET, "--target-dir"]).arg(&target_dir);
    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static");
    // What the outer build was told about its own flags, or wraps its compiler in, is not meant for this program.
    for inherited in ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET"] {
        command.env_remove(inherited);
    }
    let status = command.status()?;
    if !status.success() {
        return Err(io::Error::other(format!("cargo ended with {status}")));
    }
    Ok(target_dir.join(TARGET).join("agent/strongbox-agent"))
}
