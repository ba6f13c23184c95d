//! Takes the bytes of a file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use box_wire::errand::{Entry, EntryKind, WriteHow};
use box_wire::{GuestPath, Trouble, TroubleCode};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::draft::Draft;
use super::files::{CHUNK_BYTES, check_regular, entry};
use super::place::{Found, Place, Spot, reopen};
use super::trouble;

/// A file to be written.
pub(super) struct Writing<'a> {
    pub(super) place: &'a Place,
    pub(super) path: &'a GuestPath,
    /// Permission bits, when not the usual ones.
    pub(super) mode: Option<u32>,
    /// Most bytes that the whole file may have.
    pub(super) bytes_max: u64,
}

impl Writing<'_> {
    pub(super) fn run(&self, how: WriteHow, input: &mut impl Read) -> Result<Entry, Trouble> {
        let file = match how {
            WriteHow::Replace => self.replace(input)?,
            WriteHow::Create => self.create(input)?,
            WriteHow::From(offset) => self.go_on(offset, input)?,
        };
        entry(&file, self.path.as_str())
    }

    fn create(&self, input: &mut impl Read) -> Result<File, Trouble> {
        if self.place.find_itself(self.path).is_ok() {
            return Err(self.failed(Errno::EXIST));
        }
        let spot = self.place.parent_made(self.path)?;
        let draft = self.fill(Draft::new(&spot.directory).map_err(|error| self.failed(error))?, self.mode, input)?;
        draft.create(&spot.name).map_err(|(error, _)| self.failed(error))
    }

    fn replace(&self, input: &mut impl Read) -> Result<File, Trouble> {
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
            // It is mounted there, or belongs to somebody else in a shared directory.
            Err((Errno::BUSY | Errno::ACCESS | Errno::PERM | Errno::XDEV, mut draft)) => {
                draft.file.seek(SeekFrom::Start(0)).map_err(|error| self.failed(error))?;
                self.overwrite(&old, u64::MAX, &mut draft.file)
            }
            placed => placed.map_err(|(error, _)| self.failed(error)),
        }
    }

    /// What is there, and its permission bits. It must be a regular file.
    fn old(&self) -> Result<Option<(Found, u32)>, Trouble> {
        let found = match self.place.look_up(self.path) {
            Ok(found) => found,
            Err(trouble) if trouble.code == TroubleCode::NotFound => return Ok(None),
            Err(trouble) => return Err(trouble),
        };
        let told = entry(&found.object, self.path.as_str())?;
        check_regular(&told)?;
        Ok(Some((found, told.mode)))
    }

    /// Where a new file goes. A link to nothing has no place for it: what it names is not of its directory.
    fn new_spot(&self) -> Result<Spot, Trouble> {
        match self.place.find_itself(self.path) {
            Ok(itself) if entry(&itself, self.path.as_str())?.kind == EntryKind::Symlink => {
                let message = format!("{} is a link to something that is not there", self.path);
                Err(Trouble::new(TroubleCode::SymlinkRefused, message))
            }
            _ => self.place.parent_made(self.path),
        }
    }

    fn fill<'a>(&self, mut draft: Draft<'a>, mode: Option<u32>, input: &mut impl Read) -> Result<Draft<'a>, Trouble> {
        self.copy(input, &mut draft.file, self.bytes_max)?;
        if let Some(mode) = mode {
            draft.set_mode(mode).map_err(|error| self.failed(error))?;
        }
        Ok(draft)
    }

    /// Writes in place what cannot be replaced. What is there is lost at once.
    fn overwrite(&self, old: &Found, bytes_max: u64, input: &mut impl Read) -> Result<File, Trouble> {
        let mut file = reopen(&old.object, self.path, OFlags::WRONLY | OFlags::TRUNC)?;
        match self.copy(input, &mut file, bytes_max) {
            Ok(_) => Ok(file),
            Err(trouble) => {
                let emptied = file.set_len(0).is_ok();
                let note = if emptied { "; it could only be written in place and is empty now" } else { "" };
                Err(Trouble::new(trouble.code, format!("{}{note}", trouble.message)))
            }
        }
    }

    /// Writes from an offset on. What was behind it goes first, so that the file is never longer than what came.
    fn go_on(&self, offset: u64, input: &mut impl Read) -> Result<File, Trouble> {
        let Some(left) = self.bytes_max.checked_sub(offset) else { return Err(self.too_large()) };
        let (mut file, new) = match self.old()? {
            Some((old, _)) => (reopen(&old.object, self.path, OFlags::WRONLY)?, None),
            None if offset == 0 => self.begin().map(|(file, spot)| (file, Some(spot)))?,
            None => return Err(self.failed(Errno::NOENT)),
        };
        let size = file.metadata().map_err(|error| self.failed(error))?.len();
        if size < offset {
            let message = format!("{} has {size} bytes, so none can be written from {offset} on", self.path);
            return Err(Trouble::new(TroubleCode::TooLarge, message));
        }
        file.set_len(offset).and_then(|()| file.seek(SeekFrom::Start(offset))).map_err(|error| self.failed(error))?;
        if let Err(trouble) = self.copy(input, &mut file, left) {
            undo(&file, offset, new.as_ref());
            return Err(trouble);
        }
        Ok(file)
    }

    fn begin(&self) -> Result<(File, Spot), Trouble> {
        let spot = self.new_spot()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(self.mode.unwrap_or(0o666) & 0o777);
        let file = rustix::fs::openat(&spot.directory, &spot.name, flags, mode).map_err(|error| self.failed(error))?;
        Ok((file.into(), spot))
    }

    fn copy(&self, input: &mut impl Read, file: &mut File, bytes_max: u64) -> Result<u64, Trouble> {
        match copy_at_most(input, file, bytes_max) {
            Ok(Some(count)) => Ok(count),
            Ok(None) => Err(self.too_large()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn too_large(&self) -> Trouble {
        let message = format!("{} would have more than {} bytes", self.path, self.bytes_max);
        Trouble::new(TroubleCode::TooLarge, message)
    }

    fn failed(&self, error: impl Into<io::Error>) -> Trouble {
        trouble(self.path.as_str(), error)
    }
}

/// Takes away what was written before something went wrong.
fn undo(file: &File, offset: u64, new: Option<&Spot>) {
    // What went wrong is told; that this did too would help nobody.
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
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::place::ground::Ground;
    use super::*;

    fn write(ground: &Ground, name: &str, how: WriteHow, bytes: &str) -> Result<Entry, Trouble> {
        let path = ground.path(name);
        Writing { place: &ground.place, path: &path, mode: None, bytes_max: 10 }.run(how, &mut bytes.as_bytes())
    }

    fn names(ground: &Ground) -> usize {
        fs::read_dir(&ground.tree).unwrap().count()
    }

    #[test]
    fn a_file_is_replaced_with_its_permissions() {
        let ground = Ground::new();
        let file = ground.tree.join("file");
        let entry = write(&ground, "file", WriteHow::Replace, "old").unwrap();
        assert_eq!((entry.size, entry.path.as_str()), (3, file.to_str().unwrap()));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o751)).unwrap();
        let entry = write(&ground, "file", WriteHow::Replace, "newer").unwrap();
        assert_eq!((entry.size, entry.mode), (5, 0o751));
        assert_eq!(fs::read_to_string(&file).unwrap(), "newer");
        assert_eq!(names(&ground), 1, "nothing else is left");
    }

    #[test]
    fn directories_above_are_made_and_links_followed_inside() {
        let ground = Ground::new();
        write(&ground, "a/b/file", WriteHow::Create, "x").unwrap();
        symlink("a/b/file", ground.tree.join("link")).unwrap();
        write(&ground, "link", WriteHow::Replace, "through").unwrap();
        assert_eq!(fs::read_to_string(ground.tree.join("a/b/file")).unwrap(), "through");
        assert!(ground.tree.join("link").is_symlink(), "the link stays one");
    }

    #[test]
    fn what_may_not_be_written_stays_as_it_is() {
        let ground = Ground::new();
        fs::write(ground.outside("secret"), "secret").unwrap();
        fs::create_dir(ground.tree.join("directory")).unwrap();
        symlink("../secret", ground.tree.join("out")).unwrap();
        symlink("../new", ground.tree.join("dangling")).unwrap();
        symlink("/dev/zero", ground.tree.join("zero")).unwrap();
        for how in [WriteHow::Replace, WriteHow::From(0)] {
            for (name, code) in [
                ("out", TroubleCode::PathEscapes),
                ("zero", TroubleCode::PathEscapes),
                ("dangling", TroubleCode::SymlinkRefused),
                ("directory", TroubleCode::IsDirectory),
                ("", TroubleCode::IsDirectory),
            ] {
                let trouble = write(&ground, name, how, "x").unwrap_err();
                assert_eq!(trouble.code, code, "{name} {how:?}: {trouble}");
            }
        }
        for name in ["out", "dangling", "zero", "directory", ""] {
            assert_eq!(write(&ground, name, WriteHow::Create, "x").unwrap_err().code, TroubleCode::Exists, "{name}");
        }
        assert_eq!(fs::read_to_string(ground.outside("secret")).unwrap(), "secret");
        assert!(!ground.outside("new").exists());
    }

    #[test]
    fn too_much_leaves_what_was_there() {
        let ground = Ground::new();
        let long = "12345678901";
        for how in [WriteHow::Replace, WriteHow::Create, WriteHow::From(0)] {
            assert_eq!(write(&ground, "new", how, long).unwrap_err().code, TroubleCode::TooLarge, "{how:?}");
            assert_eq!(names(&ground), 0, "{how:?}");
        }
        write(&ground, "old", WriteHow::Create, "old").unwrap();
        assert_eq!(write(&ground, "old", WriteHow::Replace, long).unwrap_err().code, TroubleCode::TooLarge);
        assert_eq!(write(&ground, "old", WriteHow::From(3), long).unwrap_err().code, TroubleCode::TooLarge);
        assert_eq!(fs::read_to_string(ground.tree.join("old")).unwrap(), "old");
    }

    #[test]
    fn a_broken_upload_goes_on_where_it_stopped() {
        let ground = Ground::new();
        write(&ground, "file", WriteHow::From(0), "abc").unwrap();
        write(&ground, "file", WriteHow::From(3), "def").unwrap();
        assert_eq!(write(&ground, "file", WriteHow::From(2), "X").unwrap().size, 3);
        assert_eq!(fs::read_to_string(ground.tree.join("file")).unwrap(), "abX");
        assert_eq!(write(&ground, "file", WriteHow::From(4), "x").unwrap_err().code, TroubleCode::TooLarge);
        assert_eq!(write(&ground, "none", WriteHow::From(4), "x").unwrap_err().code, TroubleCode::NotFound);
    }
}
