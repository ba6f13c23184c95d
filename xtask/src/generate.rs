//! `cargo xtask generate`: writes the files that are made from code. The tests that compare them write them instead.

use std::process::ExitCode;

use anyhow::Result;

use crate::cargo;
use crate::run;

/// The tests that compare a file with the code it is made from, by the arguments of `cargo test`.
const TESTS: [&[&str]; 2] =
    [&["--package", "box-cli", "--bin", "strongbox"], &["--package", "box-cli", "--test", "help"]];

/// The verb.
pub(crate) fn run() -> Result<ExitCode> {
    let root = cargo::root();
    for test in TESTS {
        let mut command = cargo::command(&root, &[&["test", "--quiet"], test].concat());
        command.env("INSTA_UPDATE", "always");
        if !run::plainly(command)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
