//! Creates the entries of an archive: in a directory that was opened, under a name that is free.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::{Errno, Result};
use rustix::thread::{Gid, Uid};
use tar::Entry;

use super::{Done, EntryPath, Records, Refusal, Restoration, bad, open_beneath, refused};
use crate::snapshot::{Extents, OPAQUE};

/// How much is moved at once.
const CHUNK_BYTES: usize = 128 << 10;

impl Restoration<'_> {
    pub(super) fn make_directory(
        &self,
        above: &OwnedFd,
        name: &OsStr,
        entry: &Entry<'_, impl Read>,
        records: &Records,
    ) -> Result<()> {
        rustix::fs::mkdirat(above, name, Mode::RWXU)?;
        let directory = open_beneath(above, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
        self.finish(&directory, entry, records)
    }

    pub(super) fn make_file(
        &self,
        above: &OwnedFd,
        way: &EntryPath<'_>,
        entry: &mut Entry<'_, impl Read>,
        records: &Records,
    ) -> Done<()> {
        let failed = |errno| refused(&way.whole(), errno);
        let extents = records.extents.clone().unwrap_or_else(|| Extents::whole(entry.size()));
        if extents.bytes() != Some(entry.size()) {
            return bad(format!("the parts of {} are not those of a file", way.whole().display()));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(above, way.name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        let file = File::from(file);
        for &(offset, length) in &extents.parts {
            copy(&mut entry.by_ref().take(length), &file, offset, length, failed)?;
        }
        // Also a hole at the end is part of the file. One that is longer than any file can be is refused here.
        if extents.parts.last().is_none_or(|(offset, length)| offset + length < extents.size) {
            rustix::fs::ftruncate(&file, extents.size).map_err(failed)?;
        }
        self.finish(&file, entry, records).map_err(failed)?;
        rustix::fs::futimens(&file, &times(entry)).map_err(failed)
    }

    pub(super) fn make_symlink(&self, above: &OwnedFd, way: &EntryPath<'_>, entry: &Entry<'_, impl Read>) -> Done<()> {
        let Some(target) = entry.link_name_bytes().filter(|target| !target.is_empty() && !target.contains(&0)) else {
            return bad(format!("{} points to nothing", way.whole().display()));
        };
        let made = || {
            rustix::fs::symlinkat(&*target, above, way.name)?;
            self.own(entry, |uid, gid| rustix::fs::chownat(above, way.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
            rustix::fs::utimensat(above, way.name, &times(entry), AtFlags::SYMLINK_NOFOLLOW)
        };
        made().map_err(|errno| refused(&way.whole(), errno))
    }

    /// Gives a file that was made before a second name.
    pub(super) fn make_link(&self, above: &OwnedFd, way: &EntryPath<'_>, entry: &Entry<'_, impl Read>) -> Done<()> {
        let target = entry.link_name_bytes().unwrap_or_default().into_owned();
        let first = EntryPath::parse(&target)?;
        let is_file = |directory: &OwnedFd| {
            rustix::fs::statat(directory, first.name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
        };
        let named = first.above.join(OsStr::new("/"));
        match open_beneath(self.storage, &named, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(directory) if first.mount() == way.mount() && is_file(&directory) => {
                rustix::fs::linkat(&directory, first.name, above, way.name, AtFlags::empty())
                    .map_err(|errno| refused(&way.whole(), errno))
            }
            _ => bad(format!("{} is a name of no file in it", way.whole().display())),
        }
    }

    pub(super) fn make_node(
        &self,
        above: &OwnedFd,
        name: &OsStr,
        kind: FileType,
        entry: &Entry<'_, impl Read>,
    ) -> Result<()> {
        rustix::fs::mknodat(above, name, kind, mode(entry), 0)?;
        self.own(entry, |uid, gid| rustix::fs::chownat(above, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
        // Once more without the mask of this process.
        rustix::fs::chmodat(above, name, mode(entry), AtFlags::empty())?;
        rustix::fs::utimensat(above, name, &times(entry), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Attributes, owner and mode, in this order: a change of the owner takes bits of the mode away.
    fn finish(&self, made: &impl AsFd, entry: &Entry<'_, impl Read>, records: &Records) -> Result<()> {
        for (name, value) in &records.attributes {
            match rustix::fs::fsetxattr(made, name.as_slice(), value, XattrFlags::empty()) {
                // Old kernels keep no user attributes in a tmpfs. Only the opaque mark is required: without it removed
                // files would reappear.
                Err(Errno::OPNOTSUPP) if name != OPAQUE => {}
                set => set?,
            }
        }
        self.own(entry, |uid, gid| rustix::fs::fchown(made, uid, gid))?;
        rustix::fs::fchmod(made, mode(entry))
    }

    /// Sets the recorded owner, if this box maps that id.
    fn own(&self, entry: &Entry<'_, impl Read>, give: impl Fn(Option<Uid>, Option<Gid>) -> Result<()>) -> Result<()> {
        let number = |told: std::io::Result<u64>| told.ok().and_then(|id| u32::try_from(id).ok()).unwrap_or(u32::MAX);
        let (uid, gid) = (number(entry.header().uid()), number(entry.header().gid()));
        let give = |uid: u32, gid: u32| match (uid, gid) {
            (u32::MAX, _) | (_, u32::MAX) => Err(Errno::INVAL),
            _ => give(Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))),
        };
        match give(uid, gid) {
            Err(Errno::INVAL | Errno::PERM) => match give(self.fallback.uid, self.fallback.gid) {
                Err(Errno::INVAL | Errno::PERM) => Ok(()),
                given => given,
            },
            given => given,
        }
    }
}

/// Puts bytes of an archive where they belong in a file.
fn copy(
    input: &mut impl Read,
    file: &File,
    mut offset: u64,
    length: u64,
    failed: impl Fn(Errno) -> Refusal,
) -> Done<()> {
    let end = offset + length;
    let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(length).unwrap_or(CHUNK_BYTES))];
    while offset < end {
        let count = match input.read(&mut chunk) {
            Ok(0) => return bad("it ends in the middle of a file"),
            Ok(count) => count,
            Err(error) => return bad(error.to_string()),
        };
        file.write_all_at(&chunk[..count], offset)
            .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        offset += count as u64;
    }
    Ok(())
}

/// Whether a device is a whiteout: what an overlay keeps for a removed entry.
pub(super) fn is_whiteout(entry: &Entry<'_, impl Read>) -> bool {
    let header = entry.header();
    matches!((header.device_major(), header.device_minor()), (Ok(Some(0)), Ok(Some(0))))
}

fn mode(entry: &Entry<'_, impl Read>) -> Mode {
    Mode::from_raw_mode(entry.header().mode().unwrap_or(0) & 0o7777)
}

pub(super) fn times(entry: &Entry<'_, impl Read>) -> Timestamps {
    let seconds = i64::try_from(entry.header().mtime().unwrap_or(0)).unwrap_or(0);
    let modified = Timespec { tv_sec: seconds, tv_nsec: 0 };
    Timestamps { last_access: modified, last_modification: modified }
}
