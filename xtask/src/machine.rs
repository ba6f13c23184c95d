//! What the machine and the caller are: root or not, and which programs are there.

use std::path::PathBuf;

/// Whether this process may do what root may.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where things are kept that every checkout of this user can use.
pub(crate) fn cache() -> PathBuf {
    let home = || std::env::var_os("HOME").map_or_else(|| "/var".into(), PathBuf::from).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("strongbox-tests")
}

/// Where a program lies, looked up in `PATH` and in the directories where Debian keeps programs for root.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let for_root = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(for_root).map(|directory| directory.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_program_is_found_in_the_path_and_an_invented_one_is_not() {
        assert!(super::program("sh").is_some());
        assert!(super::program("no-such-program-anywhere").is_none());
    }
}
