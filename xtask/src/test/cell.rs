//! A cell for one program of a suite: it sees no process but its own, and has a `/tmp` of its own.
//!
//! Several suites run at the same time. Without cells, one would take the boxes of another for leaks of its own.

use crate::own_tmp::{self, COVER, PLACE};
use crate::{cargo, machine, run};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

use super::rootless::STAGING_PREFIX;

/// Runs in the new namespaces: covers `/tmp`, then runs the program. The shell stays, because the first process of a namespace has
/// to wait for the orphans of all others.
const FIRST: &str = r#"cover_tmp "$0" "$1" || exit 125; shift; "$@"; exit $?"#;

/// The cell; its `/tmp` is removed when it is dropped.
pub(super) struct Cell {
    temporary: TempDir,
}

impl Cell {
    pub(super) fn new() -> Result<Self> {
        let temporary = tempfile::Builder::new().prefix(STAGING_PREFIX).tempdir_in(PLACE);
        let temporary = temporary.with_context(|| format!("cannot make a directory in {PLACE}"))?;
        own_tmp::open_to_all(temporary.path())?;
        Ok(Self { temporary })
    }

    /// A command that starts this program in the cell. It dies with us: an interrupt at the terminal does not reach its group. Only
    /// root can make a cell; the program of an ordinary user runs without one.
    pub(super) fn command(&self, program: &Path) -> Command {
        if !machine::is_root() {
            return run::mortal(program);
        }
        let mut command = run::mortal("unshare");
        command.args(["--pid", "--fork", "--kill-child=KILL", "--mount", "--mount-proc", "sh", "-c"]);
        command.arg(format!("{COVER}{FIRST}")).arg(self.temporary.path()).arg(cargo::root()).arg(program);
        command
    }
}
