//! Goes through a tree with several threads, in bounded memory and with few open directories.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, RawDir};
use rustix::io::Errno;

use super::folder::{Folder, LEVELS_MAX, Recent};
use super::queue::{Job, Queue};
use super::rules::Rules;

/// Most things that are looked at.
const ENTRIES_MAX: u64 = 2_000_000;

/// Most threads: more do not read faster.
const THREADS_MAX: usize = 12;

/// Room for a thread's stack. Untouched room costs nothing.
const STACK_BYTES: usize = 8 << 20;

/// Files that are handed to another thread at once.
const BATCH_FILES: usize = 128;

/// Room for entries that are read at once.
const LISTING_BYTES: usize = 32 << 10;

/// Handles the entries that a walk finds. Paths are relative to the start.
pub(super) trait Visitor: Sync {
    /// State of one thread.
    type Own: Send;

    /// Creates the state of a thread.
    fn begin(&self) -> Self::Own;

    /// Ignore rules below a directory, if any.
    fn rules(&self, directory: BorrowedFd<'_>, path: &[u8], above: Option<&Arc<Rules>>) -> Option<Arc<Rules>>;

    /// Whether to look at something: a directory or a file.
    fn wants(&self, found: &WalkEntry<'_>) -> bool;

    /// Looks at a file.
    fn visit(&self, own: &mut Self::Own, file: &WalkEntry<'_>, directory: BorrowedFd<'_>) -> ControlFlow<()>;

    /// A directory could not be read.
    fn miss(&self);
}

/// Something in a directory.
pub(super) struct WalkEntry<'a> {
    /// Its path below the beginning.
    pub(super) path: &'a [u8],
    /// Its name.
    pub(super) name: &'a CStr,
    /// Levels below the beginning: 0 is in the beginning itself.
    pub(super) level: u32,
    pub(super) is_directory: bool,
    pub(super) rules: Option<&'a Rules>,
}

/// The results of all threads.
pub(super) struct Outcome<Own> {
    pub(super) gathered: Vec<Own>,
    /// Whether there was more to look at than may be.
    pub(super) partial: bool,
}

/// Files of one directory.
struct Batch {
    directory: Arc<OwnedFd>,
    /// The directory's path with `/` at its end.
    path: Arc<[u8]>,
    level: u32,
    names: Vec<CString>,
}

impl Batch {
    /// Takes all files that there are so far.
    fn split_off(&mut self) -> Self {
        let (directory, path) = (Arc::clone(&self.directory), Arc::clone(&self.path));
        Self { directory, path, level: self.level, names: std::mem::take(&mut self.names) }
    }
}

/// A directory to read.
struct Contents {
    files: Batch,
    folders: Vec<CString>,
    /// Ignore rules in it.
    rules: Option<Arc<Rules>>,
}

struct Walk<'a, V> {
    beginning: BorrowedFd<'a>,
    visitor: &'a V,
    queue: Queue<Arc<Folder>, Batch>,
    entries: AtomicU64,
    partial: AtomicBool,
    threads: usize,
}

/// Goes through the tree below an opened directory. Links are not followed.
pub(super) fn walk<V: Visitor>(beginning: &OwnedFd, rules: Option<Arc<Rules>>, visitor: &V) -> Outcome<V::Own> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(THREADS_MAX);
    let walk = Walk {
        beginning: beginning.as_fd(),
        visitor,
        queue: Queue::new(Folder::first(rules)),
        entries: AtomicU64::new(0),
        partial: AtomicBool::new(false),
        threads,
    };
    let gathered = std::thread::scope(|scope| {
        // A box may have no room for another thread. This one then does all the work.
        let spawn = |_| std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || walk.work()).ok();
        let others: Vec<_> = (1..threads).filter_map(spawn).collect();
        let own = walk.work();
        others.into_iter().filter_map(|other| other.join().ok()).chain([own]).collect()
    });
    Outcome { gathered, partial: walk.partial.into_inner() }
}

impl<V: Visitor> Walk<'_, V> {
    /// The loop of one thread.
    fn work(&self) -> V::Own {
        let mut own = self.visitor.begin();
        let (mut recent, mut listing) = (Recent::default(), vec![MaybeUninit::uninit(); LISTING_BYTES]);
        while let Some(job) = self.queue.take() {
            let went = match job {
                Job::Batch(batch) => self.visit(&mut own, &batch),
                Job::Folder(folder) => match recent.open(self.beginning, &folder) {
                    Ok(directory) => self.read(&mut own, &folder, &directory, &mut listing),
                    // It went, or became something else, since it was found.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => ControlFlow::Continue(()),
                    Err(_) => {
                        self.visitor.miss();
                        ControlFlow::Continue(())
                    }
                },
            };
            if went.is_break() {
                self.queue.stop();
            }
            self.queue.done();
        }
        own
    }

    fn read(
        &self,
        own: &mut V::Own,
        folder: &Arc<Folder>,
        directory: &Arc<OwnedFd>,
        listing: &mut [MaybeUninit<u8>],
    ) -> ControlFlow<()> {
        let path: Arc<[u8]> = folder.path().into();
        let rules = match folder.level {
            0 => folder.rules.clone(),
            _ => self.visitor.rules(directory.as_fd(), &path, folder.rules.as_ref()),
        };
        let files = Batch { directory: Arc::clone(directory), path, level: folder.level, names: Vec::new() };
        let mut contents = Contents { files, folders: Vec::new(), rules };
        let mut entries = RawDir::new(&**directory, listing);
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else {
                self.visitor.miss();
                break;
            };
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            self.count()?;
            self.sort_in(&mut contents, entry.file_name(), entry.file_type());
            if contents.files.names.len() == BATCH_FILES {
                self.hand_over(own, contents.files.split_off())?;
            }
        }
        let Contents { files, folders, rules } = contents;
        self.queue.add(&mut folders.into_iter().map(|name| folder.child(name, rules.clone())).collect());
        self.visit(own, &files)
    }

    /// Puts something where it belongs, if it is wanted.
    fn sort_in(&self, contents: &mut Contents, name: &CStr, told: FileType) {
        let Contents { files, folders, rules } = contents;
        let is_directory = match kind(&files.directory, name, told) {
            FileType::Directory => true,
            FileType::RegularFile => false,
            _ => return,
        };
        let path = [&*files.path, name.to_bytes()].concat();
        let found = WalkEntry { path: &path, name, level: files.level, is_directory, rules: rules.as_deref() };
        if !self.visitor.wants(&found) {
            return;
        }
        if !is_directory {
            files.names.push(name.to_owned());
        } else if files.level < LEVELS_MAX {
            folders.push(name.to_owned());
        } else {
            self.partial.store(true, Ordering::Relaxed);
        }
    }

    /// Gives files to another thread, or looks at them when the others have enough to do.
    fn hand_over(&self, own: &mut V::Own, batch: Batch) -> ControlFlow<()> {
        match if self.threads > 1 { self.queue.offer(batch) } else { Err(batch) } {
            Ok(()) => ControlFlow::Continue(()),
            Err(batch) => self.visit(own, &batch),
        }
    }

    fn visit(&self, own: &mut V::Own, batch: &Batch) -> ControlFlow<()> {
        let mut path = batch.path.to_vec();
        for name in &batch.names {
            path.truncate(batch.path.len());
            path.extend_from_slice(name.as_bytes());
            let file = WalkEntry { path: &path, name, level: batch.level, is_directory: false, rules: None };
            self.visitor.visit(own, &file, batch.directory.as_fd())?;
        }
        ControlFlow::Continue(())
    }

    fn count(&self) -> ControlFlow<()> {
        if self.entries.fetch_add(1, Ordering::Relaxed) < ENTRIES_MAX {
            return ControlFlow::Continue(());
        }
        self.partial.store(true, Ordering::Relaxed);
        ControlFlow::Break(())
    }
}

/// The type of an entry; not all file systems include it in listings.
fn kind(directory: &OwnedFd, name: &CStr, told: FileType) -> FileType {
    match told {
        FileType::Unknown => rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
        told => told,
    }
}
