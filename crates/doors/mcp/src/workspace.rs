//! Where the project of a stdio server lies on the host, and what its paths are in the box.
//!
//! Definitions are written for the host: `/home/me/project/.venv/bin/python /home/me/project/server.py`. In the box the project is a
//! workspace, and the interpreter is the box's own. Nothing here is a wall: what is inferred is only proposed, and the mount
//! policy decides on it as on everything else.

mod infer;
mod rewrite;
mod venv;

use std::path::{Component, Path, PathBuf};

pub use infer::{Inferred, infer, infer_from_env, unseen_variables};
pub use rewrite::{Invocation, Programs, Workspace};

/// Manifests by which a directory is known to be the root of a project.
pub(crate) const MANIFESTS: [&str; 5] = ["pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "package.json"];

/// Programs that run what they are given. They are the box's own, wherever they are on the host.
const RUNNERS: [&str; 15] = [
    "python", "python3", "uv", "uvx", "pipx", "node", "npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx", "deno",
    "tsx",
];

/// What is at a path of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// Where it really is, when links are followed.
    pub real: PathBuf,
    /// Its file type.
    pub kind: PlaceKind,
}

/// The file type of a path of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A socket, a device or a pipe.
    Special,
}

/// Looks paths of the host up. What is not there, or cannot be seen, is nothing.
pub type Look<'a> = &'a dyn Fn(&Path) -> Option<HostEntry>;

/// Looks at the host itself. Only for paths of an operator: links are followed.
pub fn look_at_host(path: &Path) -> Option<HostEntry> {
    let real = path.canonicalize().ok()?;
    let found = real.metadata().ok()?;
    let kind = match (found.is_dir(), found.is_file()) {
        (true, _) => PlaceKind::Directory,
        (false, true) => PlaceKind::File,
        (false, false) => PlaceKind::Special,
    };
    Some(HostEntry { real, kind })
}

/// The program that runs a project and is no part of it, as the box calls it. Versions are the box's own affair.
fn runner(program: &str) -> Option<&str> {
    let program = [".exe", ".cmd"].iter().find_map(|ending| program.strip_suffix(ending)).unwrap_or(program);
    let is_versioned = program.strip_prefix("python3.").is_some_and(|rest| rest.parse::<u8>().is_ok());
    if is_versioned { Some("python3") } else { RUNNERS.into_iter().find(|runner| *runner == program) }
}

/// An absolute path without `.`, `..` and empty components. Nothing for one that is not absolute.
fn clean(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    if !path.is_absolute() {
        return None;
    }
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(clean)
}

/// An argument, as what is before a path and the path: `--config=/etc/x` is two parts, and so is everything else with nothing before.
fn parts(argument: &str) -> (&str, &str) {
    match argument.find('=') {
        Some(at) if argument.starts_with('-') => argument.split_at(at + 1),
        _ => ("", argument),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_without_leaving_the_root() {
        for (path, expected) in
            [("/", "/"), ("//a/./b//", "/a/b"), ("/a/../b", "/b"), ("/../../a", "/a"), ("/a/b/../..", "/")]
        {
            assert_eq!(clean(path), Some(expected.into()), "{path}");
        }
        for path in ["", "a", "./a", "~", "-x", "file:///a"] {
            assert_eq!(clean(path), None, "{path}");
        }
    }

    #[test]
    fn programs_that_run_others_are_known_by_name() {
        for (program, expected) in [
            ("python3.11", Some("python3")),
            ("python", Some("python")),
            ("npx.cmd", Some("npx")),
            ("python3.x", None),
            ("python3.11-config", None),
            ("server", None),
            ("", None),
        ] {
            assert_eq!(runner(program), expected, "{program}");
        }
    }

    #[test]
    fn the_host_is_seen_through_its_links() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        std::fs::write(real.join("file"), "").unwrap();
        std::os::unix::fs::symlink("file", real.join("link")).unwrap();
        let file = HostEntry { real: real.join("file"), kind: PlaceKind::File };
        assert_eq!(look_at_host(&real.join("link")), Some(file));
        assert_eq!(look_at_host(&real), Some(HostEntry { real: real.clone(), kind: PlaceKind::Directory }));
        assert_eq!(look_at_host(&real.join("none")), None);
        let _listener = std::os::unix::net::UnixListener::bind(real.join("socket")).unwrap();
        assert_eq!(look_at_host(&real.join("socket")).map(|place| place.kind), Some(PlaceKind::Special));
    }
}
