//! An archive out of a box, put into a directory of this machine. Whoever made it wants to write elsewhere.

use std::cell::Cell;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use box_core::SafeRoot;
use tar::{Archive, EntryType};

use super::{BYTES_MAX, ENTRIES_MAX, HEAD_BYTES_MAX};
use crate::fault::Fault;
use crate::table::visible;

/// Permission bits that are taken over. Those that lend somebody's rights are not.
const MODE_MASK: u32 = 0o777;
/// What a directory has that the archive does not mention.
const DIRECTORY_MODE: u32 = 0o755;
/// What every directory has.
const OWNER_MODE: u32 = 0o700;

/// What came out of an archive.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// Files that were written.
    pub(crate) files: u64,
    /// Bytes in them.
    pub(crate) bytes: u64,
    /// Links and special files, which were left out.
    pub(crate) skipped: u64,
}

/// Puts the files and directories of an archive below a root, and nowhere else. Files that are there are replaced; no link is
/// followed or made, so nothing that was unpacked can lead what comes later away.
pub(crate) fn unpack(from: &mut dyn Read, root: &SafeRoot) -> Result<Unpacked, Fault> {
    let budget = Rc::new(Cell::new(HEAD_BYTES_MAX));
    let mut archive = Archive::new(Metered { inner: from, budget: Rc::clone(&budget) });
    let mut target = Target { root, done: Unpacked::default(), number: 0 };
    for (number, entry) in (1..).zip(archive.entries().map_err(broken)?) {
        let mut entry = entry.map_err(broken)?;
        if number > ENTRIES_MAX {
            return Err(Fault::new(format!("the archive has more than {ENTRIES_MAX} entries")));
        }
        budget.set(u64::MAX);
        target.take(&mut entry)?;
        // What was not read of it is passed over now, so that only the head of the next one is left to read.
        io::copy(&mut entry, &mut io::sink()).map_err(broken)?;
        budget.set(HEAD_BYTES_MAX);
    }
    // The archive says where it ends; whether the answer was whole is known only behind it.
    budget.set(u64::MAX);
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(broken)?;
    Ok(target.done)
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn broken(error: io::Error) -> Fault {
    Fault::new(format!("the archive cannot be read: {error}"))
}

/// The bytes of an archive, with a bound on how many may come before an entry is known: names are kept in memory.
struct Metered<'a> {
    inner: &'a mut dyn Read,
    budget: Rc<Cell<u64>>,
}

impl Read for Metered<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.budget.get();
        if left == 0 {
            return Err(io::Error::other(format!("an entry has a head of more than {HEAD_BYTES_MAX} bytes")));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let count = self.inner.read(&mut into[..most])?;
        if left != u64::MAX {
            self.budget.set(left - count as u64);
        }
        Ok(count)
    }
}

/// The directory that is filled.
struct Target<'a> {
    root: &'a SafeRoot,
    done: Unpacked,
    number: u64,
}

impl Target<'_> {
    fn take(&mut self, entry: &mut tar::Entry<'_, impl Read>) -> Result<(), Fault> {
        let path = safe_path(&entry.path_bytes())?;
        let mode = entry.header().mode().unwrap_or(0o644) & MODE_MASK;
        match entry.header().entry_type() {
            EntryType::Directory => self.directory(&path, mode),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => self.file(&path, mode, entry),
            EntryType::XGlobalHeader => Ok(()),
            _ => {
                self.done.skipped += 1;
                Ok(())
            }
        }
    }

    /// Directories stay usable for their owner, whatever the archive says: others are put into them.
    fn directory(&mut self, path: &Path, mode: u32) -> Result<(), Fault> {
        self.parents(path)?;
        Ok(self.root.make_directory_all(path, mode | OWNER_MODE)?)
    }

    /// Makes the directories above a path that the archive did not mention.
    fn parents(&self, path: &Path) -> Result<(), Fault> {
        Ok(self.root.make_directory_all(path.parent().unwrap_or(Path::new("")), DIRECTORY_MODE)?)
    }

    /// Writes a file beside its place and then puts it there: a link that is in its place is replaced, not followed.
    fn file(&mut self, path: &Path, mode: u32, entry: &mut tar::Entry<'_, impl Read>) -> Result<(), Fault> {
        if path.as_os_str().is_empty() {
            return Err(Fault::new("the archive has a file without a name"));
        }
        self.parents(path)?;
        self.number += 1;
        let partial = path.with_file_name(format!(".strongbox-{}-{}.partial", std::process::id(), self.number));
        let mut file = self.root.create_new_file(&partial, mode)?;
        let (left, announced) = (BYTES_MAX - self.done.bytes, entry.size());
        let copied = io::copy(&mut entry.take(left.saturating_add(1)), &mut file);
        let written = match copied {
            Ok(count) if count > left => Err(Fault::new(format!("the archive holds more than {BYTES_MAX} bytes"))),
            // The reader takes the end of everything for the end of the file.
            Ok(count) if count < announced => Err(Fault::new("the archive breaks off in the middle of a file")),
            Ok(count) => self.root.rename(&partial, path).map(|()| count).map_err(Fault::from),
            Err(error) => Err(Fault::new(format!("{}: {error}", visible(&path.display().to_string())))),
        };
        if written.is_err() {
            drop(self.root.remove_file(&partial));
        }
        self.done.bytes += written?;
        self.done.files += 1;
        Ok(())
    }
}

/// A name in an archive as a path below the root. One that wants to go elsewhere is refused with the whole archive: nobody makes
/// such a name by mistake.
fn safe_path(name: &[u8]) -> Result<PathBuf, Fault> {
    let refuse = |why: &str| {
        let shown: String = String::from_utf8_lossy(name).chars().take(200).collect();
        Fault::new(format!("the archive holds {:?}, which {why}; nothing more was unpacked", visible(&shown)))
    };
    if name.contains(&0) {
        return Err(refuse("is no name"));
    }
    let mut path = PathBuf::new();
    for component in Path::new(std::ffi::OsStr::from_bytes(name)).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(refuse("leads out of the directory"));
            }
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests;
