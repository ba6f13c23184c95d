//! The image of the tests: a root file system of packages that this machine has installed, so that no registry is needed.
//!
//! It is made in seconds and kept until a package changes.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the image is called in an engine. With the name of a host in front, no engine asks a registry for it.
pub(super) const NAME: &str = "localhost/strongbox-test:1";

/// Raised whenever something else is made of the same packages.
const RECIPE: u32 = 2;

/// What the cases use; what these depend on comes with them.
const PACKAGES: [&str; 21] = [
    "base-files",
    "bash",
    "ca-certificates",
    "coreutils",
    "dash",
    "debianutils",
    "diffutils",
    "findutils",
    "git",
    "grep",
    "gzip",
    "hostname",
    "iproute2",
    "libc-bin",
    "mawk",
    "mount",
    "procps",
    "python3",
    "sed",
    "tar",
    "util-linux",
];

/// What git depends on and no case uses: scripts, manuals, and repositories of other machines.
const NOT_TAKEN: [&str; 4] = ["git-man", "libcurl3-gnutls", "liberror-perl", "perl"];

/// Directories of which only the directories themselves are taken: nothing that runs reads them.
const LEFT_OUT: [&str; 7] = ["man", "info", "locale", "lintian", "zoneinfo", "perl", "bash-completion"];

/// The directories that are links into `/usr`.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];

/// Makes the archive below this directory, unless it is there and made of the same packages.
pub(super) fn ensure(directory: &Path) -> Result<PathBuf> {
    let (archive, mark) = (directory.join("image.tar"), directory.join("made-of"));
    let (packages, versions) = closure(&installed()?);
    if archive.is_file() && fs::read_to_string(&mark).is_ok_and(|text| text == versions) {
        return Ok(archive);
    }
    let skeleton = directory.join("skeleton");
    let _ = fs::remove_dir_all(&skeleton);
    lay_skeleton(&skeleton)?;
    let mut paths = paths_of(&packages)?;
    // Engines refuse archives in which one path comes twice.
    paths.retain(|path| skeleton.join(path.strip_prefix("/").unwrap_or(path)).symlink_metadata().is_err());
    pack(&archive, &skeleton, &paths)?;
    fs::write(mark, versions)?;
    Ok(archive)
}

/// A package that is installed: its version and what it depends on.
struct Package {
    version: String,
    depends: Vec<String>,
}

fn installed() -> Result<BTreeMap<String, Package>> {
    let format = "-f=${db:Status-Status}\t${Package}\t${Version}\t${Pre-Depends}, ${Depends}\n";
    let output = Command::new("dpkg-query").args(["-W", format]).output().context("asking dpkg for packages")?;
    ensure!(output.status.success(), "dpkg-query: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(parse).collect())
}

/// One line of the answer; packages that are not wholly installed count as missing.
fn parse(line: &str) -> Option<(String, Package)> {
    let fields: Vec<&str> = line.split('\t').collect();
    let ["installed", name, version, depends] = fields[..] else { return None };
    let name_of = |one: &str| one.split([' ', '(', ':']).find(|word| !word.is_empty()).map(str::to_owned);
    let depends = depends.split([',', '|']).filter_map(name_of).collect();
    Some((name.to_owned(), Package { version: version.to_owned(), depends }))
}

/// The packages with all that they depend on, as far as it is installed, and a text that changes when one of them does.
fn closure(installed: &BTreeMap<String, Package>) -> (BTreeSet<String>, String) {
    let mut found = BTreeSet::new();
    let mut ahead: Vec<String> = PACKAGES.map(str::to_owned).to_vec();
    while let Some(name) = ahead.pop() {
        if let Some(package) = installed.get(&name)
            && !NOT_TAKEN.contains(&name.as_str())
            && found.insert(name)
        {
            ahead.extend(package.depends.iter().cloned());
        }
    }
    let version = |name: &String| installed.get(name).map_or("", |package| package.version.as_str());
    let lines: Vec<String> = found.iter().map(|name| format!("{name} {}", version(name))).collect();
    (found, format!("recipe {RECIPE}\n{}", lines.join("\n")))
}

/// All paths of the packages, each once and where it really lies.
fn paths_of(packages: &BTreeSet<String>) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("dpkg").arg("-L").args(packages).output().context("asking dpkg for files")?;
    ensure!(output.status.success(), "dpkg -L: {}", output.status);
    let mut paths = BTreeSet::new();
    for line in String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.starts_with('/') && line.len() > 2) {
        let path = merged(Path::new(line));
        if is_left_out(&path) || path.symlink_metadata().is_err() {
            continue;
        }
        // Otherwise Python compiles its modules at each start.
        let compiled = fs::read_dir(path.join("__pycache__")).into_iter().flatten().flatten().map(|entry| entry.path());
        paths.extend(compiled);
        paths.insert(path);
    }
    paths.extend(fs::read_dir("/etc/alternatives")?.flatten().map(|entry| entry.path()));
    Ok(paths)
}

/// The path below `/usr` of what old packages list outside of it.
fn merged(path: &Path) -> PathBuf {
    let below = path.strip_prefix("/").unwrap_or(path);
    if MERGED.iter().any(|name| below.starts_with(name)) { Path::new("/usr").join(below) } else { path.to_owned() }
}

fn is_left_out(path: &Path) -> bool {
    let is_merged_itself = MERGED.iter().any(|name| path == Path::new("/").join(name));
    let share = LEFT_OUT.iter().any(|name| {
        let directory = Path::new("/usr/share").join(name);
        path != directory && path.starts_with(directory)
    });
    is_merged_itself
        || share
        || ["/dev", "/proc", "/sys", "/run", "/tmp", "/root"].iter().any(|it| path.starts_with(it))
}

/// What no package holds: links, mount points, accounts.
fn lay_skeleton(skeleton: &Path) -> Result<()> {
    for name in
        ["dev", "proc", "sys", "run", "tmp", "root", "workspace", "etc", "var/tmp", "opt", "srv", "mnt", "usr/local"]
    {
        fs::create_dir_all(skeleton.join(name))?;
    }
    for name in ["tmp", "var/tmp"] {
        fs::set_permissions(skeleton.join(name), fs::Permissions::from_mode(0o1777))?;
    }
    fs::set_permissions(skeleton, fs::Permissions::from_mode(0o755))?;
    for name in MERGED {
        symlink(format!("usr/{name}"), skeleton.join(name))?;
    }
    fs::write(skeleton.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")?;
    fs::write(skeleton.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    Ok(fs::write(skeleton.join("etc/nsswitch.conf"), "passwd: files\ngroup: files\nhosts: files dns\n")?)
}

/// Packs the paths of this machine and the skeleton into one archive.
fn pack(archive: &Path, skeleton: &Path, paths: &BTreeSet<PathBuf>) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--file").arg(archive).args(["--numeric-owner", "--owner=0", "--group=0"]);
    tar.arg("--directory").arg(skeleton).arg(".");
    tar.args(["--directory", "/", "--no-recursion", "--null", "--verbatim-files-from", "--files-from", "-"]);
    let mut running = tar.stdin(Stdio::piped()).spawn().context("starting tar")?;
    let mut list = running.stdin.take().context("no input")?;
    for path in paths {
        let below = path.strip_prefix("/").unwrap_or(path);
        list.write_all(below.as_os_str().as_encoded_bytes())?;
        list.write_all(b"\0")?;
    }
    drop(list);
    ensure!(running.wait()?.success(), "tar failed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_followed_and_alternatives_taken_where_they_are_installed() {
        let lines = "installed\tpython3\t3\t, libc6 (>= 2.36), awk | mawk:any\ninstalled\tlibc6\t2\t, \nconfig-files\tawk\t1\t, \n\
                     installed\tgit\t4\t, perl\ninstalled\tperl\t5\t, ";
        let installed: BTreeMap<_, _> = lines.lines().filter_map(parse).collect();
        let (found, versions) = closure(&installed);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["git", "libc6", "python3"]);
        assert_eq!(versions, format!("recipe {RECIPE}\ngit 4\nlibc6 2\npython3 3"));
    }

    #[test]
    fn paths_lie_below_usr_and_manuals_stay_out() {
        assert_eq!(merged(Path::new("/bin/sh")), Path::new("/usr/bin/sh"));
        assert_eq!(merged(Path::new("/binary")), Path::new("/binary"));
        assert!(is_left_out(Path::new("/usr/share/man/man1/sh.1.gz")) && is_left_out(Path::new("/bin")));
        assert!(!is_left_out(Path::new("/usr/share/man")) && !is_left_out(Path::new("/usr/bin/sh")));
    }
}
