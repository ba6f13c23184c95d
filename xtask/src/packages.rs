//! Debian packages: which are missing, and installing them when we may.

use crate::machine;
use std::process::{Command, Stdio};

/// Other installers may be at work; they get this long.
const LOCK_WAIT_OPTION: &str = "DPkg::Lock::Timeout=300";

/// A package that is not there, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Its name.
    pub(crate) package: String,
    /// Why it is still missing, and what would help.
    pub(crate) reason: String,
}

/// Those of the packages that are not installed.
pub(crate) fn missing<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    packages.iter().copied().filter(|package| !is_installed(package)).collect()
}

/// Installs what is missing, if we are root and have apt. What could not be installed is given back with the reason.
pub(crate) fn install(packages: &[&str]) -> Vec<Missing> {
    let wanted = missing(packages);
    if wanted.is_empty() {
        return Vec::new();
    }
    if machine::program("apt-get").is_none() {
        return with_reason(&wanted, "this machine has no apt-get; install it with the package manager that it has");
    }
    if !machine::is_root() {
        let command = format!("not root; run: apt-get install --no-install-recommends {}", wanted.join(" "));
        return with_reason(&wanted, &command);
    }
    println!("installing {}", wanted.join(" "));
    update();
    if apt_install(&wanted).is_err() {
        // One package that cannot be had must not take the others with it.
        for package in &wanted {
            let _ = apt_install(&[package]);
        }
    }
    missing(&wanted).into_iter().map(why_still_missing).collect()
}

/// Refreshes the package lists. A failure shows when a package is then installed or downloaded.
pub(crate) fn update() {
    let _ = apt_get(&["update", "-qq"]);
}

fn is_installed(package: &str) -> bool {
    let query = Command::new("dpkg-query").args(["-W", "-f=${db:Status-Status}", package]).output();
    query.is_ok_and(|output| output.stdout == b"installed")
}

fn with_reason(packages: &[&str], reason: &str) -> Vec<Missing> {
    packages.iter().map(|package| Missing { package: (*package).into(), reason: reason.into() }).collect()
}

fn why_still_missing(package: &str) -> Missing {
    let reason = apt_install(&[package]).err().unwrap_or_else(|| "apt-get said it was installed".into());
    Missing { package: package.into(), reason }
}

fn apt_install(packages: &[&str]) -> Result<(), String> {
    apt_get(&[&["install", "-y", "-qq", "--no-install-recommends"], packages].concat())
}

/// Runs apt-get without questions; on failure gives the last line that it said.
fn apt_get(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("apt-get")
        .args(["-o", LOCK_WAIT_OPTION])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("apt-get could not be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("apt-get failed silently").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invented_package_is_missing() {
        assert_eq!(missing(&["no-such-package-anywhere"]), ["no-such-package-anywhere"]);
    }
}
