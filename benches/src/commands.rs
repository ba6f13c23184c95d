//! Programs of this machine: where they are, and how long one run of them takes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// The program that every subject runs.
pub(crate) const TRUE: &str = "/usr/bin/true";

/// The program that a variable names, else the one of that name in `PATH`.
pub(crate) fn find(variable: &str, name: &str) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(PathBuf::from(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file());
    found.with_context(|| format!("{name} is not installed"))
}

/// Asks a child to end and waits for it. A child that was reaped before is left alone: its pid may belong to another
/// process.
pub(crate) fn end(child: &mut Child, signal: Signal) {
    if matches!(child.try_wait(), Ok(None)) {
        let _ = kill_process(Pid::from_child(child), signal);
        let _ = child.wait();
    }
}

/// A command without input and output.
pub(crate) fn silent(program: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program.as_ref());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs a command to its end. Any code but 0 is an error.
pub(crate) fn time(command: &mut Command) -> Result<Duration> {
    let start = Instant::now();
    let status = command.status().with_context(|| format!("{} cannot be started", name(command)))?;
    let took = start.elapsed();
    if !status.success() {
        bail!("{} ended with {status}", name(command));
    }
    Ok(took)
}

/// Runs a command once and returns its output; an error has the last line of its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let told = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let told = told.with_context(|| format!("{} cannot be started", name(command)))?;
    if told.status.success() {
        return Ok(String::from_utf8_lossy(&told.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&told.stderr);
    let last = complaint.lines().rev().find(|line| !line.trim().is_empty());
    bail!(
        "{} {}",
        name(command),
        last.map_or_else(|| format!("ended with {}", told.status), |line| format!("says: {}", line.trim()))
    )
}

fn name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_an_error_with_its_last_complaint() {
        let told = output(Command::new("sh").args(["-c", "echo first >&2; echo second >&2; exit 3"])).unwrap_err();
        assert_eq!(told.to_string(), "sh says: second");
        assert!(time(&mut silent("/usr/bin/false", &[])).is_err());
        assert!(time(&mut silent(TRUE, &[])).is_ok());
    }
}
