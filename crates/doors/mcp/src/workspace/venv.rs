//! Virtual environments of Python, known by how they are named.

use std::path::Path;

/// Names that people give to a virtual environment in their project.
const DIRECTORIES: [&str; 4] = [".venv", "venv", "env", ".env"];
/// Where its programs are. The second is for another system.
const PROGRAM_DIRECTORIES: [&str; 2] = ["bin", "Scripts"];

/// A program of a virtual environment: `project/.venv/bin/python`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program<'p> {
    /// The directory that the environment is in; empty where the path begins with the environment.
    pub(super) project: &'p Path,
    /// The program's name.
    pub(super) name: &'p str,
}

impl<'p> Program<'p> {
    /// Reads a path by its last three components.
    pub(super) fn at(path: &'p Path) -> Option<Self> {
        let directory = path.parent()?;
        Some(Self { project: project_of(directory)?, name: path.file_name()?.to_str()? })
    }

    /// What takes its place in the box: the box's `python` for any interpreter, and otherwise what the box has installed under the name.
    pub(super) fn in_box(&self) -> &'p str {
        let name = self.name.strip_suffix(".exe").unwrap_or(self.name);
        let version = name.strip_prefix("pythonw").or_else(|| name.strip_prefix("python"));
        let is_interpreter = version.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
        if is_interpreter { "python" } else { name }
    }
}

/// The directory that a virtual environment is in, given the directory of its programs.
pub(super) fn project_of(directory: &Path) -> Option<&Path> {
    let is_one_of =
        |path: &Path, names: &[&str]| path.file_name().is_some_and(|name| names.iter().any(|one| name == *one));
    let environment = directory.parent()?;
    let is_environment = is_one_of(directory, &PROGRAM_DIRECTORIES) && is_one_of(environment, &DIRECTORIES);
    if is_environment { environment.parent() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_known_by_its_names() {
        for path in ["/p/.venv/bin/python", "/p/venv/bin/x", "/p/env/Scripts/python.exe", "/p/.env/bin/python3.12"] {
            assert_eq!(Program::at(Path::new(path)).unwrap().project, Path::new("/p"), "{path}");
        }
        assert_eq!(Program::at(Path::new(".venv/bin/python")).unwrap().project, Path::new(""));
        assert_eq!(Program::at(Path::new("/venv/bin/python")).unwrap().project, Path::new("/"));
        for path in
            ["/usr/bin/python", "/p/.venv/python", "/p/.venv/lib/python", "/p/venvs/bin/python", "bin/python", "/"]
        {
            assert_eq!(Program::at(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn interpreters_become_the_boxs_own() {
        for (name, expected) in [
            ("python", "python"),
            ("python3", "python"),
            ("python3.11", "python"),
            ("python.exe", "python"),
            ("pythonw.exe", "python"),
            ("python-server", "python-server"),
            ("mcp-server-time", "mcp-server-time"),
            ("uvicorn.exe", "uvicorn"),
        ] {
            let path = format!("/p/.venv/bin/{name}");
            assert_eq!(Program::at(Path::new(&path)).unwrap().in_box(), expected);
        }
    }
}
