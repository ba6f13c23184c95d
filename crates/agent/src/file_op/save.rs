//! Archives everything that a box changed, so that another box can be created from it.
//!
//! The box keeps running: files that disappear are left out, and a file that changes is saved in the state of some
//! moment. Sockets, devices, mounts and files that the caller may not read are left out too.

use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use box_wire::limits::PATH_BYTES_MAX;
use box_wire::{Answer, FileError};
use rustix::fs::{AtFlags, FileType, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use super::archive::{add_link, as_path, header, with_slash};
use super::files::CHUNK_BYTES;
use super::tree::{Mounts, Resume, Step, Walk, open_below};
use super::{AnswerTiming, Output, file_error};
use crate::snapshot::{ATTRIBUTE, END, EXTENTS, Extents, PLACES, ROOT, Storage, UPPER, attribute_text, is_kept};

/// Data extents recorded per file; a file with more gets its small holes filled.
const PARTS_MAX: usize = 4096;
/// Smaller holes are not worth an entry.
const HOLE_BYTES_MIN: u64 = 64 << 10;
/// Room for all names of a file's attributes, as much as the system gives.
const NAMES_BYTES: usize = 64 << 10;
/// Room for the value of an attribute, as much as the system gives.
const VALUE_BYTES: usize = 64 << 10;

pub(super) fn save(storage: &Storage, output: &mut Output) -> Result<AnswerTiming, FileError> {
    let top = open_below(&storage.view, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mounts::Refuse);
    let top = top.map_err(|error| file_error("the box's storage", error))?;
    let sent = || -> io::Result<()> {
        output.reply(&Ok(Answer::Done))?;
        write_archive(top, &storage.overlays, BufWriter::with_capacity(CHUNK_BYTES, output))?.flush()
    };
    Ok(AnswerTiming::Before(sent()))
}

/// The archive of a storage whose places of these names are overlays.
pub(crate) fn write_archive<W: Write>(top: OwnedFd, overlays: &[String], output: W) -> io::Result<W> {
    let mut saving = Saving { archive: Builder::new(output), overlays, linked: HashMap::new() };
    saving.add_all(top)?;
    let mut end = Header::new_ustar();
    end.set_entry_type(EntryType::XGlobalHeader);
    end.set_size(END.len() as u64);
    saving.archive.append_data(&mut end, "end", END)?;
    saving.archive.into_inner()
}

struct Saving<'a, W: Write> {
    archive: Builder<W>,
    overlays: &'a [String],
    /// Files of several names that are in the archive, by inode.
    linked: HashMap<u64, Vec<u8>>,
}

impl<W: Write> Saving<'_, W> {
    fn add_all(&mut self, top: OwnedFd) -> io::Result<()> {
        let mut walk = Walk::new(top, Mounts::Refuse, Resume::There)?;
        while let Some(step) = walk.next()? {
            let Step::Item(item) = step else { continue };
            let path = walk.path_to(&item.name);
            if !self.is_own(&path) {
                continue;
            }
            if path.len() > PATH_BYTES_MAX {
                return Err(io::Error::other("the box has a tree that is deeper than a path can say"));
            }
            match self.add(&mut walk, &item.name, &path) {
                Err(error) if !is_passed_over(&error) => {
                    return Err(io::Error::other(format!("{}: {error}", String::from_utf8_lossy(&path))));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether something in the storage is the box's own: of an overlay, only what lies above the layers of others.
    fn is_own(&self, path: &[u8]) -> bool {
        let parts: Vec<&[u8]> = path.splitn(4, |&byte| byte == b'/').collect();
        match parts[..] {
            [top] => [ROOT.as_bytes(), PLACES.as_bytes()].contains(&top),
            [top, place, part] if top == PLACES.as_bytes() => {
                part == UPPER.as_bytes() || !self.overlays.iter().any(|overlay| overlay.as_bytes() == place)
            }
            _ => true,
        }
    }

    fn add(&mut self, walk: &mut Walk, name: &CStr, path: &[u8]) -> io::Result<()> {
        let stat = rustix::fs::statat(walk.directory(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.add_directory(walk, name, path, &stat),
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                self.add_file(open_below(walk.directory(), name, flags, Mounts::Refuse)?.into(), path)
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(walk.directory(), name, Vec::new())?;
                add_link(&mut self.archive, header(&stat, EntryType::Symlink, 0), as_path(path), target.to_bytes())
            }
            FileType::Fifo => self.add_node(&stat, EntryType::Fifo, path),
            // An overlay marks a removed entry of a lower layer with this device.
            FileType::CharacterDevice if stat.st_rdev == 0 => self.add_node(&stat, EntryType::Char, path),
            _ => Ok(()),
        }
    }

    fn add_directory(&mut self, walk: &mut Walk, name: &CStr, path: &[u8], stat: &Stat) -> io::Result<()> {
        match walk.enter(name) {
            Ok(()) => self.add_records(&walk.directory(), None)?,
            // It exists, but its details cannot be read.
            Err(Errno::ACCESS | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        self.archive.append_data(&mut header(stat, EntryType::Directory, 0), with_slash(path), io::empty())
    }

    fn add_file(&mut self, file: File, path: &[u8]) -> io::Result<()> {
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        if let Some(first) = self.linked.get(&stat.st_ino) {
            return add_link(&mut self.archive, header(&stat, EntryType::Link, 0), as_path(path), first);
        }
        if stat.st_nlink > 1 {
            self.linked.insert(stat.st_ino, path.to_owned());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let has_holes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) < size;
        let extents = if has_holes { Some(extents_of(&file, size)?) } else { None };
        self.add_records(&file, extents.as_ref())?;
        let extents = extents.unwrap_or_else(|| Extents::whole(size));
        let bytes = extents.bytes().unwrap_or(size);
        let parts = Parts { file, left: extents.parts.into() };
        self.archive.append_data(&mut header(&stat, EntryType::Regular, bytes), as_path(path), parts)
    }

    fn add_node(&mut self, stat: &Stat, kind: EntryType, path: &[u8]) -> io::Result<()> {
        let mut header = header(stat, kind, 0);
        header.set_device_major(0)?;
        header.set_device_minor(0)?;
        self.archive.append_data(&mut header, as_path(path), io::empty())
    }

    /// PAX records of the next entry.
    fn add_records(&mut self, file: &impl AsFd, extents: Option<&Extents>) -> io::Result<()> {
        let attributes = attributes_of(file).into_iter().map(|text| (ATTRIBUTE, text));
        let extents = extents.map(|extents| (EXTENTS, extents.text()));
        let records: Vec<_> = attributes.chain(extents).collect();
        self.archive.append_pax_extensions(records.iter().map(|(key, text)| (*key, text.as_bytes())))
    }
}

/// Whether an unreadable entry is left out: it is gone, was replaced, or belongs to another user.
fn is_passed_over(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::INVAL];
    let not_ours = [Errno::ACCESS, Errno::PERM, Errno::XDEV];
    Errno::from_io_error(error).is_some_and(|errno| gone.contains(&errno) || not_ours.contains(&errno))
}

/// The attributes of a file that go along. A file system that knows none has none.
fn attributes_of(file: &impl AsFd) -> Vec<String> {
    let mut names = vec![0_u8; NAMES_BYTES];
    let length = rustix::fs::flistxattr(file, &mut names[..]).unwrap_or(0);
    let kept = names[..length].split(|&byte| byte == 0).filter(|name| is_kept(name));
    let mut value = vec![0_u8; VALUE_BYTES];
    let mut told = |name: &[u8]| {
        let length = rustix::fs::fgetxattr(file, name, &mut value[..]).ok()?;
        Some(attribute_text(name, &value[..length]))
    };
    kept.filter_map(&mut told).collect()
}

/// Which parts of a file are there. Most files that have holes have few.
fn extents_of(file: &File, size: u64) -> io::Result<Extents> {
    let mut hole_bytes_min = HOLE_BYTES_MIN;
    loop {
        let parts = parts_of(file, size, hole_bytes_min)?;
        if parts.len() <= PARTS_MAX {
            return Ok(Extents { size, parts });
        }
        hole_bytes_min = hole_bytes_min.saturating_mul(4);
    }
}

fn parts_of(file: &File, size: u64, hole_bytes_min: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let mut offset = 0;
    while offset < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(start) if start < size => start,
            // Nothing but a hole is left.
            Ok(_) | Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size).max(start + 1);
        match parts.last_mut() {
            Some((first, length)) if start - (*first + *length) < hole_bytes_min => *length = end - *first,
            _ => parts.push((start, end - start)),
        }
        offset = end;
    }
    Ok(parts)
}

/// As many bytes of each part of a file as were announced, however it changes meanwhile.
struct Parts {
    file: File,
    left: VecDeque<(u64, u64)>,
}

impl Read for Parts {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.left.front().is_some_and(|(_, length)| *length == 0) {
            self.left.pop_front();
        }
        let Some((offset, length)) = self.left.front_mut() else { return Ok(0) };
        let room = bytes.len().min(usize::try_from(*length).unwrap_or(usize::MAX));
        let count = match self.file.read_at(&mut bytes[..room], *offset)? {
            0 => {
                bytes[..room].fill(0);
                room
            }
            count => count,
        };
        (*offset, *length) = (*offset + count as u64, *length - count as u64);
        Ok(count)
    }
}
