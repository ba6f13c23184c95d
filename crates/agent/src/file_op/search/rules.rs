//! What a search leaves out because the tree says so: `.gitignore`, `.ignore` and `.git/info/exclude`, as ripgrep reads them.
//!
//! `.gitignore` counts in git repositories only, up to the repository's own directory; `.ignore` counts always and wins.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};

use super::shape::is_too_deep;

/// Largest file of rules that is read, and its longest line: patterns take memory and stack.
const RULES_BYTES_MAX: u64 = 256 << 10;
const LINE_BYTES_MAX: usize = 1 << 10;

/// The rules of one directory that has some, and of those above it.
#[derive(Debug)]
pub(super) struct Rules {
    above: Option<Arc<Rules>>,
    /// Length of the directory's whole path: what matches is what comes behind.
    base: usize,
    ignore: Option<Gitignore>,
    git: Option<Gitignore>,
    is_repository: bool,
}

/// The verdict of the rules on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saying {
    Ignored,
    /// A rule includes it explicitly, even if it is hidden.
    Wanted,
    Nothing,
}

impl Rules {
    /// The rules in a directory whose whole path has `base` bytes, with `/` at its end and not at its beginning.
    pub(super) fn of(directory: BorrowedFd<'_>, base: usize, above: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let is_repository = rustix::fs::statat(directory, ".git", AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let ignore = build(&[read(directory, ".ignore")]);
        let exclude = is_repository.then(|| read(directory, ".git/info/exclude")).flatten();
        let git = build(&[exclude, read(directory, ".gitignore")]);
        if !is_repository && ignore.is_none() && git.is_none() {
            return above.cloned();
        }
        Some(Arc::new(Self { above: above.cloned(), base, ignore, git, is_repository }))
    }

    /// Their verdict on a path below the start of the walk.
    pub(super) fn say(&self, beginning: &[u8], path: &[u8], is_directory: bool) -> Saying {
        let ask = |rules: &Self, part: &Option<Gitignore>| {
            let Some(part) = part else { return Saying::Nothing };
            let below = match rules.base.checked_sub(beginning.len()) {
                Some(start) => Cow::Borrowed(&path[start..]),
                None => Cow::Owned([&beginning[rules.base..], path].concat()),
            };
            match part.matched(Path::new(OsStr::from_bytes(&below)), is_directory) {
                Match::None => Saying::Nothing,
                Match::Ignore(_) => Saying::Ignored,
                Match::Whitelist(_) => Saying::Wanted,
            }
        };
        let chain = || std::iter::successors(Some(self), |rules| rules.above.as_deref());
        let first = |said: &Saying| *said != Saying::Nothing;
        if let Some(said) = chain().map(|rules| ask(rules, &rules.ignore)).find(first) {
            return said;
        }
        let Some(repository) = chain().position(|rules| rules.is_repository) else { return Saying::Nothing };
        chain().take(repository + 1).map(|rules| ask(rules, &rules.git)).find(first).unwrap_or(Saying::Nothing)
    }
}

/// Combines rules; later ones win. Invalid patterns are left out.
fn build(texts: &[Option<String>]) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(".");
    let is_fit = |line: &&str| line.len() <= LINE_BYTES_MAX && !is_too_deep(line);
    for line in texts.iter().flatten().flat_map(|text| text.lines()).filter(is_fit) {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}

fn read(directory: BorrowedFd<'_>, name: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let file = File::from(rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve).ok()?);
    let mut bytes = Vec::new();
    file.take(RULES_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
