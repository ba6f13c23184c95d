//! Paths of the host, as settings name them.

use std::path::{Component, Path, PathBuf};

use box_core::SafeRoot;
use serde_json::Value;

use crate::fault::{Class, Fault};

/// Most roots that settings can name.
const ROOTS_MAX: usize = 256;

/// A path from the root of the host. What is relative counts from where the server was started.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A path without links, as far as it exists.
pub(crate) fn real(path: &Path) -> PathBuf {
    let (ancestor, rest) = existing(path);
    ancestor.join(rest)
}

/// Makes a directory and its parents where they are missing. The path must be real.
pub(super) fn make(path: &Path) -> box_core::Result<()> {
    let (ancestor, rest) = existing(path);
    SafeRoot::open_path(&ancestor)?.make_directory_all(rest, 0o755)
}

/// The longest part of a path that exists, without links, and the rest.
fn existing(path: &Path) -> (PathBuf, PathBuf) {
    let found = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let Some((ancestor, real)) = found else { return (PathBuf::from("/"), path.to_owned()) };
    (real, path.strip_prefix(ancestor).unwrap_or(Path::new("")).to_owned())
}

/// A relative path of nothing but names; nothing when it is none.
pub(super) fn relative(path: &Path) -> Option<PathBuf> {
    let mut names = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!names.as_os_str().is_empty()).then_some(names)
}

/// The beginning of a path that ends with `root`, when the path passes through one.
pub(super) fn ending_with(path: &Path, root: &Path) -> Option<PathBuf> {
    let ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.into_iter().rev().find(|ancestor| ancestor.ends_with(root)).map(Path::to_owned)
}

/// Roots as a list, or as one text with commas.
pub(super) fn list(value: Option<&Value>) -> Result<Vec<PathBuf>, Fault> {
    let wrong =
        || Fault::new(Class::Validation, "box.local.allowed_mount_roots must be a list of texts, or one with commas");
    let texts: Vec<&str> = match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => text.split(',').collect(),
        Some(Value::Array(values)) => values.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(wrong)?,
        Some(_) => return Err(wrong()),
    };
    let paths: Vec<PathBuf> =
        texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).map(PathBuf::from).collect();
    let readable = texts.iter().all(|text| !text.contains('\0'));
    if readable && paths.len() <= ROOTS_MAX { Ok(paths) } else { Err(wrong()) }
}
