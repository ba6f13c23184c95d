//! Files whose path looks like a pattern, the newest first.
//!
//! Nothing that the tree says is ignored is left out: who asks for names wants to know what is there. What is hidden is left out
//! where the pattern does not name it, and `.git` with it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use box_wire::{Answer, FileError, GuestPath};
use rustix::fs::{AtFlags, OFlags};

use super::super::place::FileTree;
use super::rules::Rules;
use super::shape::Shape;
use super::walk::{Visitor, WalkEntry, walk};
use super::{fit, told_path};

/// Finds files.
pub(in super::super) fn glob(
    place: &FileTree,
    path: &GuestPath,
    pattern: &str,
    matches_max: u32,
) -> Result<Answer, FileError> {
    // A model often gives the whole path: what it means is clear as long as it begins with the directory.
    let whole = pattern.strip_prefix(path.as_str().trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
    let shape = Shape::of_path(whole.unwrap_or(pattern))?;
    let beginning = OwnedFd::from(place.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?);
    let seeker = Seeker { shape, matches_max: usize::try_from(matches_max).unwrap_or(usize::MAX) };
    let outcome = walk(&beginning, None, &seeker);
    let mut newest = Newest::default();
    for gathered in outcome.gathered {
        newest.more |= gathered.more;
        gathered.heap.into_iter().for_each(|Reverse(file)| newest.push(file, seeker.matches_max));
    }
    let files = newest.heap.into_sorted_vec();
    let mut paths = files.into_iter().map(|Reverse((_, Reverse(below)))| told_path(path, &below)).collect();
    let all_fit = fit(&mut paths, String::len);
    Ok(Answer::Found { paths, truncated: newest.more || outcome.partial || !all_fit })
}

struct Seeker {
    shape: Shape,
    matches_max: usize,
}

/// When a file was changed, and its path: the greatest is the newest, and of equal ones the first by name.
type Dated = ((i64, u64), Reverse<Vec<u8>>);

/// The newest files so far.
#[derive(Default)]
struct Newest {
    heap: BinaryHeap<Reverse<Dated>>,
    /// Whether there were more.
    more: bool,
}

impl Newest {
    fn push(&mut self, file: Dated, count_max: usize) {
        self.heap.push(Reverse(file));
        if self.heap.len() > count_max {
            self.heap.pop();
            self.more = true;
        }
    }
}

impl Visitor for Seeker {
    type Own = Newest;

    fn begin(&self) -> Newest {
        Newest::default()
    }

    fn rules(&self, _: BorrowedFd<'_>, _: &[u8], _: Option<&Arc<Rules>>) -> Option<Arc<Rules>> {
        None
    }

    fn wants(&self, found: &WalkEntry<'_>) -> bool {
        let name = found.name.to_bytes();
        if name.starts_with(b".") && !self.shape.names_hidden(name) {
            return false;
        }
        if found.is_directory { self.shape.may_hold(name, found.level) } else { self.shape.matches(found.path) }
    }

    fn visit(&self, own: &mut Newest, file: &WalkEntry<'_>, directory: BorrowedFd<'_>) -> ControlFlow<()> {
        // What went since it was found is not there.
        if let Ok(stat) = rustix::fs::statat(directory, file.name, AtFlags::SYMLINK_NOFOLLOW) {
            own.push(((stat.st_mtime, stat.st_mtime_nsec), Reverse(file.path.to_vec())), self.matches_max);
        }
        ControlFlow::Continue(())
    }

    fn miss(&self) {}
}
