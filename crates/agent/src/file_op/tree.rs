//! Goes through trees that a stranger has built: of any depth, with few descriptors and little memory.
//!
//! Nothing here is recursive, and no path is ever opened: each directory is opened in the one above it, through no link. Only the
//! lowest levels are kept open. The others are found again by `..` and compared with what they were, so that a tree which is
//! moved meanwhile leads nowhere else.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom};
use rustix::io::Errno;

/// Directories that are kept open, besides the current one.
const OPEN_LEVELS_MAX: usize = 32;

/// Levels of a tree, so that names of directories above do not fill the memory.
const LEVELS_MAX: usize = 100_000;

/// Room for what one look into a directory gives.
const READ_BYTES: usize = 16 << 10;

/// How a directory of a tree is opened.
const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Whether a walk goes into what is mounted in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mounts {
    Enter,
    Refuse,
}

/// The position at which reading a directory resumes that had to be closed meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resume {
    /// Where it was left.
    There,
    /// At its beginning, because what was seen is gone.
    AtStart,
}

/// A walk through a tree, depth first.
#[derive(Debug)]
pub(super) struct Walk {
    current: Reading,
    identity: Identity,
    above: Vec<Above>,
    /// From the top to the current directory.
    path: Vec<u8>,
    mounts: Mounts,
    resume: Resume,
}

/// The next item of a walk.
#[derive(Debug)]
pub(super) enum Step {
    /// Something in the current directory, which can be entered if it is a directory.
    Item(Item),
    /// The directory of this name was gone through, and the one above it is the current one again.
    Left(CString),
}

/// Something in a directory.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: CString,
    kind: FileType,
    cookie: u64,
}

impl Item {
    /// Whether it is worth trying to enter it. Not all file systems report the type.
    pub(super) fn may_be_directory(&self) -> bool {
        matches!(self.kind, FileType::Directory | FileType::Unknown)
    }
}

#[derive(Debug)]
struct Reading {
    directory: OwnedFd,
    items: VecDeque<Item>,
    /// Behind the last item that was given out.
    cookie: u64,
}

/// A directory above the current one.
#[derive(Debug)]
struct Above {
    reading: Option<Reading>,
    cookie: u64,
    identity: Identity,
    /// Of what was entered in it.
    entered: CString,
    path_bytes: usize,
}

/// Device and inode.
type Identity = (u64, u64);

impl Walk {
    /// Begins in an opened directory.
    pub(super) fn new(top: OwnedFd, mounts: Mounts, resume: Resume) -> io::Result<Self> {
        let identity = identity(&top)?;
        let current = Reading::new(top, 0)?;
        Ok(Self { current, identity, above: Vec::new(), path: Vec::new(), mounts, resume })
    }

    /// The current directory.
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.current.directory.as_fd()
    }

    /// How many levels down the current directory is; 1 is the top.
    pub(super) fn depth(&self) -> usize {
        self.above.len() + 1
    }

    /// From the top to something in the current directory.
    pub(super) fn path_to(&self, name: &CStr) -> Vec<u8> {
        join(&self.path, name.to_bytes())
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Step>> {
        match self.current.next()? {
            Some(item) => Ok(Some(Step::Item(item))),
            None => Ok(self.leave()?.map(Step::Left)),
        }
    }

    /// Makes something in the current directory the current one. It must be a directory, not a link to one.
    pub(super) fn enter(&mut self, name: &CStr) -> rustix::io::Result<()> {
        if self.above.len() >= LEVELS_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let directory = open_below(self.directory(), name, OPEN, self.mounts)?;
        let identity = std::mem::replace(&mut self.identity, identity(&directory)?);
        let reading = std::mem::replace(&mut self.current, Reading::new(directory, 0)?);
        let path_bytes = self.path.len();
        self.path = join(&self.path, name.to_bytes());
        let cookie = reading.cookie;
        self.above.push(Above { reading: Some(reading), cookie, identity, entered: name.to_owned(), path_bytes });
        if let Some(far) = self.above.len().checked_sub(OPEN_LEVELS_MAX + 1) {
            self.above[far].reading = None;
        }
        Ok(())
    }

    fn leave(&mut self) -> io::Result<Option<CString>> {
        let Some(above) = self.above.pop() else { return Ok(None) };
        self.current = match above.reading {
            Some(reading) => reading,
            None => self.find_again(&above)?,
        };
        self.identity = above.identity;
        self.path.truncate(above.path_bytes);
        Ok(Some(above.entered))
    }

    fn find_again(&self, above: &Above) -> io::Result<Reading> {
        let directory = rustix::fs::openat(self.directory(), "..", OPEN, Mode::empty())?;
        if identity(&directory)? != above.identity {
            return Err(io::Error::other("the tree was moved meanwhile"));
        }
        let cookie = if self.resume == Resume::There { above.cookie } else { 0 };
        Ok(Reading::new(directory, cookie)?)
    }
}

impl Reading {
    fn new(directory: OwnedFd, cookie: u64) -> rustix::io::Result<Self> {
        if cookie != 0 {
            rustix::fs::seek(&directory, SeekFrom::Start(cookie))?;
        }
        Ok(Self { directory, items: VecDeque::new(), cookie })
    }

    fn next(&mut self) -> rustix::io::Result<Option<Item>> {
        if self.items.is_empty() {
            self.fill()?;
        }
        let item = self.items.pop_front();
        self.cookie = item.as_ref().map_or(self.cookie, |item| item.cookie);
        Ok(item)
    }

    /// Reads on; nothing is there afterwards when all was read.
    fn fill(&mut self) -> rustix::io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut entries = RawDir::new(&self.directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                // It was removed meanwhile.
                Err(Errno::NOENT) => return Ok(()),
                Err(error) => return Err(error),
            };
            let (name, kind, cookie) = (entry.file_name().to_owned(), entry.file_type(), entry.next_entry_cookie());
            if !matches!(name.to_bytes(), b"." | b"..") {
                self.items.push_back(Item { name, kind, cookie });
            }
            if entries.is_buffer_empty() && !self.items.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Opens something in a directory through no link, and through no mount where that is refused.
pub(super) fn open_below(
    directory: impl AsFd,
    name: impl rustix::path::Arg,
    flags: OFlags,
    mounts: Mounts,
) -> rustix::io::Result<OwnedFd> {
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    resolve.set(ResolveFlags::NO_XDEV, mounts == Mounts::Refuse);
    rustix::fs::openat2(directory, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// A path with one more name.
pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

fn identity(directory: &impl AsFd) -> rustix::io::Result<Identity> {
    rustix::fs::fstat(directory).map(|stat| (stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        rustix::fs::open(path, OPEN, Mode::empty()).unwrap()
    }

    fn paths(top: &Path) -> BTreeSet<String> {
        let mut walk = Walk::new(open(top), Mounts::Enter, Resume::There).unwrap();
        let mut seen = BTreeSet::new();
        while let Some(step) = walk.next().unwrap() {
            let Step::Item(item) = step else { continue };
            assert!(seen.insert(String::from_utf8(walk.path_to(&item.name)).unwrap()), "nothing comes twice");
            if item.may_be_directory() {
                walk.enter(&item.name).unwrap();
            }
        }
        seen
    }

    #[test]
    fn everything_is_seen_once_also_behind_levels_that_had_to_be_closed() {
        let top = tempfile::tempdir().unwrap();
        let mut expected = BTreeSet::new();
        let mut path = String::new();
        for level in 0..(OPEN_LEVELS_MAX * 2) {
            path = if path.is_empty() { format!("d{level}") } else { format!("{path}/d{level}") };
            std::fs::create_dir(top.path().join(&path)).unwrap();
            expected.insert(path.clone());
            for name in 0..5 {
                let file = format!("{path}/f{name}");
                std::fs::write(top.path().join(&file), "").unwrap();
                expected.insert(file);
            }
        }
        assert_eq!(paths(top.path()), expected);
    }

    #[test]
    fn a_directory_of_many_names_is_read_to_its_end() {
        let top = tempfile::tempdir().unwrap();
        for number in 0..1200 {
            std::fs::create_dir(top.path().join(format!("a name of some length {number}"))).unwrap();
        }
        assert_eq!(paths(top.path()).len(), 1200);
    }

    #[test]
    fn links_are_not_entered() {
        let top = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", top.path().join("link")).unwrap();
        let mut walk = Walk::new(open(top.path()), Mounts::Enter, Resume::There).unwrap();
        assert_eq!(walk.enter(c"link").unwrap_err(), Errno::NOTDIR);
    }

    #[test]
    fn a_tree_that_is_moved_meanwhile_leads_nowhere_else() {
        let (top, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let deep = "a/".repeat(OPEN_LEVELS_MAX + 4);
        std::fs::create_dir_all(top.path().join(&deep)).unwrap();
        std::fs::write(other.path().join("file"), "").unwrap();
        let mut walk = Walk::new(open(top.path()), Mounts::Enter, Resume::There).unwrap();
        for _ in 0..(OPEN_LEVELS_MAX + 4) {
            assert!(matches!(walk.next().unwrap(), Some(Step::Item(_))));
            walk.enter(c"a").unwrap();
        }
        std::fs::rename(top.path().join("a/a"), other.path().join("a")).unwrap();
        let ended = std::iter::from_fn(|| match walk.next() {
            Ok(Some(Step::Left(_))) => Some(Ok(())),
            Ok(Some(Step::Item(item))) => panic!("{:?} was told", item.name),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        });
        assert!(ended.take(100).any(|step| step.is_err()), "it went on where it did not belong");
    }
}
