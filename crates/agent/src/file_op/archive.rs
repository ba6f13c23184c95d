//! A file or directory as a tar archive.
//!
//! Of a directory, the archive holds what is in it, named from there. Links stay links; sockets, pipes and devices are left out.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use box_wire::file_op::EntryKind;
use box_wire::limits::PATH_BYTES_MAX;
use box_wire::{Answer, FileError, GuestPath};
use rustix::fs::{AtFlags, OFlags, Stat};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use super::files::{CHUNK_BYTES, entry, kind};
use super::place::FileTree;
use super::tree::{Mounts, Resume, Step, Walk, open_below};
use super::{AnswerTiming, Output};

pub(super) fn pack(place: &FileTree, path: &GuestPath, output: &mut Output) -> Result<AnswerTiming, FileError> {
    let top = place.open(path, OFlags::RDONLY)?;
    let told = entry(&top, path.as_str())?;
    let name = path.name().to_owned();
    let sent = || -> io::Result<()> {
        let is_directory = told.kind == EntryKind::Directory;
        output.reply(&Ok(Answer::Entry(told)))?;
        let mut archive = Builder::new(BufWriter::with_capacity(CHUNK_BYTES, output));
        if is_directory { add_all(&mut archive, top) } else { add_file(&mut archive, top, name.as_bytes()) }?;
        archive.into_inner()?.flush()
    };
    Ok(AnswerTiming::Before(sent()))
}

fn add_all<W: Write>(archive: &mut Builder<W>, top: File) -> io::Result<()> {
    let mut walk = Walk::new(top.into(), Mounts::Enter, Resume::There)?;
    while let Some(step) = walk.next()? {
        let Step::Item(item) = step else { continue };
        let path = walk.path_to(&item.name);
        if path.len() > PATH_BYTES_MAX {
            return Err(io::Error::other("the tree is deeper than a path can say"));
        }
        match add(archive, &mut walk, &item.name, &path) {
            Ok(()) => {}
            // It is gone, or something else by now.
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::INVAL)
                ) => {}
            Err(error) => return Err(io::Error::other(format!("{}: {error}", String::from_utf8_lossy(&path)))),
        }
    }
    Ok(())
}

fn add<W: Write>(archive: &mut Builder<W>, walk: &mut Walk, name: &CStr, path: &[u8]) -> io::Result<()> {
    let stat = rustix::fs::statat(walk.directory(), name, AtFlags::SYMLINK_NOFOLLOW)?;
    match kind(&stat) {
        EntryKind::Directory => {
            walk.enter(name)?;
            archive.append_data(&mut header(&stat, EntryType::Directory, 0), with_slash(path), io::empty())
        }
        EntryKind::Symlink => {
            let target = rustix::fs::readlinkat(walk.directory(), name, Vec::new())?;
            add_link(archive, header(&stat, EntryType::Symlink, 0), as_path(path), target.to_bytes())
        }
        EntryKind::File => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            add_file(archive, open_below(walk.directory(), name, flags, Mounts::Enter)?.into(), path)
        }
        EntryKind::Other => Ok(()),
    }
}

fn add_file<W: Write>(archive: &mut Builder<W>, file: File, path: &[u8]) -> io::Result<()> {
    let stat = rustix::fs::fstat(&file)?;
    if kind(&stat) != EntryKind::File {
        return Ok(());
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    archive.append_data(&mut header(&stat, EntryType::Regular, size), as_path(path), Exactly { file, left: size })
}

/// A link or another name of a file, with what it points to exactly as it is.
pub(super) fn add_link<W: Write>(
    archive: &mut Builder<W>,
    mut header: Header,
    path: &Path,
    target: &[u8],
) -> io::Result<()> {
    match header.set_link_name_literal(target) {
        Ok(()) => archive.append_data(&mut header, path, io::empty()),
        Err(_) => archive.append_link(&mut header, path, as_path(target)),
    }
}

pub(super) fn header(stat: &Stat, entry_type: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(entry_type);
    header.set_size(size);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header
}

pub(super) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Directories end with a slash in archives.
pub(super) fn with_slash(path: &[u8]) -> std::path::PathBuf {
    as_path(&[path, b"/"].concat()).to_owned()
}

/// As many bytes of a file as were announced, however it changes meanwhile.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let room = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = match self.file.read(&mut bytes[..room])? {
            0 => {
                bytes[..room].fill(0);
                room
            }
            count => count,
        };
        self.left -= count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_links_of_any_length_are_kept() {
        let top = tempfile::tempdir().unwrap();
        let long = "a".repeat(200);
        std::fs::create_dir(top.path().join(&long)).unwrap();
        std::fs::write(top.path().join(&long).join("file"), "text").unwrap();
        std::os::unix::fs::symlink(format!("../{long}/{long}"), top.path().join("long")).unwrap();
        std::os::unix::fs::symlink("..//x", top.path().join("short")).unwrap();
        std::fs::write(top.path().join(OsStr::from_bytes(b"\xff")), "").unwrap();
        let mut archive = Builder::new(Vec::new());
        add_all(&mut archive, File::open(top.path()).unwrap()).unwrap();
        let bytes = archive.into_inner().unwrap();
        let mut seen = Vec::new();
        for entry in tar::Archive::new(&bytes[..]).entries().unwrap() {
            let entry = entry.unwrap();
            let target = entry.link_name_bytes().map(std::borrow::Cow::into_owned);
            seen.push((entry.path_bytes().into_owned(), target));
        }
        seen.sort();
        let text = |text: &str| text.as_bytes().to_vec();
        let expected = vec![
            (text(&format!("{long}/")), None),
            (text(&format!("{long}/file")), None),
            (text("long"), Some(text(&format!("../{long}/{long}")))),
            (text("short"), Some(text("..//x"))),
            (vec![0xff], None),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_file_that_shrinks_does_not_shift_what_follows() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let mut bytes = Vec::new();
        Exactly { file, left: 5 }.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"abc\0\0");
    }
}
