//! Lines that match a regular expression, with ripgrep's engines and by its rules: what is ignored, hidden or binary is left out.

mod expression;
mod sink;

use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use box_wire::file_op::{EntryKind, Match};
use box_wire::{Answer, FileError, GuestPath};
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::super::file_error;
use super::super::files::{check_regular, entry};
use super::super::place::FileTree;
use super::super::text::binary;
use super::rules::{Rules, Saying};
use super::shape::Shape;
use super::walk::{Visitor, WalkEntry, walk};
use super::{fit, told_path};
use sink::Lines;

/// Most memory of a thread for a line. A file with a longer one is counted as skipped.
const LINE_BYTES_MAX: usize = 8 << 20;

/// The query.
pub(in super::super) struct Question<'a> {
    pub(in super::super) pattern: &'a str,
    pub(in super::super) include: Option<&'a str>,
    pub(in super::super) ignore_case: bool,
    pub(in super::super) matches_max: u32,
}

/// Finds lines in a file or below a directory.
pub(in super::super) fn grep(place: &FileTree, path: &GuestPath, question: &Question<'_>) -> Result<Answer, FileError> {
    let matcher = expression::compile(question.pattern, question.ignore_case)?;
    let include = question.include.map(Shape::of_name_or_path).transpose()?;
    let opened = place.open(path, OFlags::RDONLY)?;
    let entry = entry(&opened, path.as_str())?;
    let (found, skipped) = (AtomicU64::new(0), AtomicU64::new(0));
    let (beginning, matches_max) = (Vec::new(), u64::from(question.matches_max));
    let mut seeker = Seeker { path, matcher, include, beginning, matches_max, found, skipped };
    if entry.kind == EntryKind::Directory {
        return seeker.search_tree(place, &opened.into());
    }
    check_regular(&entry)?;
    seeker.search_file(&opened)
}

struct Seeker<'a> {
    path: &'a GuestPath,
    matcher: RegexMatcher,
    include: Option<Shape>,
    /// The real path of the start, with `/` at its end and not at its beginning.
    beginning: Vec<u8>,
    matches_max: u64,
    /// Matches of all threads.
    found: AtomicU64,
    /// Files that could not be searched to their end.
    skipped: AtomicU64,
}

/// State of one thread.
struct Own {
    searcher: Searcher,
    matcher: RegexMatcher,
    matches: Vec<Match>,
}

impl Seeker<'_> {
    fn search_tree(&mut self, place: &FileTree, directory: &OwnedFd) -> Result<Answer, FileError> {
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let real = std::fs::read_link(link).map_err(|error| file_error(self.path.as_str(), error))?;
        let rules = rules_above(place, &real);
        self.beginning = whole(&real);
        let outcome = walk(directory, rules, self);
        Ok(self.answer(outcome.gathered.into_iter().flat_map(|own| own.matches).collect(), outcome.partial))
    }

    fn search_file(&self, file: &File) -> Result<Answer, FileError> {
        let mut own = self.begin();
        let path = self.path.to_string();
        let mut lines = Lines::new(&self.found, self.matches_max, || path.clone(), &mut own.matches);
        let searched = own.searcher.search_file(&own.matcher, file, &mut lines);
        if lines.is_binary && lines.count == 0 {
            return Err(binary(&path));
        }
        if searched.is_err() || lines.is_binary {
            self.miss();
        }
        Ok(self.answer(own.matches, false))
    }

    fn answer(&self, mut matches: Vec<Match>, partial: bool) -> Answer {
        matches.sort_unstable_by(|one, other| (&one.path, one.line).cmp(&(&other.path, other.line)));
        matches.truncate(usize::try_from(self.matches_max).unwrap_or(usize::MAX));
        let all_fit = fit(&mut matches, |one| one.path.len() + one.text.len());
        let truncated = partial || !all_fit || self.is_over();
        Answer::Matched { matches, truncated, skipped: self.skipped.load(Ordering::Relaxed) }
    }

    /// Whether there are more matches than the answer holds.
    fn is_over(&self) -> bool {
        self.found.load(Ordering::Relaxed) > self.matches_max
    }
}

impl Visitor for Seeker<'_> {
    type Own = Own;

    fn begin(&self) -> Own {
        let mut builder = SearcherBuilder::new();
        builder.line_number(true).memory_map(MmapChoice::never()).heap_limit(Some(LINE_BYTES_MAX));
        let searcher = builder.binary_detection(BinaryDetection::quit(0)).build();
        Own { searcher, matcher: self.matcher.clone(), matches: Vec::new() }
    }

    fn rules(&self, directory: BorrowedFd<'_>, path: &[u8], above: Option<&Arc<Rules>>) -> Option<Arc<Rules>> {
        Rules::of(directory, self.beginning.len() + path.len(), above)
    }

    fn wants(&self, found: &WalkEntry<'_>) -> bool {
        let said =
            found.rules.map_or(Saying::Nothing, |rules| rules.say(&self.beginning, found.path, found.is_directory));
        let name = found.name.to_bytes();
        let named = |include: &Shape| include.names_hidden(name);
        let is_hidden = name.starts_with(b".") && !self.include.as_ref().is_some_and(named);
        match said {
            Saying::Ignored => return false,
            Saying::Nothing if is_hidden => return false,
            Saying::Nothing | Saying::Wanted => {}
        }
        match &self.include {
            None => true,
            Some(include) if found.is_directory => include.may_hold(name, found.level),
            Some(include) => include.matches(found.path),
        }
    }

    fn visit(&self, own: &mut Own, file: &WalkEntry<'_>, directory: BorrowedFd<'_>) -> ControlFlow<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(directory, file.name, flags, Mode::empty()) {
            Ok(opened) => {
                let path = || told_path(self.path, file.path);
                let mut lines = Lines::new(&self.found, self.matches_max, path, &mut own.matches);
                let searched = own.searcher.search_file(&own.matcher, &File::from(opened), &mut lines);
                if searched.is_err() || (lines.is_binary && lines.count > 0) {
                    self.miss();
                }
            }
            // It went, or became a link, since it was found.
            Err(Errno::NOENT | Errno::LOOP) => {}
            Err(_) => self.miss(),
        }
        if self.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn miss(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }
}

/// A directory's path without `/` at its beginning and with one at its end, if it has any names.
fn whole(path: &Path) -> Vec<u8> {
    let mut bytes = path.as_os_str().as_bytes().strip_prefix(b"/").unwrap_or_default().to_vec();
    if !bytes.is_empty() {
        bytes.push(b'/');
    }
    bytes
}

/// The rules for a directory, from the first one that may be looked at down to itself.
fn rules_above(place: &FileTree, directory: &Path) -> Option<Arc<Rules>> {
    let mut above: Vec<_> = directory.ancestors().collect();
    above.reverse();
    let mut rules = None;
    for path in above {
        let guest = path.to_str().and_then(|text| GuestPath::parse("path", text).ok());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        // What lies above the tree that may be touched has no say.
        if let Some(opened) = guest.and_then(|guest| place.open(&guest, flags).ok()) {
            rules = Rules::of(opened.as_fd(), whole(path).len(), rules.as_ref());
        }
    }
    rules
}
