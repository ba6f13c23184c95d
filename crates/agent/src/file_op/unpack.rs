//! Puts what is in a tar archive into a directory, through no link and nowhere else.
//!
//! Every file is whole or not there. What came before something that may not be stays.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use box_wire::limits::PATH_BYTES_MAX;
use box_wire::{Answer, FileError, FileErrorCode, GuestPath};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};

use super::draft::Draft;
use super::files::CHUNK_BYTES;
use super::place::{DIRECTORY_MODE, FileTree};
use super::tree::{Mounts, open_below};
use super::{file_error, told_path};
use crate::metered::Metered;

/// Bytes of an archive before the bytes of one entry: its header, its long names, and padding.
const HEADER_BYTES_MAX: u64 = 256 << 10;

/// Entries of one archive.
const ENTRIES_MAX: u64 = 1_000_000;

/// Rights that the owner of a directory always has, whatever the archive says: otherwise nothing could be put into it.
const OWNER_BITS: u32 = 0o700;

pub(super) fn unpack(
    place: &FileTree,
    path: &GuestPath,
    bytes_max: u64,
    input: &mut impl Read,
) -> Result<Answer, FileError> {
    let directory = place.directory_made(path)?;
    let allowance = Rc::new(Cell::new(HEADER_BYTES_MAX));
    let mut archive = Archive::new(Metered { input, allowance: Rc::clone(&allowance) });
    let mut unpacking = Unpacking { directory, path, bytes_max, entries: 0, bytes: 0 };
    let mut entries = archive.entries().map_err(|error| unpacking.bad(&error.to_string()))?;
    loop {
        allowance.set(HEADER_BYTES_MAX);
        let Some(entry) = entries.next() else { break };
        let entry = entry.map_err(|error| unpacking.bad(&error.to_string()))?;
        allowance.set(u64::MAX);
        unpacking.take(entry)?;
    }
    Ok(Answer::Unpacked { entries: unpacking.entries, bytes: unpacking.bytes })
}

struct Unpacking<'a> {
    directory: OwnedFd,
    path: &'a GuestPath,
    bytes_max: u64,
    entries: u64,
    bytes: u64,
}

/// Names from the directory to an entry.
type Names<'a> = Vec<&'a OsStr>;

impl Unpacking<'_> {
    fn take(&mut self, mut entry: Entry<'_, impl Read>) -> Result<(), FileError> {
        let path = entry.path_bytes().into_owned();
        let mut names = self.names(&path)?;
        if self.entries >= ENTRIES_MAX {
            let message = format!("the archive has more than {ENTRIES_MAX} entries");
            return Err(FileError::new(FileErrorCode::TooLarge, message));
        }
        let kind = entry.header().entry_type();
        let Some(name) = names.pop() else {
            // The directory itself: it is there, and stays as it is.
            return if kind.is_dir() { Ok(()) } else { Err(self.bad("one of its entries has no name")) };
        };
        let above = self.directory_at(&names)?;
        let failed = |error| file_error(&told_path(self.path, &path), error);
        match kind {
            EntryType::Directory => make_directory(&above, name, &entry).map_err(failed)?,
            EntryType::Regular | EntryType::Continuous if path.ends_with(b"/") => {
                make_directory(&above, name, &entry).map_err(failed)?;
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.bytes += self.write(&above, name, &mut entry, &path)?;
            }
            EntryType::Symlink => self.link(&above, name, &entry)?.map_err(failed)?,
            EntryType::Link => self.link_hard(&above, name, &entry)?.map_err(failed)?,
            EntryType::XGlobalHeader => return Ok(()),
            _ => {
                let what = format!("{} is neither a file nor a directory nor a link", String::from_utf8_lossy(&path));
                return Err(self.bad(&what));
            }
        }
        self.entries += 1;
        Ok(())
    }

    /// The names of a path in the archive, none of which may lead up.
    fn names<'b>(&self, path: &'b [u8]) -> Result<Names<'b>, FileError> {
        let parts = path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let names: Names<'b> = parts.map(OsStr::from_bytes).collect();
        let wrong = path.starts_with(b"/") || path.contains(&0) || names.iter().any(|name| *name == "..");
        if wrong || path.len() > PATH_BYTES_MAX {
            let shown: String = String::from_utf8_lossy(path).chars().take(120).collect();
            return Err(self.bad(&format!("{shown:?} is not a path below the directory")));
        }
        Ok(names)
    }

    /// A directory of the tree that is unpacked; what is missing of it is made.
    fn directory_at(&self, names: &[&OsStr]) -> Result<OwnedFd, FileError> {
        let whole = joined(names);
        let failed = |error| file_error(&told_path(self.path, whole.as_bytes()), error);
        match open_directory(&self.directory, &whole) {
            Err(Errno::NOENT) => {}
            opened => return opened.map_err(failed),
        }
        let mut current = open_directory(&self.directory, OsStr::new(".")).map_err(failed)?;
        for name in names {
            make_if_missing(&current, name).map_err(failed)?;
            current = open_directory(&current, name).map_err(failed)?;
        }
        Ok(current)
    }

    fn write(
        &self,
        above: &OwnedFd,
        name: &OsStr,
        entry: &mut Entry<'_, impl Read>,
        path: &[u8],
    ) -> Result<u64, FileError> {
        let failed = |error: io::Error| file_error(&told_path(self.path, path), error);
        let mut draft = Draft::new(above).map_err(|error| failed(error.into()))?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut count = 0_u64;
        loop {
            let read = match entry.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) => return Err(self.bad(&error.to_string())),
            };
            count += read as u64;
            if count > self.bytes_max - self.bytes {
                return Err(self.too_large());
            }
            draft.file.write_all(&chunk[..read]).map_err(failed)?;
        }
        if count != entry.size() {
            return Err(self.bad("it ends in the middle of a file"));
        }
        let finished = || -> rustix::io::Result<()> {
            draft.set_mode(entry.header().mode().unwrap_or(0o644))?;
            rustix::fs::futimens(&draft.file, &times(entry))
        };
        finished().map_err(|error| failed(error.into()))?;
        draft.replace(name).map_err(|(error, _)| failed(error.into()))?;
        Ok(count)
    }

    fn link(
        &self,
        above: &OwnedFd,
        name: &OsStr,
        entry: &Entry<'_, impl Read>,
    ) -> Result<rustix::io::Result<()>, FileError> {
        let Some(target) = entry.link_name_bytes().filter(|target| !target.is_empty()) else {
            return Err(self.bad("a link in it points to nothing"));
        };
        let made = make_room(above, name).and_then(|()| rustix::fs::symlinkat(&*target, above, name));
        Ok(made)
    }

    /// Gives a file that was unpacked before a second name.
    fn link_hard(
        &self,
        above: &OwnedFd,
        name: &OsStr,
        entry: &Entry<'_, impl Read>,
    ) -> Result<rustix::io::Result<()>, FileError> {
        let target = entry.link_name_bytes().unwrap_or_default().into_owned();
        let mut names = self.names(&target)?;
        let own = entry.path_bytes();
        if names == self.names(&own)? {
            return Err(self.bad("a link in it points to itself"));
        }
        let Some(old) = names.pop() else { return Err(self.bad("a link in it points to nothing")) };
        let from = open_directory(&self.directory, &joined(&names));
        let link = |from: &OwnedFd| rustix::fs::linkat(from, old, above, name, AtFlags::empty());
        Ok(from.and_then(|from| match link(&from) {
            Err(Errno::EXIST) => make_room(above, name).and_then(|()| link(&from)),
            made => made,
        }))
    }

    fn too_large(&self) -> FileError {
        let message = format!("the files of the archive have more than {} bytes", self.bytes_max);
        FileError::new(FileErrorCode::TooLarge, message)
    }

    fn bad(&self, reason: &str) -> FileError {
        let message = format!("the archive for {} cannot be unpacked: {reason}", self.path);
        FileError::new(FileErrorCode::BadArchive, message)
    }
}

/// A path from the directory; `.` is the directory itself.
fn joined(names: &[&OsStr]) -> OsString {
    if names.is_empty() { OsString::from(".") } else { names.join(OsStr::new("/")) }
}

fn open_directory(above: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    open_below(above, name, OFlags::PATH | OFlags::DIRECTORY, Mounts::Enter)
}

/// Whether it was made now.
fn make_if_missing(above: &OwnedFd, name: &OsStr) -> rustix::io::Result<bool> {
    match rustix::fs::mkdirat(above, name, DIRECTORY_MODE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes a directory with the permissions that the archive says; one that is there stays as it is.
fn make_directory(above: &OwnedFd, name: &OsStr, entry: &Entry<'_, impl Read>) -> Result<(), Errno> {
    if !make_if_missing(above, name)? {
        return open_directory(above, name).map(drop);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let directory = open_below(above, name, flags, Mounts::Enter)?;
    let mode = entry.header().mode().unwrap_or(0o755) & 0o777 | OWNER_BITS;
    rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))
}

/// Removes what has a name, unless it is a directory.
fn make_room(above: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(above, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

fn times(entry: &Entry<'_, impl Read>) -> Timestamps {
    let seconds = i64::try_from(entry.header().mtime().unwrap_or(0)).unwrap_or(0);
    let modified = Timespec { tv_sec: seconds, tv_nsec: 0 };
    Timestamps { last_access: modified, last_modification: modified }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tar::{Builder, Header};

    use super::super::place::ground::Ground;
    use super::*;

    /// An archive of entries with these types, names, link names and bytes.
    fn archive(entries: &[(EntryType, &str, &str, &str)]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        for (kind, name, target, bytes) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_size(bytes.len() as u64);
            header.set_mode(0o640);
            header.set_mtime(1_000_000_000);
            // By hand, because the library makes no bad archives.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
            header.set_cksum();
            archive.append(&header, bytes.as_bytes()).unwrap();
        }
        archive.into_inner().unwrap()
    }

    fn unpack_into(ground: &Ground, name: &str, bytes_max: u64, archive: &[u8]) -> Result<Answer, FileError> {
        unpack(&ground.place, &ground.path(name), bytes_max, &mut &archive[..])
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names.into_iter().map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn files_links_and_directories_come_out_as_they_went_in() {
        let ground = Ground::new();
        let bytes = archive(&[
            (EntryType::Directory, "./", "", ""),
            (EntryType::Directory, "./a/", "", ""),
            (EntryType::Regular, "./a/b/file", "", "text"),
            (EntryType::Link, "second", "a/b/file", ""),
            (EntryType::Symlink, "out", "/etc", ""),
        ]);
        let answer = unpack_into(&ground, "new/place", 4, &bytes).unwrap();
        assert_eq!(answer, Answer::Unpacked { entries: 4, bytes: 4 });
        let top = ground.tree.join("new/place");
        assert_eq!(fs::read_to_string(top.join("a/b/file")).unwrap(), "text");
        assert_eq!(fs::read_to_string(top.join("second")).unwrap(), "text");
        assert_eq!(fs::read_link(top.join("out")).unwrap(), Path::new("/etc"));
        let metadata = fs::metadata(top.join("a/b/file")).unwrap();
        assert_eq!(
            metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(),
            1_000_000_000
        );
        assert_eq!(unpack_into(&ground, "new/place", 4, &bytes).unwrap(), answer, "and again over itself");
    }

    #[test]
    fn an_archive_cannot_leave_its_directory() {
        let file = EntryType::Regular;
        let link = EntryType::Symlink;
        for (entries, code) in [
            (vec![(file, "../x", "", "x")], FileErrorCode::BadArchive),
            (vec![(file, "a/../../x", "", "x")], FileErrorCode::BadArchive),
            (vec![(file, "/x", "", "x")], FileErrorCode::BadArchive),
            (vec![(link, "l", "..", ""), (file, "l/x", "", "x")], FileErrorCode::SymlinkRefused),
            (vec![(link, "l", "/", ""), (EntryType::Directory, "l", "", "")], FileErrorCode::SymlinkRefused),
            (vec![(link, "l", "../secret", ""), (EntryType::Link, "l/x", "l", "")], FileErrorCode::SymlinkRefused),
            (vec![(EntryType::Link, "x", "../../secret", "")], FileErrorCode::BadArchive),
            (vec![(EntryType::Link, "x", "x", "")], FileErrorCode::BadArchive),
            (vec![(EntryType::Char, "x", "", "")], FileErrorCode::BadArchive),
            (vec![(EntryType::Fifo, "x", "", "")], FileErrorCode::BadArchive),
        ] {
            let ground = Ground::new();
            fs::write(ground.outside("secret"), "old").unwrap();
            let error = unpack_into(&ground, "in", 100, &archive(&entries)).unwrap_err();
            assert_eq!(error.code, code, "{entries:?}: {error}");
            assert_eq!(names(ground.outside("").as_path()), ["secret", "tree"], "{entries:?}");
            assert_eq!(names(&ground.tree), ["in"], "{entries:?}");
        }
    }

    #[test]
    fn a_link_that_stands_where_a_file_goes_is_replaced() {
        let ground = Ground::new();
        fs::write(ground.outside("secret"), "old").unwrap();
        let entries = [(EntryType::Symlink, "x", "../../secret", ""), (EntryType::Regular, "x", "", "new")];
        unpack_into(&ground, "in", 100, &archive(&entries)).unwrap();
        assert_eq!(fs::read_to_string(ground.outside("secret")).unwrap(), "old");
        assert_eq!(fs::read_to_string(ground.tree.join("in/x")).unwrap(), "new");
    }

    #[test]
    fn what_is_no_archive_or_too_much_is_refused() {
        let ground = Ground::new();
        let whole = archive(&[(EntryType::Regular, "a", "", "12345"), (EntryType::Regular, "b", "", "12345")]);
        let error = unpack_into(&ground, "in", 9, &whole).unwrap_err();
        assert_eq!(error.code, FileErrorCode::TooLarge);
        assert_eq!(names(&ground.tree.join("in")), ["a"], "the file that did not fit is not there");
        for broken in [&whole[..500], &whole[..514], &vec![0x1f; 2048][..]] {
            assert_eq!(unpack_into(&ground, "broken", 99, broken).unwrap_err().code, FileErrorCode::BadArchive);
        }
        assert!(names(&ground.tree.join("broken")).is_empty());
        assert_eq!(unpack_into(&ground, "in", 9, &[]).unwrap(), Answer::Unpacked { entries: 0, bytes: 0 });
    }

    #[test]
    fn a_name_that_never_ends_is_refused() {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 40);
        header.as_old_mut().name[0] = b'x';
        header.set_cksum();
        let mut endless = header.as_bytes().chain(io::repeat(b'x'));
        let ground = Ground::new();
        let error = unpack(&ground.place, &ground.path("in"), 100, &mut endless).unwrap_err();
        assert_eq!(error.code, FileErrorCode::BadArchive);
    }
}
