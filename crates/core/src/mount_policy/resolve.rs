//! Where a path leads, without opening it: also where nothing is there.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Most links on the way, as in the kernel.
const LINKS_MAX: usize = 40;

/// What a caller may learn about. The answer depends on nothing else.
#[derive(Debug)]
pub(super) struct Confines<'a> {
    /// Real paths of the trees in which the caller may look around.
    pub(super) roots: &'a [PathBuf],
    /// Places in which no link is followed.
    pub(super) denied: &'a [&'a Path],
}

/// Why a path leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeadEnd {
    /// Links go round in circles.
    Links,
    /// It leads into this denied place.
    Denied(PathBuf),
    /// It leaves the roots, and more may not be told.
    Outside,
}

/// Who wrote a part of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Author {
    /// The caller, or a link in one of the roots, which a box may have made.
    Caller,
    /// A link of the host.
    Host,
}

/// Follows the links of an absolute path. What does not exist, or cannot be read, stays as it is spelled, so that a decision on
/// the answer does not depend on whether anything is there.
///
/// Within confines, `..` of the caller counts only inside a root: elsewhere it would tell a link from a directory. Links of the
/// host are followed, because they may lead into a root; one that does not could as well be missing.
pub(super) fn resolve(path: &Path, confines: Option<&Confines<'_>>) -> Result<PathBuf, DeadEnd> {
    let is_inside = |path: &Path| confines.is_none_or(|it| it.roots.iter().any(|root| path.starts_with(root)));
    let mut pending: VecDeque<(OsString, Author)> = parts(path, Author::Caller).collect();
    let (mut real, mut links, mut is_hidden) = (PathBuf::from("/"), 0, false);
    let dead_end = |is_hidden: bool, why: DeadEnd| Err(if is_hidden { DeadEnd::Outside } else { why });
    while let Some((part, author)) = pending.pop_front() {
        if part == ".." {
            real.pop();
            if author == Author::Caller && !is_inside(&real) {
                return Err(DeadEnd::Outside);
            }
            continue;
        }
        let next = real.join(&part);
        let denied = confines.and_then(|it| it.denied.iter().find(|place| next.starts_with(place)));
        if let Some(place) = denied {
            return dead_end(is_hidden, DeadEnd::Denied(place.to_path_buf()));
        }
        let Ok(target) = std::fs::read_link(&next) else {
            real = next;
            continue;
        };
        let author = if is_inside(&next) { Author::Caller } else { Author::Host };
        is_hidden |= author == Author::Host;
        links += 1;
        if links > LINKS_MAX {
            return dead_end(is_hidden, DeadEnd::Links);
        }
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        for part in parts(&target, author).collect::<Vec<_>>().into_iter().rev() {
            pending.push_front(part);
        }
    }
    if is_hidden && !is_inside(&real) { Err(DeadEnd::Outside) } else { Ok(real) }
}

/// The names in a path, and `..`.
fn parts(path: &Path, author: Author) -> impl Iterator<Item = (OsString, Author)> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    parts.map(move |part| (part, author))
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
        let resolved = |name: &str| resolve(&root.join(name), None);
        assert_eq!(resolved("a/./b/../c"), Ok(root.join("a/c")));
        assert_eq!(resolved("chain/x"), Ok("/nowhere/at/all/x".into()));
        assert_eq!(resolved("away/../../../etc"), Ok("/etc".into()));
        assert_eq!(resolved("round"), Err(DeadEnd::Links));
    }
}
