//! Directories of a walk: where they are, and how they are opened.

use std::collections::VecDeque;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::rules::Rules;

/// Levels below the start that a walk descends. Only a hostile program makes deeper trees.
pub(super) const LEVELS_MAX: u32 = 4096;

/// Longest piece of a path that is opened at once; the kernel takes 4096 bytes with the NUL.
const PIECE_BYTES_MAX: usize = 4000;

/// Directories that a thread keeps open.
const RECENT_MAX: usize = 8;

/// A directory that was found. It knows its own name only, so that a deep tree does not cost the square of its depth.
#[derive(Debug)]
pub(super) struct Folder {
    parent: Option<Arc<Folder>>,
    name: CString,
    /// Levels below the beginning.
    pub(super) level: u32,
    /// Ignore rules that directories above set for it.
    pub(super) rules: Option<Arc<Rules>>,
}

impl Folder {
    /// The start of a walk.
    pub(super) fn first(rules: Option<Arc<Rules>>) -> Arc<Self> {
        Arc::new(Self { parent: None, name: CString::default(), level: 0, rules })
    }

    /// A directory in this one.
    pub(super) fn child(self: &Arc<Self>, name: CString, rules: Option<Arc<Rules>>) -> Arc<Self> {
        Arc::new(Self { parent: Some(Arc::clone(self)), name, level: self.level + 1, rules })
    }

    /// Its path below the beginning, with `/` at its end; the beginning itself has none.
    pub(super) fn path(&self) -> Vec<u8> {
        self.path_below(|_| false)
    }

    /// Its path below the nearest directory above that is meant, or below the beginning.
    fn path_below(&self, meant: impl Fn(&Self) -> bool) -> Vec<u8> {
        let chain = std::iter::successors(Some(self), |folder| folder.parent.as_deref());
        let names: Vec<_> = chain.take_while(|folder| folder.parent.is_some() && !meant(folder)).collect();
        let mut path = Vec::with_capacity(names.iter().map(|folder| folder.name.count_bytes() + 1).sum());
        for folder in names.iter().rev() {
            path.extend_from_slice(folder.name.as_bytes());
            path.push(b'/');
        }
        path
    }
}

/// The directories that a thread has opened last. What lies below one of them is opened from there: whole paths of a deep tree
/// would cost the square of its depth.
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<(Arc<Folder>, Arc<OwnedFd>)>);

impl Recent {
    /// Opens a directory, through no link.
    pub(super) fn open(&mut self, beginning: BorrowedFd<'_>, folder: &Arc<Folder>) -> rustix::io::Result<Arc<OwnedFd>> {
        let kept = |folder: &Folder| self.0.iter().find(|(kept, _)| std::ptr::eq(&raw const **kept, folder));
        let path = folder.path_below(|above| kept(above).is_some());
        let mut chain = std::iter::successors(Some(&**folder), |folder| folder.parent.as_deref());
        let from = chain.find_map(kept).map_or(beginning, |(_, directory)| directory.as_fd());
        let opened = Arc::new(open(from, &path)?);
        self.0.truncate(RECENT_MAX - 1);
        self.0.push_front((Arc::clone(folder), Arc::clone(&opened)));
        Ok(opened)
    }
}

/// Opens a directory by its path below another one.
fn open(beginning: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if path.is_empty() {
        return enter(beginning, b".", OFlags::RDONLY);
    }
    let (mut rest, mut reached): (&[u8], Option<OwnedFd>) = (path, None);
    while rest.len() > PIECE_BYTES_MAX {
        let cut = memchr::memrchr(b'/', &rest[..PIECE_BYTES_MAX]).ok_or(Errno::NAMETOOLONG)?;
        let from = reached.as_ref().map_or(beginning, AsFd::as_fd);
        reached = Some(enter(from, &rest[..cut], OFlags::PATH)?);
        rest = &rest[cut + 1..];
    }
    enter(reached.as_ref().map_or(beginning, AsFd::as_fd), rest, OFlags::RDONLY)
}

fn enter(from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(from, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH)
}
