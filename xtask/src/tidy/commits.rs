//! Subjects of commits are short: lists of commits cut longer ones.

use super::Violation;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// Commits since this one follow the rule.
const BASE: &str = "14bab1f575f71e59661ac0f8cfcc7b2dccd7084b";

const SUBJECT_CHARS_MAX: usize = 72;

/// The rule, for lines of an abbreviated hash and a subject.
pub(crate) fn check(log: &str) -> Vec<Violation> {
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    let lengths = commits.map(|(hash, subject)| (hash, subject.chars().count()));
    let too_long = lengths.filter(|(_, length)| *length > SUBJECT_CHARS_MAX);
    let message = |length| format!("its subject has {length} characters, more than {SUBJECT_CHARS_MAX}; shorten it");
    too_long.map(|(hash, length)| Violation::new(format!("commit {hash}"), message(length))).collect()
}

/// The commits that the rule is about; none where the history is not there.
pub(crate) fn log(root: &Path) -> Result<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "safe.directory=*"]).args(arguments).current_dir(root);
        command.output().context("git could not be started; install git")
    };
    let is_here = root.join(".git").exists();
    if !is_here || !git(&["merge-base", "--is-ancestor", BASE, "HEAD"])?.status.success() {
        return Ok(String::new());
    }
    let output = git(&["log", "--no-merges", "--format=%h %s", &format!("{BASE}..HEAD")])?;
    anyhow::ensure!(output.status.success(), "git log: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_of_more_than_72_characters_is_refused() {
        let (fits, long) = ("ä".repeat(72), "x".repeat(73));
        let found = check(&format!("a1 {fits}\nb2 area: what changed\nc3 {long}\n"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].place, "commit c3");
        assert!(found[0].message.contains("73 characters"), "{found:?}");
    }

    #[test]
    fn without_history_nothing_is_checked() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(log(directory.path()).expect("no git is needed"), "");
        let made = Command::new("git").args(["init", "-q"]).current_dir(directory.path()).status();
        assert!(made.expect("git").success());
        assert_eq!(log(directory.path()).expect("the base is not there"), "");
    }
}
