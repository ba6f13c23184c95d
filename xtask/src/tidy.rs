//! `cargo xtask tidy`: the rules that no compiler holds.
//!
//! Each rule is a pure function from what was read to a list of [`Violation`]s, so that each can be tested with a few
//! lines of input. Only this file and [`files`] touch the disk.

mod arrows;
mod commits;
mod files;
mod markdown;
mod packages;
mod rust_source;
mod specification;
mod text;
mod words;

use crate::cargo;
use anyhow::Result;
use files::TextFile;
use std::path::Path;
use std::process::ExitCode;

/// One broken rule, in a form that editors can jump to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The file relative to the root, with `:line` where there is one; or a package.
    pub(crate) place: String,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

impl Violation {
    pub(crate) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into() }
    }

    pub(crate) fn at(path: &str, line_index: usize, message: impl Into<String>) -> Self {
        Self::new(format!("{path}:{}", line_index + 1), message)
    }
}

/// What was asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Bring the recorded counts of marker words down to what the files have, before the check
    #[arg(long)]
    record_words: bool,
}

/// The verb: checks the tree and prints what is wrong with it.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.record_words {
        record_words()?;
    }
    let violations = check()?;
    for violation in &violations {
        println!("{}: {}", violation.place, violation.message);
    }
    if violations.is_empty() {
        println!("tidy: nothing to complain about");
        return Ok(ExitCode::SUCCESS);
    }
    println!("tidy: {} to put right", violations.len());
    Ok(ExitCode::FAILURE)
}

/// Every rule over the whole tree.
pub(crate) fn check() -> Result<Vec<Violation>> {
    let metadata = cargo::metadata()?;
    let root = metadata.workspace_root.as_std_path();
    let files = files::tracked(root)?;
    let mut violations = arrows::check(&arrows::Graph::from_metadata(&metadata)?);
    violations.extend(packages::check(&packages::described(&metadata)));
    for file in &files {
        violations.extend(text::check(file));
        violations.extend(rust_source::check(file));
    }
    violations.extend(check_specification(root, &files));
    violations.extend(markdown::check(&files, |path| root.join(path).exists()));
    violations.extend(commits::check(&commits::log(root)?));
    violations.extend(words::check(&files, &std::fs::read_to_string(root.join(words::RECORD)).unwrap_or_default()));
    Ok(violations)
}

fn record_words() -> Result<()> {
    let metadata = cargo::metadata()?;
    let root = metadata.workspace_root.as_std_path();
    let path = root.join(words::RECORD);
    let recorded = std::fs::read_to_string(&path).ok();
    let lowered = words::lowered(&files::tracked(root)?, recorded.as_deref());
    let lowered = lowered.map_err(|wrong| anyhow::anyhow!("{}: {}", wrong.place, wrong.message))?;
    Ok(std::fs::write(path, lowered)?)
}

fn check_specification(root: &Path, files: &[TextFile]) -> Vec<Violation> {
    let name = "SPECIFICATION.md";
    let Ok(document) = std::fs::read_to_string(root.join(name)) else { return Vec::new() };
    specification::check(name, &document, files)
}
