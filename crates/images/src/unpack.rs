//! Archives made into a tree, entry by entry and layer upon layer, through a root that follows no links.
//!
//! What happens to a path that exists depends on who made it. A path of a lower layer is replaced, as an overlay would
//! hide it; a path of the same archive is an error, except that of two files the later one wins.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use box_core::{Error, SafeRoot};
use rustix::fs::{FileType, Gid, Mode, Timespec, Timestamps, Uid};

use crate::archive::{self, Kind, Meta};
use crate::failure::Failure;
use crate::whiteout::{Mark, OwnPaths};

/// Largest id that exists in a box. Files of higher ids become root's.
const OWNER_MAX: u64 = 65534;
/// Permission of directories that the archive does not mention.
const PARENT_MODE: u32 = 0o755;
/// Rights that the owner of a tree needs to fill and remove a directory.
const OWNER_ALL: u32 = 0o700;

/// The meaning of names like `.wh.name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marks {
    /// Ordinary names, as in the archive of a whole root file system.
    Names,
    /// Whiteouts, as in a layer: the name removes another.
    Obeyed,
}

/// A tree that is being filled.
#[derive(Debug)]
pub(crate) struct Unpacker<'a> {
    tree: &'a SafeRoot,
    keeps_owners: bool,
    marks: Marks,
    /// Entries that all archives together may still have.
    entries_left: u64,
    bytes_left: u64,
    /// Paths of the current layer; none for the first, which made everything.
    own: Option<OwnPaths>,
    is_begun: bool,
}

impl<'a> Unpacker<'a> {
    /// Begins with an empty tree.
    pub(crate) fn new(tree: &'a SafeRoot, marks: Marks, entries_max: u64, bytes_max: u64) -> Result<Self, Failure> {
        tree.set_directory_mode("", PARENT_MODE)?;
        let keeps_owners = rustix::process::geteuid().is_root();
        Ok(Self {
            tree,
            keeps_owners,
            marks,
            entries_left: entries_max,
            bytes_left: bytes_max,
            own: None,
            is_begun: false,
        })
    }

    /// Unpacks one archive on top of those before. Reads to the end of the archive, not to that of `contents`.
    pub(crate) fn unpack(&mut self, contents: &mut impl Read) -> Result<(), Failure> {
        self.own = self.is_begun.then(OwnPaths::default);
        self.is_begun = true;
        let mut archive = tar::Archive::new(contents);
        let mut entries = archive.entries().map_err(|error| error.to_string())?.raw(true);
        while let Some((meta, mut contents)) = archive::next(&mut entries)? {
            self.entries_left = self.entries_left.checked_sub(1).ok_or("it has too many entries")?;
            match if self.marks == Marks::Obeyed { Mark::of(&meta.path)? } else { Mark::None } {
                Mark::None => self.entry(&meta, &mut contents)?,
                Mark::Removed(path) => self.remove_lower(&path)?,
                Mark::Opaque(directory) => self.clear_lower(directory)?,
                Mark::Ignored => {}
            }
        }
        Ok(())
    }

    fn entry(&mut self, meta: &Meta, contents: &mut impl Read) -> Result<(), Failure> {
        let path = meta.path.as_path();
        if meta.kind == Kind::Directory {
            self.directory(meta)?;
            self.claim(path);
            return Ok(());
        }
        if meta.kind == Kind::Skipped {
            return Ok(());
        }
        if path.as_os_str().is_empty() {
            return Err("its top is not a directory".into());
        }
        self.make_parents(path)?;
        self.make_way(path)?;
        match &meta.kind {
            Kind::File => self.file(meta, contents)?,
            Kind::Symlink(target) => {
                self.tree.symlink(target, path).map_err(|error| refused(path, &error))?;
                self.give(meta)?;
            }
            Kind::HardLink(original) => self.hard_link(original, path)?,
            Kind::Directory | Kind::Skipped => {}
        }
        self.claim(path);
        Ok(())
    }

    /// Remembers that the present layer made something.
    fn claim(&mut self, path: &Path) {
        if let Some(own) = &mut self.own {
            own.add(path);
        }
    }

    /// Whether a lower layer made what is there.
    fn is_lower(&self, path: &Path) -> bool {
        self.own.as_ref().is_some_and(|own| !own.has(path))
    }

    /// Takes away what an entry replaces. A later entry replaces an earlier one, as when tar itself unpacks; but a directory of
    /// the same layer stays and is an error.
    fn make_way(&self, path: &Path) -> Result<(), Failure> {
        let removed = if self.is_lower(path) { self.tree.remove_tree(path) } else { self.tree.remove_file(path) };
        removed.map_err(|error| refused(path, &error))
    }

    fn directory(&mut self, meta: &Meta) -> Result<(), Failure> {
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
            if kind == Some(FileType::Directory) {
                // Who owned it in a lower layer does not any more.
                self.give_to(path, self.owner(meta))?;
            } else {
                self.tree.make_directory(path, mode).map_err(|error| refused(path, &error))?;
                self.give(meta)?;
            }
        }
        Ok(self.tree.set_directory_mode(path, mode)?)
    }

    fn file(&mut self, meta: &Meta, contents: &mut impl Read) -> Result<(), Failure> {
        let left = self.bytes_left.checked_sub(meta.size_bytes);
        self.bytes_left = left.ok_or("its files are larger than allowed together")?;
        let path = meta.path.as_path();
        let mut file = self.tree.create_new_file(path, 0o600).map_err(|error| refused(path, &error))?;
        let told = |error: io::Error| Error::io(format!("unpacking {}", path.display()), error);
        copy(contents, &mut file, meta.size_bytes, path)?;
        if let Some((uid, gid)) = self.owner(meta).filter(|owner| *owner != (0, 0)) {
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
            return Err(format!(
                "{} is a hard link to {}, but no earlier file has that name",
                path.display(),
                original.display()
            )
            .into());
        }
        Ok(self.tree.hard_link(original, path)?)
    }

    /// Makes the directories above a path that the archive did not mention, readable by all whatever the umask is.
    fn make_parents(&mut self, path: &Path) -> Result<(), Failure> {
        let parent = path.parent().unwrap_or(Path::new(""));
        if parent.as_os_str().is_empty() || self.is_directory(parent)? {
            return Ok(());
        }
        let above: Vec<&Path> = parent.ancestors().filter(|above| !above.as_os_str().is_empty()).collect();
        for directory in above.into_iter().rev() {
            if !self.is_directory(directory)? {
                self.tree.make_directory(directory, PARENT_MODE).map_err(|error| refused(path, &error))?;
                self.tree.set_directory_mode(directory, PARENT_MODE)?;
                self.claim(directory);
            }
        }
        Ok(())
    }

    /// Whether a directory is there. Something else in its place, a link above all, gives way if it is of a lower layer and is
    /// an error if it is of this one.
    fn is_directory(&self, path: &Path) -> Result<bool, Failure> {
        match self.kind(path)? {
            Some(FileType::Directory) => Ok(true),
            None => Ok(false),
            Some(_) if self.is_lower(path) => {
                self.tree.remove_file(path)?;
                Ok(false)
            }
            Some(_) => Err(format!("it puts files below {}, which is a link or a file", path.display()).into()),
        }
    }

    /// The type of the entry at a path; none also if a link or a file is above it, which a lower layer may have left
    /// there.
    fn kind(&self, path: &Path) -> Result<Option<FileType>, Failure> {
        if path.as_os_str().is_empty() {
            return Ok(Some(FileType::Directory));
        }
        match self.tree.look(path) {
            Ok(found) => Ok(found.map(|stat| FileType::from_raw_mode(stat.st_mode))),
            Err(Error::Io { source, .. }) if self.own.is_some() && is_in_the_way(&source) => Ok(None),
            Err(error) => Err(refused(path, &error)),
        }
    }

    /// Takes away what lower layers have at a path.
    fn remove_lower(&mut self, path: &Path) -> Result<(), Failure> {
        if self.own.is_none() {
            return Ok(());
        }
        match self.kind(path)? {
            Some(_) if self.is_lower(path) => self.tree.remove_tree(path).map_err(|error| refused(path, &error)),
            Some(FileType::Directory) => self.clear_lower(path.to_owned()),
            None | Some(_) => Ok(()),
        }
    }

    /// Takes away what lower layers have in a directory. What the present layer put there stays.
    fn clear_lower(&mut self, directory: PathBuf) -> Result<(), Failure> {
        if self.own.is_none() || self.kind(&directory)? != Some(FileType::Directory) {
            return Ok(());
        }
        let mut places = vec![directory];
        while let Some(place) = places.pop() {
            for name in self.tree.list(&place)? {
                let path = place.join(name);
                if self.is_lower(&path) {
                    self.tree.remove_tree(&path).map_err(|error| refused(&path, &error))?;
                } else if self.kind(&path)? == Some(FileType::Directory) {
                    places.push(path);
                }
            }
        }
        Ok(())
    }

    /// Gives something new to its owner, which is root unless it is said.
    fn give(&self, meta: &Meta) -> Result<(), Failure> {
        self.give_to(&meta.path, self.owner(meta).filter(|owner| *owner != (0, 0)))
    }

    fn give_to(&self, path: &Path, owner: Option<(u32, u32)>) -> Result<(), Failure> {
        if let Some((uid, gid)) = owner {
            self.tree.set_owner(path, uid, gid)?;
        }
        Ok(())
    }

    /// The owner of a file, where it can be chosen.
    fn owner(&self, meta: &Meta) -> Option<(u32, u32)> {
        let id = |told: u64| u32::try_from(told).ok().filter(|_| told <= OWNER_MAX).unwrap_or(0);
        self.keeps_owners.then(|| (id(meta.uid), id(meta.gid)))
    }
}

/// Copies the content of an entry. Read errors are the archive's fault, write errors this machine's.
fn copy(contents: &mut impl Read, file: &mut std::fs::File, size_bytes: u64, path: &Path) -> Result<(), Failure> {
    let (mut buffer, mut left) = (vec![0; 1 << 17], size_bytes);
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let length = contents.read(&mut buffer[..most]).map_err(|error| error.to_string())?;
        if length == 0 {
            return Err(format!("it ends in the middle of {}", path.display()).into());
        }
        io::Write::write_all(file, &buffer[..length])
            .map_err(|error| Error::io(format!("unpacking {}", path.display()), error))?;
        left -= length as u64;
    }
    Ok(())
}

fn is_in_the_way(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| [libc::ELOOP, libc::ENOTDIR].contains(&code))
}

/// An entry that the tree did not take: because of what the archive made of the tree before, or because the disk is full.
fn refused(path: &Path, error: &Error) -> Failure {
    match error {
        Error::Io { source, .. } if source.raw_os_error().is_some_and(is_hosts_fault) => {
            Failure::Host(Error::Setup { step: "image".to_owned(), reason: error.to_string() })
        }
        _ => Failure::Image(format!("{} cannot be unpacked: {error}", path.display())),
    }
}

fn is_hosts_fault(code: i32) -> bool {
    [libc::ENOSPC, libc::EDQUOT, libc::EIO, libc::EROFS, libc::EMFILE, libc::ENFILE, libc::EACCES].contains(&code)
}
