//! Where a path leads, without opening it: also where nothing is there.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Most links on the way, as in the kernel.
const LINKS_MAX: usize = 40;

/// Follows the links of an absolute path. What does not exist, or cannot be read, stays as it is spelled, so that a decision on
/// the answer does not depend on whether anything is there. `None` where links go round in circles.
pub(super) fn resolve(path: &Path) -> Option<PathBuf> {
    let mut pending: VecDeque<OsString> = parts(path).collect();
    let (mut real, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = pending.pop_front() {
        if part == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&part);
        let Ok(target) = std::fs::read_link(&next) else {
            real = next;
            continue;
        };
        links += 1;
        if links > LINKS_MAX {
            return None;
        }
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
            pending.push_front(part);
        }
    }
    Some(real)
}

/// The names in a path, and `..`.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_also_to_what_does_not_exist() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/nowhere/at", root.join("away")).unwrap();
        std::os::unix::fs::symlink("away/all", root.join("chain")).unwrap();
        std::os::unix::fs::symlink("round", root.join("round")).unwrap();
        let resolved = |name: &str| resolve(&root.join(name));
        assert_eq!(resolved("a/./b/../c"), Some(root.join("a/c")));
        assert_eq!(resolved("chain/x"), Some("/nowhere/at/all/x".into()));
        assert_eq!(resolved("away/../../../etc"), Some("/etc".into()));
        assert_eq!(resolved("round"), None);
    }
}
