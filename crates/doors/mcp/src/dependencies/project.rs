//! What a project says that it needs.

use std::io::Read;

use box_core::{Error, Result, SafeRoot, hexadecimal::sha256};
use box_wire::Invalid;
use rustix::fs::FileType;
use serde_json::Value;

use crate::limits::{LOCK_FILE_BYTES_MAX, MANIFEST_BYTES_MAX};

/// Files of which one byte changes what is installed, with what each may hold.
const MANIFESTS: [(&str, u64); 7] = [
    ("requirements.txt", MANIFEST_BYTES_MAX),
    ("pyproject.toml", MANIFEST_BYTES_MAX),
    ("setup.py", MANIFEST_BYTES_MAX),
    ("setup.cfg", MANIFEST_BYTES_MAX),
    ("package.json", MANIFEST_BYTES_MAX),
    ("package-lock.json", LOCK_FILE_BYTES_MAX),
    ("npm-shrinkwrap.json", LOCK_FILE_BYTES_MAX),
];
/// Part of the key. It changes with what is made of manifests, so that nothing older is found.
const EDITION: &str = "1";
/// Characters of the key: enough that no two manifests of one server ever meet.
const KEY_CHARS: usize = 32;

/// What a project needs to be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// What is installed for Python.
    pub python: Option<Python>,
    /// What is installed for Node.js.
    pub node: Option<Node>,
    /// Names what is made of the manifests: it changes when they do.
    pub key: String,
}

/// What is installed for Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Python {
    /// What `requirements.txt` lists.
    Requirements,
    /// The project itself, with what it depends on.
    Package,
    /// First the one, then the other.
    Both,
}

/// How `node_modules` are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// Exactly as a lock file says.
    Locked,
    /// As the registry has it.
    Unlocked,
}

impl Python {
    /// The word of the script for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requirements => "requirements",
            Self::Package => "package",
            Self::Both => "requirements+package",
        }
    }
}

impl Node {
    /// The word of the script, and of npm, for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Locked => "ci",
            Self::Unlocked => "install",
        }
    }
}

/// The manifests that a project has, by name.
struct Manifests(Vec<(&'static str, Vec<u8>)>);

impl Project {
    /// Reads the manifests of a project. One that is a link, or anything but a file, is none. One that is too large is refused.
    pub fn examine(root: &SafeRoot) -> Result<Self> {
        let manifests = Manifests::read(root)?;
        let has_modules = has(root, "node_modules", FileType::Directory)?;
        Ok(Self {
            python: manifests.python(),
            // Whatever is there was installed by whoever runs the project outside, and is used as it is.
            node: manifests.node().filter(|_| !has_modules),
            key: manifests.key(),
        })
    }

    /// Whether anything is to be installed.
    pub fn installs(&self) -> bool {
        self.python.is_some() || self.node.is_some()
    }
}

impl Manifests {
    fn read(root: &SafeRoot) -> Result<Self> {
        let mut found = Vec::new();
        for (name, bytes_max) in MANIFESTS {
            found.extend(read_file(root, name, bytes_max)?.map(|bytes| (name, bytes)));
        }
        Ok(Self(found))
    }

    fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, bytes)| bytes.as_slice())
    }

    fn has_line(&self, name: &str, is_it: impl Fn(&str) -> bool) -> bool {
        self.get(name).is_some_and(|bytes| String::from_utf8_lossy(bytes).lines().any(|line| is_it(line.trim())))
    }

    fn python(&self) -> Option<Python> {
        let has_requirements = self.has_line("requirements.txt", |line| !line.is_empty() && !line.starts_with('#'));
        // Many projects have these files for their linters, and are no package.
        let is_package = self.get("setup.py").is_some()
            || self.has_line("setup.cfg", |line| line.starts_with("[metadata]"))
            || self.has_line("pyproject.toml", |line| {
                line.starts_with("[project]") || line.starts_with("[build-system]") || line.starts_with("[tool.poetry]")
            });
        match (has_requirements, is_package) {
            (true, true) => Some(Python::Both),
            (true, false) => Some(Python::Requirements),
            (false, true) => Some(Python::Package),
            (false, false) => None,
        }
    }

    fn node(&self) -> Option<Node> {
        let package = self.get("package.json")?;
        // What cannot be read is for npm to complain of.
        let needs_something = serde_json::from_slice::<Value>(package).map_or(true, |package| {
            let lists = ["dependencies", "devDependencies", "optionalDependencies", "workspaces"];
            lists.iter().filter_map(|list| package.get(list)).any(is_filled)
        });
        let is_locked = ["package-lock.json", "npm-shrinkwrap.json"].iter().any(|name| self.get(name).is_some());
        needs_something.then_some(if is_locked { Node::Locked } else { Node::Unlocked })
    }

    fn key(&self) -> String {
        let lines = self.0.iter().map(|(name, bytes)| format!("{name} {}\n", sha256(bytes)));
        let whole: String = std::iter::once(format!("{EDITION}\n")).chain(lines).collect();
        sha256(whole.as_bytes()).chars().take(KEY_CHARS).collect()
    }
}

fn is_filled(list: &Value) -> bool {
    list.as_object().is_some_and(|list| !list.is_empty()) || list.as_array().is_some_and(|list| !list.is_empty())
}

fn has(root: &SafeRoot, name: &str, kind: FileType) -> Result<bool> {
    Ok(root.look(name)?.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == kind))
}

/// Reads a file. What is at its name may change between the two looks, so the second one is at the opened file.
fn read_file(root: &SafeRoot, name: &'static str, bytes_max: u64) -> Result<Option<Vec<u8>>> {
    if !has(root, name, FileType::RegularFile)? {
        return Ok(None);
    }
    let told = |error| Error::io(format!("reading {name}"), error);
    let file = root.open(name)?;
    if !file.metadata().map_err(told)?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(told)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Invalid::new("host_path", name, format!("manifests of at most {bytes_max} bytes")).into());
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examine(files: &[(&str, &str)]) -> Project {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        Project::examine(&SafeRoot::open_path(directory.path()).unwrap()).unwrap()
    }

    const PROJECT: &str = "[project]\nname = \"demo\"\n";

    #[test]
    fn python_projects_are_known_by_their_manifests() {
        type Files<'f> = &'f [(&'f str, &'f str)];
        let table: &[(Files<'_>, Option<Python>)] = &[
            (&[], None),
            (&[("server.py", "import mcp")], None),
            (&[("requirements.txt", "mcp\n")], Some(Python::Requirements)),
            (&[("requirements.txt", "# none yet\n\n")], None),
            (&[("pyproject.toml", PROJECT)], Some(Python::Package)),
            (&[("pyproject.toml", "[build-system]\nrequires = []\n")], Some(Python::Package)),
            (&[("pyproject.toml", "[tool.ruff]\nline-length = 100\n")], None),
            (&[("setup.py", "")], Some(Python::Package)),
            (&[("setup.cfg", "[metadata]\nname = demo\n")], Some(Python::Package)),
            (&[("setup.cfg", "[flake8]\n")], None),
            (&[("requirements.txt", "mcp\n"), ("pyproject.toml", PROJECT)], Some(Python::Both)),
        ];
        for (files, expected) in table {
            assert_eq!(examine(files).python, *expected, "{files:?}");
        }
    }

    #[test]
    fn node_projects_are_installed_unless_somebody_did() {
        let needy = ("package.json", r#"{"dependencies": {"x": "1"}}"#);
        assert_eq!(examine(&[needy]).node, Some(Node::Unlocked));
        assert_eq!(examine(&[needy, ("package-lock.json", "{}")]).node, Some(Node::Locked));
        assert_eq!(examine(&[("package.json", "{}")]).node, None);
        assert_eq!(examine(&[("package.json", r#"{"dependencies": {}, "devDependencies": []}"#)]).node, None);
        assert_eq!(examine(&[("package.json", "{")]).node, Some(Node::Unlocked), "npm says what is wrong with it");
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(needy.0), needy.1).unwrap();
        std::fs::create_dir(directory.path().join("node_modules")).unwrap();
        let project = Project::examine(&SafeRoot::open_path(directory.path()).unwrap()).unwrap();
        assert_eq!((project.node, project.installs()), (None, false));
    }

    #[test]
    fn the_key_is_of_the_manifests_and_of_nothing_else() {
        let first = examine(&[("requirements.txt", "mcp==1\n"), ("server.py", "a")]);
        assert_eq!(first.key, examine(&[("requirements.txt", "mcp==1\n"), ("server.py", "b")]).key);
        assert_eq!(first.key.len(), KEY_CHARS);
        let others = [
            examine(&[("requirements.txt", "mcp==2\n")]),
            examine(&[("requirements.txt", "mcp==1\n"), ("setup.cfg", "")]),
            examine(&[("pyproject.toml", "mcp==1\n")]),
            examine(&[]),
        ];
        for other in others {
            assert_ne!(first.key, other.key);
        }
    }

    #[test]
    fn what_is_no_file_is_no_manifest_and_a_huge_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("secret"), "[project]\n").unwrap();
        std::os::unix::fs::symlink("secret", path("pyproject.toml")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path("requirements.txt")).unwrap();
        std::fs::create_dir(path("setup.py")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path("package.json"), FileType::Fifo, 0o600.into(), 0).unwrap();
        let root = SafeRoot::open_path(directory.path()).unwrap();
        let project = Project::examine(&root).unwrap();
        assert_eq!((project.python, project.node, project.key), (None, None, examine(&[]).key));
        let size = usize::try_from(MANIFEST_BYTES_MAX).unwrap();
        std::fs::write(path("setup.cfg"), vec![b'#'; size]).unwrap();
        assert!(Project::examine(&root).is_ok());
        std::fs::write(path("setup.cfg"), vec![b'#'; size + 1]).unwrap();
        assert!(Project::examine(&root).unwrap_err().to_string().contains("setup.cfg"));
    }
}
