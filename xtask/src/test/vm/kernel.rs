//! The kernel that the guest boots: Debian's, made for virtual machines, unpacked but not installed.

use crate::packages;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that always depends on the newest kernel for virtual machines.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";

/// Modules that the guest loads: the loop device carries its root, and boxes use the others.
const MODULES: &[&str] = &["loop", "overlay"];

/// An unpacked kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    /// What the machine boots.
    pub(super) image: PathBuf,
    /// The modules that the guest loads, in this order.
    pub(super) modules: Vec<PathBuf>,
}

/// Downloads and unpacks the kernel below `directory`, unless an earlier run did.
pub(super) fn fetch(directory: &Path) -> Result<Kernel> {
    let unpacked = directory.join("kernel");
    if let Ok(kernel) = find(&unpacked) {
        return Ok(kernel);
    }
    let package = concrete_package().or_else(|| {
        packages::update();
        concrete_package()
    });
    let package = package.with_context(|| format!("apt knows no package {KERNEL_PACKAGE}"))?;
    println!("downloading {package}");
    let download = tempfile::tempdir_in(directory)?;
    succeed(Command::new("apt-get").args(["download", "-qq", &package]).current_dir(download.path()))?;
    let archive = first_entry(download.path(), |name| name.starts_with("linux-image-"))?;
    succeed(Command::new("dpkg").arg("-x").arg(archive).arg(&unpacked))?;
    find(&unpacked)
}

/// The package of the current kernel, of which the other is only the name.
fn concrete_package() -> Option<String> {
    let output = Command::new("apt-cache").args(["depends", KERNEL_PACKAGE]).output().ok()?;
    dependency(&String::from_utf8_lossy(&output.stdout))
}

fn dependency(listing: &str) -> Option<String> {
    let depends = listing.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    depends.map(str::trim).find(|package| package.starts_with("linux-image-")).map(str::to_owned)
}

fn find(unpacked: &Path) -> Result<Kernel> {
    let image = first_entry(&unpacked.join("boot"), |name| name.starts_with("vmlinuz-"))?;
    let release = first_entry(&unpacked.join("lib/modules"), |_| true)?;
    let modules = MODULES.iter().map(|name| find_below(&release.join("kernel"), &format!("{name}.ko"))).collect();
    Ok(Kernel { image, modules: modules_or_error(modules)? })
}

fn modules_or_error(found: Vec<Option<PathBuf>>) -> Result<Vec<PathBuf>> {
    found
        .into_iter()
        .zip(MODULES)
        .map(|(path, name)| path.with_context(|| format!("the kernel has no {name}.ko")))
        .collect()
}

fn first_entry(directory: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let mut wanted = entries.flatten().filter(|entry| is_wanted(&entry.file_name().to_string_lossy()));
    wanted.next().map(|entry| entry.path()).with_context(|| format!("nothing fitting in {}", directory.display()))
}

fn find_below(directory: &Path, name: &str) -> Option<PathBuf> {
    let mut to_visit = vec![directory.to_owned()];
    while let Some(directory) = to_visit.pop() {
        for entry in fs::read_dir(directory).ok()?.flatten() {
            if entry.file_name() == name {
                return Some(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                to_visit.push(entry.path());
            }
        }
    }
    None
}

/// Runs a tool; what it said is in the error.
pub(super) fn succeed(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {}", said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_concrete_kernel_is_read_from_the_dependencies() {
        let listing = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-9-cloud-amd64\n  Conflicts: other\n";
        assert_eq!(super::dependency(listing).as_deref(), Some("linux-image-6.1.0-9-cloud-amd64"));
        assert_eq!(super::dependency("linux-image-cloud-amd64\n"), None);
    }
}
