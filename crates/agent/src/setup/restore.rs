//! Fills the storage of a new box from the archive of a saved one.
//!
//! The archive is untrusted, and files of the host are still visible. So every path is opened from the storage
//! downwards, without following links or crossing mounts, and no entry replaces an existing file. An archive can only
//! hold what a box can create itself; the limits of the storage bound its size.

mod making;

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use box_wire::User;
use box_wire::limits::PATH_BYTES_MAX;
use rustix::fs::{Mode, OFlags, ResolveFlags, Timestamps};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};

use crate::metered::Metered;
use crate::snapshot::{ATTRIBUTE, END, EXTENTS, Extents, PLACES, ROOT, is_kept, parse_attribute};

/// Bytes of an archive before the bytes of one entry: its header, its records, its long names, and padding.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Why a storage could not be filled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The archive is not a box snapshot, or holds an entry that is not allowed.
    Bad(String),
    /// There is not enough room.
    NoRoom,
    /// Another step failed.
    Failed(String, Errno),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(reason) => write!(f, "not a box snapshot, or a damaged one: {reason}"),
            Self::NoRoom => f.write_str(
                "the saved box does not fit into this one; give it more with disk_mb (workspace_quota_mb of a session)",
            ),
            Self::Failed(path, errno) => write!(f, "{path}: {errno}"),
        }
    }
}

type Done<T> = Result<T, Refusal>;

fn bad<T>(reason: impl Into<String>) -> Done<T> {
    Err(Refusal::Bad(reason.into()))
}

/// Fills a fresh storage. Files of users that this box does not map become `fallback`'s.
pub(crate) fn fill(storage: &OwnedFd, archive: impl Read, fallback: User) -> Done<()> {
    let allowance = Rc::new(Cell::new(HEADER_BYTES_MAX));
    let mut archive = Archive::new(Metered { input: archive, allowance: Rc::clone(&allowance) });
    let mut restoration = Restoration { storage, fallback, above: None, times: Vec::new(), is_complete: false };
    let mut entries = archive.entries().map_err(|error| Refusal::Bad(error.to_string()))?;
    loop {
        allowance.set(HEADER_BYTES_MAX);
        let Some(entry) = entries.next() else { break };
        let entry = entry.map_err(|error| Refusal::Bad(error.to_string()))?;
        allowance.set(u64::MAX);
        if restoration.is_complete {
            return bad("something follows its end");
        }
        restoration.take(entry)?;
    }
    if !restoration.is_complete {
        return bad("its end is missing");
    }
    restoration.set_times_but_above(&[])
}

struct Restoration<'a> {
    storage: &'a OwnedFd,
    fallback: User,
    /// The directory of the last entry, which is mostly that of the next.
    above: Option<(OsString, OwnedFd)>,
    /// Modification times of directories, set at the end because new entries change them.
    times: Vec<(OsString, Timestamps)>,
    is_complete: bool,
}

/// The place of an archive's entry: names from the storage on, at least one.
struct EntryPath<'a> {
    above: Vec<&'a OsStr>,
    name: &'a OsStr,
}

impl<'a> EntryPath<'a> {
    fn parse(path: &'a [u8]) -> Done<Self> {
        let parts = path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let mut above: Vec<&OsStr> = parts.map(OsStr::from_bytes).collect();
        let shown = || String::from_utf8_lossy(path).chars().take(120).collect::<String>();
        let is_wrong = path.starts_with(b"/") || path.contains(&0) || above.iter().any(|name| *name == "..");
        if is_wrong || path.len() > PATH_BYTES_MAX {
            return bad(format!("{:?} is not a path below a directory", shown()));
        }
        if !above.first().is_some_and(|top| *top == ROOT || *top == PLACES) {
            return bad(format!("{:?} is neither in {ROOT} nor in {PLACES}", shown()));
        }
        match above.pop() {
            Some(name) => Ok(Self { above, name }),
            None => bad("one of its entries has no name"),
        }
    }

    /// The part of the path that becomes one mount of the box. Hard links cannot cross it.
    fn mount(&self) -> Vec<&'a OsStr> {
        let all = || self.above.iter().copied().chain([self.name]);
        let levels = if all().next().is_some_and(|top| top == PLACES) { 2 } else { 1 };
        all().take(levels).collect()
    }

    fn whole(&self) -> OsString {
        let names: Vec<&OsStr> = self.above.iter().copied().chain([self.name]).collect();
        names.join(OsStr::new("/"))
    }
}

/// The PAX records of an entry.
#[derive(Default)]
struct Records {
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    extents: Option<Extents>,
}

impl Records {
    fn of(entry: &mut Entry<'_, impl Read>) -> Done<Self> {
        let mut records = Self::default();
        let found = entry.pax_extensions().map_err(|error| Refusal::Bad(error.to_string()))?;
        for record in found.into_iter().flatten() {
            let record = record.map_err(|error| Refusal::Bad(error.to_string()))?;
            match (record.key(), record.value()) {
                (Ok(ATTRIBUTE), Ok(text)) => match parse_attribute(text) {
                    Some((name, value)) if is_kept(&name) => records.attributes.push((name, value)),
                    _ => return bad("it has an attribute that no saved box has"),
                },
                (Ok(EXTENTS), Ok(text)) => match Extents::parse(text) {
                    Some(extents) => records.extents = Some(extents),
                    None => return bad("it has a file whose parts cannot be read"),
                },
                _ => {}
            }
        }
        Ok(records)
    }
}

impl Restoration<'_> {
    fn take(&mut self, mut entry: Entry<'_, impl Read>) -> Done<()> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return self.end(entry);
        }
        let path = entry.path_bytes().into_owned();
        let way = EntryPath::parse(&path)?;
        if way.above.is_empty() && kind != EntryType::Directory {
            return bad(format!("{} is not a directory in it", way.name.display()));
        }
        let whole = way.whole();
        self.set_times_but_above(whole.as_bytes())?;
        let failed = |errno| refused(&whole, errno);
        let above = self.directory_of(&way)?;
        let records = Records::of(&mut entry)?;
        match kind {
            EntryType::Directory => {
                self.make_directory(&above, way.name, &entry, &records).map_err(failed)?;
                self.times.push((whole, making::times(&entry)));
            }
            EntryType::Regular => self.make_file(&above, &way, &mut entry, &records)?,
            EntryType::Symlink => self.make_symlink(&above, &way, &entry)?,
            EntryType::Link => self.make_link(&above, &way, &entry)?,
            EntryType::Fifo => self.make_node(&above, way.name, rustix::fs::FileType::Fifo, &entry).map_err(failed)?,
            EntryType::Char if making::is_whiteout(&entry) => {
                self.make_node(&above, way.name, rustix::fs::FileType::CharacterDevice, &entry).map_err(failed)?;
            }
            _ => return bad(format!("{} is nothing that a box can make", whole.display())),
        }
        self.above = Some((way.above.join(OsStr::new("/")), above));
        Ok(())
    }

    fn end(&mut self, entry: Entry<'_, impl Read>) -> Done<()> {
        let mut said = Vec::new();
        let read = entry.take(END.len() as u64 + 1).read_to_end(&mut said);
        self.is_complete = read.is_ok() && said == END;
        if self.is_complete { Ok(()) } else { bad("its end says something else") }
    }

    /// The directory of an entry. An archive holds it before its content.
    fn directory_of(&mut self, way: &EntryPath<'_>) -> Done<OwnedFd> {
        let path = way.above.join(OsStr::new("/"));
        match self.above.take() {
            Some((last, directory)) if last == path => return Ok(directory),
            _ => {}
        }
        let named = if path.is_empty() { OsStr::new(".") } else { &path };
        match open_beneath(self.storage, named, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                bad(format!("{} is not a directory in it", path.display()))
            }
            opened => opened.map_err(|errno| refused(&path, errno)),
        }
    }

    /// Says when the directories were changed that are gone through: all but those that lead to `path`.
    fn set_times_but_above(&mut self, path: &[u8]) -> Done<()> {
        let leads_there =
            |directory: &OsStr| path.strip_prefix(directory.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'));
        while let Some((directory, times)) = self.times.pop_if(|(directory, _)| !leads_there(directory)) {
            open_beneath(self.storage, &directory, OFlags::RDONLY | OFlags::DIRECTORY)
                .and_then(|opened| rustix::fs::futimens(opened, &times))
                .map_err(|errno| refused(&directory, errno))?;
        }
        Ok(())
    }
}

fn refused(path: &OsStr, errno: Errno) -> Refusal {
    match errno {
        Errno::NOSPC | Errno::DQUOT => Refusal::NoRoom,
        Errno::EXIST => Refusal::Bad(format!("{} is in it twice", path.display())),
        _ => Refusal::Failed(path.display().to_string(), errno),
    }
}

/// Opens a path below a directory, through no link and no mount.
fn open_beneath(directory: impl AsFd, path: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(directory, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Reads the archive that the host opened.
pub(super) fn reader(archive: OwnedFd) -> impl Read {
    std::io::BufReader::with_capacity(128 << 10, File::from(archive))
}

#[cfg(test)]
mod tests;
