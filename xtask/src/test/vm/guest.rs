//! The guest's files: a root file system on ext4, inside an initramfs that only mounts it and steps aside.
//!
//! The root is not the initramfs itself for two reasons: the kernel refuses `pivot_root` there, and a real machine's
//! root can be idmapped and overlaid, which is what boxes do with it.

use super::kernel::{Kernel, succeed};
use crate::machine;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Free space in the guest's root: for what boxes write, and the tenth of it that disk images leave free.
const ROOT_FREE_BYTES: u64 = 192 << 20;

/// Directories of the guest's root, besides those below `/usr`.
const DIRECTORIES: &[&str] = &["dev", "etc", "home", "mnt", "proc", "root", "run", "sys", "tmp", "var/lib", "var/tmp"];

/// Builds the initramfs below `directory` and says where it is.
pub(super) fn build(directory: &Path, scripts: &Path, strongbox: &Path, kernel: &Kernel) -> Result<PathBuf> {
    let busybox = machine::program("busybox").context("busybox is not installed")?;
    let root = fresh(&directory.join("root"))?;
    fill_root(&root, scripts, strongbox, &busybox)?;
    let outer = fresh(&directory.join("initramfs"))?;
    fs::create_dir_all(outer.join("root"))?;
    make_disk(&root, &outer.join("root.ext4"))?;
    fs::create_dir_all(outer.join("bin"))?;
    install(&busybox, &outer.join("bin/busybox"))?;
    symlink("busybox", outer.join("bin/sh"))?;
    install(&scripts.join("init.sh"), &outer.join("init"))?;
    for (index, module) in kernel.modules.iter().enumerate() {
        let name = module.file_name().context("a module has a name")?.to_string_lossy();
        install(module, &outer.join(format!("modules/{index}-{name}")))?;
    }
    pack(&outer, &directory.join("initramfs.gz"))
}

/// A machine with merged `/usr`, busybox for nearly everything, and strongbox.
fn fill_root(root: &Path, scripts: &Path, strongbox: &Path, busybox: &Path) -> Result<()> {
    for name in DIRECTORIES {
        fs::create_dir_all(root.join(name))?;
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(root.join("usr").join(name))?;
        symlink(format!("usr/{name}"), root.join(name))?;
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    install(busybox, &root.join("usr/bin/busybox"))?;
    let applets = Command::new(busybox).arg("--list").output().context("busybox does not run")?;
    for applet in String::from_utf8_lossy(&applets.stdout).lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", root.join("usr/bin").join(applet))?;
    }
    let mke2fs = machine::program("mke2fs").context("mke2fs is not installed")?;
    install_program(root, strongbox, "usr/bin/strongbox")?;
    install_program(root, &mke2fs, "usr/sbin/mkfs.ext4")?;
    install(&scripts.join("boot.sh"), &root.join("usr/sbin/boot"))?;
    install(&scripts.join("guest.sh"), &root.join("usr/sbin/guest"))
}

/// A program with the libraries that it needs.
fn install_program(root: &Path, program: &Path, to: &str) -> Result<()> {
    install(program, &root.join(to))?;
    for library in libraries(program)? {
        install(Path::new(&library), &root.join(place_of_library(&library)))?;
    }
    Ok(())
}

/// The shared libraries of a program, and its loader.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let output = Command::new("ldd").arg(program).output().context("ldd does not run")?;
    Ok(parse_ldd(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines like `libc.so.6 => /lib/…/libc.so.6 (0x…)` and `/lib64/ld-linux… (0x…)`. A static program has none.
fn parse_ldd(listing: &str) -> Vec<String> {
    let path_of = |line: &str| -> Option<String> {
        let path = line.split_once("=>").map_or(line, |(_, path)| path).split_whitespace().next()?;
        path.starts_with('/').then(|| path.to_owned())
    };
    listing.lines().filter_map(path_of).collect()
}

/// Everything lies below `/usr`, also what the loader finds by way of `/lib`.
fn place_of_library(library: &str) -> PathBuf {
    let path = library.trim_start_matches('/');
    if path.starts_with("usr/") { PathBuf::from(path) } else { Path::new("usr").join(path) }
}

fn make_disk(root: &Path, disk: &Path) -> Result<()> {
    let size_kib = (tree_bytes(root)? + ROOT_FREE_BYTES).div_ceil(1024);
    let mut command = Command::new(machine::program("mke2fs").context("mke2fs is not installed")?);
    command.args(["-q", "-t", "ext4", "-O", "^has_journal", "-d"]).arg(root).arg(disk).arg(format!("{size_kib}k"));
    succeed(&mut command)
}

fn tree_bytes(directory: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        total += if metadata.is_dir() { tree_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(total)
}

fn pack(tree: &Path, archive: &Path) -> Result<PathBuf> {
    let script = "set -eu; find . | cpio --create --format=newc --quiet | gzip -1 > \"$1\"";
    succeed(Command::new("sh").args(["-c", script, "pack"]).arg(archive).current_dir(tree))?;
    Ok(archive.to_owned())
}

fn fresh(directory: &Path) -> Result<PathBuf> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("cannot empty {}", directory.display()))?;
    }
    fs::create_dir_all(directory)?;
    Ok(directory.to_owned())
}

fn install(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_read_from_ldd() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
            \tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(parse_ldd(listing), ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert!(parse_ldd("\tstatically linked\n").is_empty());
    }

    #[test]
    fn libraries_end_up_below_usr() {
        assert_eq!(place_of_library("/lib64/ld.so"), Path::new("usr/lib64/ld.so"));
        assert_eq!(place_of_library("/usr/lib/a.so"), Path::new("usr/lib/a.so"));
    }
}
