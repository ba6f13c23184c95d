//! The kernel itself and the calls that boxes need of it.

use box_core::backend::Finding;

use super::{good, missing, setting, trial, weaker};

/// The oldest supported version: the first whose overlays take mapped ids. README.md names it too.
const VERSION_MIN: (u32, u32) = (5, 19);

/// What an older kernel needs.
pub(super) const NEWER: &str = "boot Linux 5.19 or newer";

/// The version of the kernel.
pub(super) fn version() -> Finding {
    const NAME: &str = "kernel";
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let detail = format!("Linux {release}");
    if !trial::has_mount_setattr() {
        return missing(NAME, format!("{detail} cannot change mounts by descriptor"), NEWER);
    }
    match parse_release(&release) {
        Some(version) if version >= VERSION_MIN => good(NAME, detail),
        Some(_) => weaker(NAME, format!("{detail} is older than the oldest supported version"), Some(NEWER)),
        None => weaker(NAME, format!("{detail} is of unknown version"), Some(NEWER)),
    }
}

fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// System call filters.
pub(super) fn seccomp() -> Finding {
    const NAME: &str = "seccomp";
    match trial::seccomp_can_kill() {
        Ok(()) => good(NAME, "system call filters work"),
        Err(error) => {
            let fix = "boot a kernel with CONFIG_SECCOMP_FILTER=y, or run strongbox outside of the container";
            missing(NAME, format!("there are no system call filters ({error})"), fix)
        }
    }
}

/// The second lock behind the mounts.
pub(super) fn landlock() -> Finding {
    const NAME: &str = "landlock";
    match trial::landlock_abi() {
        Ok(abi) => good(NAME, format!("version {abi}")),
        Err(error) => weaker(
            NAME,
            format!("not there ({error}): read-only mounts are the only lock on files"),
            Some("add landlock to the list of lsm= on the kernel's command line, or boot Linux 5.19 or newer"),
        ),
    }
}

/// Processes by descriptor, and starting them where they belong.
pub(super) fn process_handles() -> Finding {
    const NAME: &str = "process_handles";
    let own = rustix::process::getpid();
    let pidfd = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty());
    let fix = "run strongbox outside of the container, or start the container with --security-opt seccomp=unconfined";
    match pidfd {
        Err(error) => missing(NAME, format!("pidfd_open is refused ({error})"), fix),
        Ok(_) if !trial::has_clone3() => missing(NAME, "clone3 is refused, as an old container engine does", fix),
        Ok(_) => good(NAME, "pidfd and clone3"),
    }
}

/// Where crashes go. The handler is run by the kernel as root of the host, so a box must not be able to feed it.
pub(super) fn core_dumps() -> Finding {
    const NAME: &str = "core_dumps";
    match setting("/proc/sys/kernel/core_pattern") {
        Some(pattern) if pattern.starts_with('|') => {
            let program = pattern.trim_start_matches('|').split_whitespace().next().unwrap_or_default().to_owned();
            good(NAME, format!("crashes here start {program}; the core limit of boxes, 1 byte, keeps theirs from it"))
        }
        _ => good(NAME, "crashes here start no program"),
    }
}

#[cfg(test)]
mod tests {
    use super::{NEWER, VERSION_MIN, parse_release};

    #[test]
    fn releases_of_all_kinds_are_understood() {
        for (release, version) in [("6.18.0", (6, 18)), ("5.15.0-91-generic", (5, 15)), ("6.1-rc3", (6, 1))] {
            assert_eq!(parse_release(release), Some(version));
        }
        assert_eq!(parse_release("weird"), None);
    }

    #[test]
    fn the_readme_and_the_doctor_name_the_same_version() {
        let version = format!("Linux {}.{} or newer", VERSION_MIN.0, VERSION_MIN.1);
        let readme = include_str!("../../../../../README.md");
        let words: Vec<&str> = readme.split_whitespace().collect();
        assert!(words.join(" ").contains(&version), "README.md does not require {version}");
        assert_eq!(NEWER, format!("boot {version}"));
    }
}
