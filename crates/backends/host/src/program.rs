//! Programs of the host that we start. The caller's `PATH` has no say: as root, it would decide what root runs.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where programs of the system live.
const DIRECTORIES: [&str; 6] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// The absolute path of a program of the system.
pub fn find(name: &str) -> Option<PathBuf> {
    find_in(DIRECTORIES.iter().map(Path::new), name)
}

fn find_in<'a>(directories: impl Iterator<Item = &'a Path>, name: &str) -> Option<PathBuf> {
    directories.map(|directory| directory.join(name)).find(|path| is_trusted(path))
}

/// Whether a file is executable, and only root can have put it there.
fn is_trusted(path: &Path) -> bool {
    let executable = rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    executable && path.metadata().is_ok_and(|file| file.is_file() && file.uid() == 0 && file.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn programs_of_the_system_are_found() {
        assert!(find("env").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("no-such-program-here"), None);
    }

    #[test]
    fn what_others_can_change_is_not_a_program_of_the_system() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("tool");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        let found = |mode| {
            std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
            find_in([directory.path()].into_iter(), "tool")
        };
        let ours = rustix::process::geteuid().is_root();
        assert_eq!(found(0o755).is_some(), ours, "only root's own files count");
        assert_eq!(found(0o775), None, "others can write it");
        assert_eq!(found(0o644), None, "it is not executable");
    }
}
