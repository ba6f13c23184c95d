//! A tar file made into a tree, written entry by entry through a root that follows no links.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use box_core::{Error, SafeRoot};
use rustix::fs::{FileType, Gid, Mode, Timespec, Timestamps, Uid};
use sha2::{Digest, Sha256};

use super::archive::{self, BYTES_MAX, ENTRIES_MAX, Kind, Meta, Reason};

/// Largest id that exists in a box. Owners above it are nobody there, so they become root.
const OWNER_MAX: u64 = 65534;
/// Permission of directories that the archive does not mention.
const PARENT_MODE: u32 = 0o755;
/// What the owner of a tree needs on a directory to fill it and to remove it again.
const OWNER_ALL: u32 = 0o700;
/// Beginnings of files that are compressed, and what undoes it.
const COMPRESSIONS: [(&[u8], &str); 4] =
    [(&[0x1f, 0x8b], "gunzip"), (&[0x28, 0xb5, 0x2f, 0xfd], "unzstd"), (b"\xfd7zXZ", "unxz"), (b"BZh", "bunzip2")];

/// Why nothing came of it.
#[derive(Debug)]
pub(super) enum Failure {
    /// The archive is damaged, hostile or of another kind.
    Archive(Reason),
    /// The host could not store it.
    Host(Error),
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Self::Archive(reason)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Host(error)
    }
}

/// Unpacks into an empty tree; returns the hash of the archive's bytes, taken while they were read.
pub(super) fn unpack(file: &File, tree: &SafeRoot) -> Result<String, Failure> {
    refuse_compression(file)?;
    tree.set_directory_mode("", PARENT_MODE)?;
    let mut archive =
        tar::Archive::new(Hashing { inner: io::BufReader::with_capacity(1 << 18, file), hash: Sha256::new() });
    let mut unpacker = Unpacker { tree, keeps_owners: rustix::process::geteuid().is_root(), bytes: 0 };
    let mut entries = archive.entries().map_err(|error| error.to_string())?.raw(true);
    let mut count = 0;
    while let Some((meta, mut contents)) = archive::next(&mut entries)? {
        count += 1;
        if count > ENTRIES_MAX {
            return Err(format!("it has more than {ENTRIES_MAX} entries").into());
        }
        unpacker.entry(&meta, &mut contents)?;
    }
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(|error| Error::io("reading an image", error))?;
    Ok(hexadecimal(&rest.hash.finalize()))
}

struct Unpacker<'a> {
    tree: &'a SafeRoot,
    keeps_owners: bool,
    bytes: u64,
}

impl Unpacker<'_> {
    fn entry(&mut self, meta: &Meta, contents: &mut impl Read) -> Result<(), Failure> {
        let path = meta.path.as_path();
        if meta.kind == Kind::Directory {
            return self.directory(meta);
        }
        if meta.kind == Kind::Skipped {
            return Ok(());
        }
        if path.as_os_str().is_empty() {
            return Err("its top is not a directory".to_owned().into());
        }
        self.make_parents(path)?;
        // A later entry replaces an earlier one, as when tar itself unpacks. A directory stays and is an error.
        self.tree.remove_file(path).map_err(|error| refused(path, &error))?;
        match &meta.kind {
            Kind::File => self.file(meta, contents),
            Kind::Symlink(target) => {
                self.tree.symlink(target, path).map_err(|error| refused(path, &error))?;
                self.own(meta)
            }
            Kind::HardLink(original) => self.hard_link(original, path),
            Kind::Directory | Kind::Skipped => Ok(()),
        }
    }

    fn directory(&self, meta: &Meta) -> Result<(), Failure> {
        let path = meta.path.as_path();
        // Without root's privilege, a directory that its owner cannot enter could be neither filled nor removed.
        let mode = if self.keeps_owners { meta.mode } else { meta.mode | OWNER_ALL };
        if !path.as_os_str().is_empty() {
            self.make_parents(path)?;
            let found = self.tree.look(path).map_err(|error| refused(path, &error))?;
            let kind = found.map(|stat| FileType::from_raw_mode(stat.st_mode));
            if kind.is_some_and(|kind| kind != FileType::Directory) {
                self.tree.remove_file(path)?;
            }
            if kind != Some(FileType::Directory) {
                self.tree.make_directory(path, mode)?;
            }
            self.own(meta)?;
        }
        Ok(self.tree.set_directory_mode(path, mode)?)
    }

    fn file(&mut self, meta: &Meta, contents: &mut impl Read) -> Result<(), Failure> {
        self.bytes = self.bytes.saturating_add(meta.size_bytes);
        if self.bytes > BYTES_MAX {
            return Err(format!("its files are larger than {BYTES_MAX} bytes together").into());
        }
        let path = meta.path.as_path();
        let mut file = self.tree.create_new_file(path, 0o600).map_err(|error| refused(path, &error))?;
        let told = |error: io::Error| Error::io(format!("unpacking {}", path.display()), error);
        let copied = io::copy(&mut contents.take(meta.size_bytes), &mut file).map_err(told)?;
        if copied != meta.size_bytes {
            return Err(format!("it ends in the middle of {}", path.display()).into());
        }
        if let Some((uid, gid)) = self.owner(meta) {
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            rustix::fs::fchown(&file, uid, gid).map_err(|errno| told(errno.into()))?;
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(meta.mode)).map_err(|errno| told(errno.into()))?;
        // Python and others compare the times of what they compiled with those of the sources.
        let time = Timespec { tv_sec: meta.modified_s, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&file, &times).map_err(|errno| told(errno.into()))?;
        Ok(())
    }

    /// A second name for an earlier entry. The tree holds nothing but earlier entries and no link is followed in it, so
    /// there is nothing else that it could name.
    fn hard_link(&self, original: &Path, path: &Path) -> Result<(), Failure> {
        let found = self.tree.look(original).map_err(|error| refused(original, &error))?;
        let kind = found.map(|stat| FileType::from_raw_mode(stat.st_mode));
        if !matches!(kind, Some(FileType::RegularFile | FileType::Symlink)) {
            return Err(
                format!("{} is a link to {}, which is no earlier file", path.display(), original.display()).into()
            );
        }
        Ok(self.tree.hard_link(original, path)?)
    }

    /// Makes the directories above a path that the archive did not mention, open to all whatever our own mask is.
    fn make_parents(&self, path: &Path) -> Result<(), Failure> {
        let parent = path.parent().unwrap_or(Path::new(""));
        if parent.as_os_str().is_empty() || self.is_directory(parent)? {
            return Ok(());
        }
        let above: Vec<&Path> = parent.ancestors().filter(|above| !above.as_os_str().is_empty()).collect();
        for directory in above.into_iter().rev() {
            if !self.is_directory(directory)? {
                self.tree.make_directory(directory, PARENT_MODE).map_err(|error| refused(path, &error))?;
                self.tree.set_directory_mode(directory, PARENT_MODE)?;
            }
        }
        Ok(())
    }

    /// Whether a directory is there. Something else in its place, a link above all, is an error.
    fn is_directory(&self, path: &Path) -> Result<bool, Failure> {
        match self.tree.look(path) {
            Ok(Some(stat)) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(true),
            Ok(Some(_)) => Err(format!("it puts files below {}, which is a link or a file", path.display()).into()),
            Ok(None) => Ok(false),
            Err(error) => Err(refused(path, &error)),
        }
    }

    fn own(&self, meta: &Meta) -> Result<(), Failure> {
        if let Some((uid, gid)) = self.owner(meta) {
            self.tree.set_owner(&meta.path, uid, gid)?;
        }
        Ok(())
    }

    /// Who a file shall belong to, where that can be chosen and is not root anyway.
    fn owner(&self, meta: &Meta) -> Option<(u32, u32)> {
        let id = |told: u64| u32::try_from(told).ok().filter(|_| told <= OWNER_MAX).unwrap_or(0);
        Some((id(meta.uid), id(meta.gid))).filter(|&owner| self.keeps_owners && owner != (0, 0))
    }
}

/// An entry that the tree did not take: because of what the archive made of the tree before, or because the disk is full.
fn refused(path: &Path, error: &Error) -> Failure {
    match error {
        Error::Io { source, .. } if source.raw_os_error().is_some_and(is_hosts_fault) => {
            Failure::Host(Error::Setup { step: "image".to_owned(), reason: error.to_string() })
        }
        _ => Failure::Archive(format!("{} cannot be unpacked: {error}", path.display())),
    }
}

fn is_hosts_fault(code: i32) -> bool {
    [libc::ENOSPC, libc::EDQUOT, libc::EIO, libc::EROFS, libc::EMFILE, libc::ENFILE, libc::EACCES].contains(&code)
}

fn refuse_compression(file: &File) -> Result<(), Failure> {
    let mut start = [0; 8];
    let length = rustix::io::pread(file, &mut start, 0).map_err(|errno| Error::io("reading an image", errno))?;
    match COMPRESSIONS.iter().find(|(magic, _)| start[..length].starts_with(magic)) {
        Some((_, tool)) => Err(format!("it is compressed; {tool} it first").into()),
        None => Ok(()),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A reader that takes the hash of what passes.
struct Hashing<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hash.update(&buffer[..length]);
        Ok(length)
    }
}
