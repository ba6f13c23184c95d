//! What of the host a box sees when it has no image: the programs, and the few settings without which they do not work.

mod writable;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use box_wire::GuestPath;

pub use writable::Writable;

/// Directories and large files of the host's `/etc` that programs need and that hold nothing of the host's own. Everything else
/// is made for the box.
const SETTINGS: [&str; 3] = ["alternatives", "ld.so.cache", "ssl/certs"];

/// Small files of the same kind. They are copied, because a copy costs less than a mount.
const SMALL_SETTINGS: [&str; 4] = ["localtime", "protocols", "services", "ssl/openssl.cnf"];

/// A file that is larger is not copied.
const SMALL_BYTES_MAX: u64 = 32 << 10;

/// Beginnings of names in `/etc` of which there is one for each installed version.
const VERSIONED_SETTINGS: [&str; 1] = ["java-"];

/// Places at the top that hold programs; links into `/usr` on most systems, directories on some.
const PROGRAMS: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// What kind of place a tree needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
}

/// What of the host a box sees when it has no image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostRoot {
    /// Files and directories of the host, and where they stand in the box: at the same place.
    pub trees: Vec<(PathBuf, GuestPath, TreeKind)>,
    /// Small files, with their contents.
    pub files: Vec<(GuestPath, Vec<u8>)>,
    /// Symbolic links to create, with their targets.
    pub links: Vec<(GuestPath, String)>,
    /// See [`HostRoot::writable`].
    pub writable: OnceLock<Writable>,
    /// Files hidden from a box.
    pub hidden: Vec<GuestPath>,
    /// The shell that people expect: `/bin/bash` where there is one.
    pub shell: &'static str,
}

impl HostRoot {
    /// Looks at the host, once.
    pub fn get() -> &'static Self {
        static FOUND: OnceLock<HostRoot> = OnceLock::new();
        FOUND.get_or_init(|| Self::find(Path::new("/")))
    }

    /// Additions for a box with a writable root. Loaded on first use: most boxes have a read-only root, and reading dozens of
    /// directories takes longer than making a box.
    pub fn writable(&self) -> &Writable {
        self.writable.get_or_init(|| Writable::find(Path::new("/")))
    }

    fn find(root: &Path) -> Self {
        let mut found = Self::default();
        found.add_tree(root, "usr");
        let hidden = writable::managed(&root.join("usr")).into_iter();
        found.hidden = hidden.filter_map(|name| GuestPath::parse("path", &format!("/usr/{name}")).ok()).collect();
        found.shell = if root.join("bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
        for name in PROGRAMS {
            match std::fs::read_link(root.join(name)) {
                Ok(target) => found.add_link(name, &target),
                Err(_) => found.add_tree(root, name),
            }
        }
        for name in SETTINGS {
            found.add_setting(root, &format!("etc/{name}"));
        }
        for name in SMALL_SETTINGS {
            found.add_small_setting(root, &format!("etc/{name}"));
        }
        let mut versioned: Vec<String> = std::fs::read_dir(root.join("etc"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| VERSIONED_SETTINGS.iter().any(|start| name.starts_with(start)))
            .collect();
        versioned.sort_unstable();
        for name in versioned {
            found.add_setting(root, &format!("etc/{name}"));
        }
        found
    }

    /// A setting may be a link into `/usr`, which is there too; else it is taken as it is.
    fn add_setting(&mut self, root: &Path, name: &str) {
        match std::fs::read_link(root.join(name)) {
            Ok(target) if target.starts_with("/usr") => self.add_link(name, &target),
            Ok(_) => {}
            Err(_) => self.add_tree(root, name),
        }
    }

    fn add_small_setting(&mut self, root: &Path, name: &str) {
        if std::fs::read_link(root.join(name)).is_ok() {
            return self.add_setting(root, name);
        }
        let small = root.join(name).metadata().is_ok_and(|found| found.is_file() && found.len() <= SMALL_BYTES_MAX);
        let Ok(path) = GuestPath::parse("path", &format!("/{name}")) else { return };
        if let (true, Ok(contents)) = (small, std::fs::read(root.join(name))) {
            self.files.push((path, contents));
        }
    }

    fn add_tree(&mut self, root: &Path, name: &str) {
        let source = root.join(name);
        let Ok(target) = GuestPath::parse("path", &format!("/{name}")) else { return };
        match source.symlink_metadata() {
            Ok(found) if found.is_dir() => self.trees.push((source, target, TreeKind::Directory)),
            Ok(found) if found.is_file() => self.trees.push((source, target, TreeKind::File)),
            _ => {}
        }
    }

    fn add_link(&mut self, name: &str, target: &Path) {
        if let (Ok(path), Some(target)) = (GuestPath::parse("path", &format!("/{name}")), target.to_str()) {
            self.links.push((path, target.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_etc_are_not_among_it() {
        let found = HostRoot::get();
        let shown: Vec<&str> = found.trees.iter().map(|(_, target, _)| target.as_str()).collect();
        assert!(shown.contains(&"/usr"));
        for secret in ["/etc", "/etc/shadow", "/etc/passwd", "/etc/ssl", "/etc/ssl/private", "/etc/ssh", "/etc/hosts"] {
            assert!(!shown.contains(&secret), "{secret}");
        }
    }
}
