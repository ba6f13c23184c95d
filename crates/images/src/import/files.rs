//! Files of an archive or a directory, by name.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use box_core::{Error, Progress, SafeRoot};
use rustix::fs::{FileType, Mode, OFlags};
use tokio_util::sync::CancellationToken;

use crate::ImagesConfig;
use crate::archive::{self, Kind};
use crate::failure::Failure;
use crate::layer::Layer;
use crate::limits::ARCHIVE_ENTRIES_MAX;
use crate::measured::{Measure, Measured};
use crate::store::{Store, Work};

/// Name of an archive that had to be unpacked first.
const PARTIAL: &str = "archive";
/// Links within an archive that are followed.
const LINKS_MAX: usize = 3;

/// Files of an archive or a directory, by name.
pub(super) enum Files {
    /// A directory, in which no link is followed.
    Directory(SafeRoot),
    /// A tar file, of which it is known what is where.
    Archive { file: Arc<File>, entries: HashMap<PathBuf, Entry>, _work: Option<Work> },
}

/// Something in an archive.
pub(super) enum Entry {
    File { offset: u64, size_bytes: u64 },
    Link(PathBuf),
}

/// The contents of one file, from its beginning.
pub(super) struct Contents {
    file: Arc<File>,
    offset: u64,
    size_bytes: u64,
    done: u64,
}

impl Files {
    /// Opens a path of the operator's.
    pub(super) fn open(
        store: &Arc<Store>,
        path: &Path,
        config: &ImagesConfig,
        cancel: &CancellationToken,
        progress: &Progress,
    ) -> Result<Self, Failure> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| errno.to_string())?;
        let found = rustix::fs::fstat(&opened).map_err(|errno| errno.to_string())?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => Ok(Self::Directory(SafeRoot::from_directory(opened))),
            FileType::RegularFile => Self::open_archive(store, File::from(opened), config, cancel, progress),
            _ => Err("it is neither a file nor a directory".into()),
        }
    }

    fn open_archive(
        store: &Arc<Store>,
        file: File,
        config: &ImagesConfig,
        cancel: &CancellationToken,
        progress: &Progress,
    ) -> Result<Self, Failure> {
        let mut start = [0; 4];
        let length = file.read_at(&mut start, 0).map_err(|error| format!("it cannot be read: {error}"))?;
        if !start[..length].starts_with(&[0x1f, 0x8b]) && start != [0x28, 0xb5, 0x2f, 0xfd] {
            let entries = index(&file)?;
            return Ok(Self::Archive { file: Arc::new(file), entries, _work: None });
        }
        // What is inside is needed in another order than it is stored in.
        let work = store.work()?;
        let mut plain = store.root.create_new_file(work.join(PARTIAL), 0o600)?;
        let total_bytes = file.metadata().map_err(|error| Error::io("looking at an archive", error))?.len();
        let file = Measured::new(file, Measure { progress, part: "decompressing", done_bytes: 0, total_bytes });
        let mut contents = Layer::open(file, config.limits.decoded_bytes_max(), cancel.clone())
            .map_err(|error| format!("it cannot be read: {error}"))?;
        let mut buffer = vec![0; 1 << 17];
        loop {
            let length = contents.read(&mut buffer).map_err(|error| format!("it cannot be read: {error}"))?;
            if length == 0 {
                break;
            }
            plain.write_all(&buffer[..length]).map_err(|error| Error::io("unpacking an archive", error))?;
        }
        let entries = index(&plain)?;
        Ok(Self::Archive { file: Arc::new(plain), entries, _work: Some(work) })
    }

    /// A file; nothing when there is none of that name.
    pub(super) fn find(&self, path: &str) -> Result<Option<Contents>, Failure> {
        match self {
            Self::Directory(root) => {
                let is_file = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
                match root.look(path) {
                    Ok(Some(found)) if is_file(found.st_mode) => {}
                    _ => return Ok(None),
                }
                let file = root.open(path)?;
                let size = file.metadata().map_err(|error| Error::io("looking at a file of an image", error))?.len();
                Ok(Some(Contents { file: Arc::new(file), offset: 0, size_bytes: size, done: 0 }))
            }
            Self::Archive { file, entries, .. } => {
                let mut place = normal(Path::new(path));
                for _ in 0..LINKS_MAX {
                    match entries.get(&place) {
                        Some(Entry::File { offset, size_bytes }) => {
                            let (file, offset, size_bytes) = (Arc::clone(file), *offset, *size_bytes);
                            return Ok(Some(Contents { file, offset, size_bytes, done: 0 }));
                        }
                        Some(Entry::Link(target)) => place.clone_from(target),
                        None => return Ok(None),
                    }
                }
                Ok(None)
            }
        }
    }

    /// A file that is read whole; nothing when there is none of that name.
    pub(super) fn read(&self, path: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, Failure> {
        let Some(mut contents) = self.find(path)? else { return Ok(None) };
        if contents.size_bytes > bytes_max {
            return Err(format!("{} in it is larger than {bytes_max} bytes", path.escape_debug()).into());
        }
        let mut bytes = Vec::new();
        contents.read_to_end(&mut bytes).map_err(|error| format!("it cannot be read: {error}"))?;
        Ok(Some(bytes))
    }

    /// The archive itself; nothing for a directory.
    pub(super) fn whole(&self) -> Result<Option<Contents>, Failure> {
        let Self::Archive { file, .. } = self else { return Ok(None) };
        let size_bytes = file.metadata().map_err(|error| Error::io("looking at an archive", error))?.len();
        Ok(Some(Contents { file: Arc::clone(file), offset: 0, size_bytes, done: 0 }))
    }
}

impl Contents {
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl Read for Contents {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.size_bytes - self.done).unwrap_or(usize::MAX).min(buffer.len());
        let length = self.file.read_at(&mut buffer[..left], self.offset + self.done)?;
        self.done += length as u64;
        Ok(length)
    }
}

/// The entries of a tar file, by path. A root file system has far more of them than an archive of images; then the
/// result is empty.
fn index(mut file: &File) -> Result<HashMap<PathBuf, Entry>, Failure> {
    file.rewind().map_err(|error| format!("it cannot be read: {error}"))?;
    let mut archive = tar::Archive::new(file);
    let mut entries = archive.entries_with_seek().map_err(|error| error.to_string())?.raw(true);
    let mut found = HashMap::new();
    while let Some((meta, contents)) = archive::next(&mut entries)? {
        if found.len() >= ARCHIVE_ENTRIES_MAX {
            return Ok(HashMap::new());
        }
        match meta.kind {
            Kind::File => {
                let (offset, size_bytes) = (contents.raw_file_position(), meta.size_bytes);
                found.insert(meta.path, Entry::File { offset, size_bytes });
            }
            Kind::Symlink(target) => {
                let target = meta.path.parent().unwrap_or(Path::new("")).join(target);
                found.insert(meta.path, Entry::Link(normal(&target)));
            }
            Kind::HardLink(target) => drop(found.insert(meta.path, Entry::Link(target))),
            Kind::Directory | Kind::Skipped => {}
        }
    }
    Ok(found)
}

/// A path of an archive without `.` and `..`. It only ever names another entry.
fn normal(path: &Path) -> PathBuf {
    use std::path::Component;
    path.components().fold(PathBuf::new(), |mut so_far, part| {
        match part {
            Component::Normal(name) => so_far.push(name),
            Component::ParentDir => drop(so_far.pop()),
            _ => {}
        }
        so_far
    })
}
