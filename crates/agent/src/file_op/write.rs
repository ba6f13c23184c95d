//! Takes the bytes of a file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use box_wire::file_op::{Attributes, Entry, EntryKind, WriteHow};
use box_wire::{FileError, FileErrorCode, GuestPath};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::attributes;
use super::draft::Draft;
use super::file_error;
use super::files::{CHUNK_BYTES, check_regular, entry};
use super::place::{FileTree, OpenedPath, Spot, reopen};

/// A file to be written.
pub(super) struct Writing<'a> {
    pub(super) place: &'a FileTree,
    pub(super) path: &'a GuestPath,
    /// Permission bits, when not the usual ones.
    pub(super) mode: Option<u32>,
    /// Most bytes that the whole file may have.
    pub(super) bytes_max: u64,
    /// Attributes that it gets, when it is written in place.
    pub(super) attributes: Option<&'a Attributes>,
}

impl Writing<'_> {
    pub(super) fn run(&self, how: WriteHow, input: &mut impl Read) -> Result<Entry, FileError> {
        let file = match how {
            WriteHow::Replace => self.replace(input)?,
            WriteHow::Create => self.create(input)?,
            WriteHow::From(offset) => self.go_on(offset, input)?,
        };
        entry(&file, self.path.as_str())
    }

    fn create(&self, input: &mut impl Read) -> Result<File, FileError> {
        if self.place.find_itself(self.path).is_ok() {
            return Err(self.failed(Errno::EXIST));
        }
        let spot = self.place.parent_made(self.path)?;
        let draft = self.fill(Draft::new(&spot.directory).map_err(|error| self.failed(error))?, self.mode, input)?;
        draft.create(&spot.name).map_err(|(error, _)| self.failed(error))
    }

    fn replace(&self, input: &mut impl Read) -> Result<File, FileError> {
        let Some((old, mode)) = self.old()? else {
            let spot = self.new_spot()?;
            let draft = Draft::new(&spot.directory).map_err(|error| self.failed(error))?;
            let draft = self.fill(draft, self.mode, input)?;
            return draft.replace(&spot.name).map_err(|(error, _)| self.failed(error));
        };
        let spot = self.place.parent_of(self.path, &old)?;
        let draft = match Draft::new(&spot.directory) {
            Ok(draft) => draft,
            // The file may be writable where its directory is not.
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => return self.overwrite(&old, self.bytes_max, input),
            Err(error) => return Err(self.failed(error)),
        };
        let draft = self.fill(draft, Some(self.mode.unwrap_or(mode)), input)?;
        match draft.replace(&spot.name) {
            // The target is a mount point, or belongs to another user in a directory with the sticky bit.
            Err((Errno::BUSY | Errno::ACCESS | Errno::PERM | Errno::XDEV, mut draft)) => {
                draft.file.seek(SeekFrom::Start(0)).map_err(|error| self.failed(error))?;
                self.overwrite(&old, u64::MAX, &mut draft.file)
            }
            placed => placed.map_err(|(error, _)| self.failed(error)),
        }
    }

    /// The existing file, and its permission bits. It must be a regular file.
    fn old(&self) -> Result<Option<(OpenedPath, u32)>, FileError> {
        let found = match self.place.look_up(self.path) {
            Ok(found) => found,
            Err(error) if error.code == FileErrorCode::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let told = entry(&found.object, self.path.as_str())?;
        check_regular(&told)?;
        Ok(Some((found, told.mode)))
    }

    /// The place for a new file. A dangling link is refused: its target lies in another directory.
    fn new_spot(&self) -> Result<Spot, FileError> {
        match self.place.find_itself(self.path) {
            Ok(itself) if entry(&itself, self.path.as_str())?.kind == EntryKind::Symlink => {
                let message = format!("{} is a link to something that is not there", self.path);
                Err(FileError::new(FileErrorCode::SymlinkRefused, message))
            }
            _ => self.place.parent_made(self.path),
        }
    }

    fn fill<'a>(&self, mut draft: Draft<'a>, mode: Option<u32>, input: &mut impl Read) -> Result<Draft<'a>, FileError> {
        self.copy(input, &mut draft.file, self.bytes_max)?;
        if let Some(mode) = mode {
            draft.set_mode(mode).map_err(|error| self.failed(error))?;
        }
        Ok(draft)
    }

    /// Writes in place what cannot be replaced. What is there is lost at once.
    fn overwrite(&self, old: &OpenedPath, bytes_max: u64, input: &mut impl Read) -> Result<File, FileError> {
        let mut file = reopen(&old.object, self.path, OFlags::WRONLY | OFlags::TRUNC)?;
        match self.copy(input, &mut file, bytes_max) {
            Ok(_) => Ok(file),
            Err(error) => {
                let emptied = file.set_len(0).is_ok();
                let note = if emptied { "; it could only be written in place and is empty now" } else { "" };
                Err(FileError::new(error.code, format!("{}{note}", error.message)))
            }
        }
    }

    /// Writes from an offset on. What was behind it goes first, so that the file is never longer than what came.
    fn go_on(&self, offset: u64, input: &mut impl Read) -> Result<File, FileError> {
        let Some(left) = self.bytes_max.checked_sub(offset) else { return Err(self.too_large()) };
        let (mut file, new) = match self.old()? {
            Some((old, _)) => (reopen(&old.object, self.path, OFlags::WRONLY)?, None),
            None if offset == 0 => self.begin().map(|(file, spot)| (file, Some(spot)))?,
            None => return Err(self.failed(Errno::NOENT)),
        };
        let size = file.metadata().map_err(|error| self.failed(error))?.len();
        if size < offset {
            let message = format!("{} has {size} bytes, so none can be written from {offset} on", self.path);
            return Err(FileError::new(FileErrorCode::TooLarge, message));
        }
        // Before anything is lost: where there can be no attributes, a file stays as it is.
        if let Err(error) = self.mark(&file) {
            if new.is_some() {
                undo(&file, offset, new.as_ref());
            }
            return Err(self.failed(error));
        }
        file.set_len(offset).and_then(|()| file.seek(SeekFrom::Start(offset))).map_err(|error| self.failed(error))?;
        if let Err(error) = self.copy(input, &mut file, left) {
            undo(&file, offset, new.as_ref());
            return Err(error);
        }
        Ok(file)
    }

    /// Gives a file its attributes, and to whom it is to belong.
    fn mark(&self, file: &File) -> rustix::io::Result<()> {
        if let Some(wanted) = self.attributes {
            attributes::replace(file, wanted)?;
        }
        self.place.give(file)
    }

    fn begin(&self) -> Result<(File, Spot), FileError> {
        let spot = self.new_spot()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(self.mode.unwrap_or(0o666) & 0o777);
        let file = rustix::fs::openat(&spot.directory, &spot.name, flags, mode).map_err(|error| self.failed(error))?;
        Ok((file.into(), spot))
    }

    fn copy(&self, input: &mut impl Read, file: &mut File, bytes_max: u64) -> Result<u64, FileError> {
        match copy_at_most(input, file, bytes_max) {
            Ok(Some(count)) => Ok(count),
            Ok(None) => Err(self.too_large()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn too_large(&self) -> FileError {
        let message = format!("{} would have more than {} bytes", self.path, self.bytes_max);
        FileError::new(FileErrorCode::TooLarge, message)
    }

    fn failed(&self, error: impl Into<io::Error>) -> FileError {
        file_error(self.path.as_str(), error)
    }
}

/// Removes what was written before the failure.
fn undo(file: &File, offset: u64, new: Option<&Spot>) {
    // The caller already gets the first error; a second one would not help.
    let _ = match new {
        Some(spot) => rustix::fs::unlinkat(&spot.directory, &spot.name, AtFlags::empty()),
        None => rustix::fs::ftruncate(file, offset),
    };
}

/// Copies to the end; nothing is returned when there is more than may be.
pub(super) fn copy_at_most(input: &mut impl Read, output: &mut impl Write, bytes_max: u64) -> io::Result<Option<u64>> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut count = 0_u64;
    loop {
        let read = match input.read(&mut chunk) {
            Ok(0) => return Ok(Some(count)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        count += read as u64;
        if count > bytes_max {
            return Ok(None);
        }
        output.write_all(&chunk[..read])?;
    }
}

#[cfg(test)]
mod tests;
