//! Which files the rules are about: all text that is, or is about to be, in the repository.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One file of the repository that holds text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextFile {
    /// Relative to the root of the workspace, with `/` between its parts.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
}

impl TextFile {
    /// Whether this is a Rust source file.
    pub(crate) fn is_rust(&self) -> bool {
        has_extension(&self.path, &["rs"])
    }
}

/// Whether a path ends in one of these extensions.
pub(crate) fn has_extension(path: &str, extensions: &[&str]) -> bool {
    Path::new(path).extension().and_then(|it| it.to_str()).is_some_and(|it| extensions.contains(&it))
}

/// All text files that git knows or would add. In a tree without git (an unpacked archive) all files count except
/// those that a build makes.
pub(crate) fn tracked(root: &Path) -> Result<Vec<TextFile>> {
    let mut paths = if root.join(".git").exists() { listed_by_git(root)? } else { walked(root)? };
    paths.sort();
    Ok(paths.into_iter().filter_map(|path| read_text(root, path)).collect())
}

fn listed_by_git(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        // CI may run as another user than the owner of the checkout; listing files is harmless all the same.
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git could not be started; install git")?;
    anyhow::ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    let names = String::from_utf8(output.stdout).context("a tracked file has a name that is not UTF-8")?;
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn walked(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut to_visit = vec![PathBuf::new()];
    while let Some(directory) = to_visit.pop() {
        for entry in std::fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() && entry.file_name() != "target" {
                to_visit.push(path);
            } else if kind.is_file() {
                found.extend(path.to_str().map(str::to_owned));
            }
        }
    }
    Ok(found)
}

/// `None` for binary files, and for files that are removed but not yet committed.
fn read_text(root: &Path, path: String) -> Option<TextFile> {
    let full_path = root.join(&path);
    if !full_path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
        return None;
    }
    let text = String::from_utf8(std::fs::read(full_path).ok()?).ok()?;
    (!text.contains('\0')).then_some(TextFile { path, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_everything_else_left_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        std::fs::create_dir_all(root.join("target/debug")).expect("directories");
        std::fs::create_dir(root.join("docs")).expect("a directory");
        std::fs::write(root.join("docs/a.md"), "words").expect("written");
        std::fs::write(root.join("picture"), [0, 1, 2, 0xff]).expect("written");
        std::fs::write(root.join("target/debug/made.rs"), "built").expect("written");
        std::os::unix::fs::symlink("docs/a.md", root.join("link.md")).expect("a link");
        let files = tracked(root).expect("readable");
        assert_eq!(files, [TextFile { path: "docs/a.md".into(), text: "words".into() }]);
    }
}
