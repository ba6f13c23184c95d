//! A download that is not all there yet: `NAME.part`, with the tag of the file it is a part of.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use box_core::SafeRoot;
use http::{HeaderMap, HeaderValue, header};
use rustix::fs::{FileType, Mode, OFlags, XattrFlags};

use crate::fault::Fault;
use crate::table::visible;

/// Where the tag is kept. A part without one is not gone on with: nobody knows of what it is a part.
const TAG_NAME: &str = "user.strongbox.etag";
/// Longest tag that is looked at.
const TAG_BYTES_MAX: usize = 256;
/// Permission bits of a file about which nothing is said.
const USUAL_MODE: u32 = 0o644;

/// Where a file is to be.
#[derive(Debug)]
pub(super) struct Partial {
    root: SafeRoot,
    name: OsString,
    part: OsString,
    /// What is there of it, if that is to be gone on with.
    pub(super) begun: Option<Begun>,
}

/// What is there of a file.
#[derive(Debug)]
pub(super) struct Begun {
    file: File,
    /// Of what it is a part.
    pub(super) tag: HeaderValue,
    /// How much is there.
    pub(super) bytes: u64,
}

impl Partial {
    /// Looks at where a file is to be. Only files and links may be replaced.
    pub(super) fn look(target: &Path, go_on: bool) -> Result<Self, Fault> {
        let refuse = |why: &str| Fault::new(format!("{}: {why}", target.display()));
        let name = target.file_name().ok_or_else(|| refuse("not the name of a file"))?.to_owned();
        let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let root = SafeRoot::open_path(directory)?;
        if let Some(found) = root.look(&name)? {
            match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile | FileType::Symlink => {}
                FileType::Directory => return Err(refuse("a directory is there")),
                _ => return Err(refuse("not a regular file").hint("use - to copy to standard output")),
            }
        }
        let mut part = name.clone();
        part.push(".part");
        let begun = if go_on { begun(&root, &part) } else { None };
        Ok(Self { root, name, part, begun })
    }

    /// The file to go on with, at its end.
    pub(super) fn resume(&mut self) -> Option<io::Result<File>> {
        let Begun { mut file, bytes, .. } = self.begun.take()?;
        Some(file.seek(SeekFrom::Start(bytes)).map(|_| file))
    }

    /// An empty file to begin with, which remembers of what it becomes a part.
    pub(super) fn begin(&self, headers: &HeaderMap) -> Result<File, Fault> {
        self.root.remove_file(&self.part)?;
        let file = self.root.create_new_file(&self.part, mode(headers))?;
        if let Some(tag) = headers.get(header::ETAG) {
            // Where it cannot be kept, the next try begins anew.
            let _ = rustix::fs::fsetxattr(&file, TAG_NAME, tag.as_bytes(), XattrFlags::empty());
        }
        Ok(file)
    }

    /// Gives what is there its name, because it is all there.
    pub(super) fn complete(&self) -> Result<(), Fault> {
        Ok(self.root.rename(&self.part, &self.name)?)
    }

    /// How to go on, if there is something to go on with.
    pub(super) fn hint(&self) -> Option<String> {
        let begun = begun(&self.root, &self.part).filter(|begun| begun.bytes > 0)?;
        let part = visible(&self.part.to_string_lossy());
        Some(format!("{} bytes are in {part}; the same command with --continue goes on from there", begun.bytes))
    }
}

fn begun(root: &SafeRoot, part: &OsStr) -> Option<Begun> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(root.directory(), part, flags, Mode::empty()).ok()?);
    let bytes = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    let mut tag = [0; TAG_BYTES_MAX];
    let length = rustix::fs::fgetxattr(&file, TAG_NAME, &mut tag).ok()?;
    let tag = HeaderValue::from_bytes(tag.get(..length)?).ok()?;
    Some(Begun { file, tag, bytes })
}

/// Permission bits without those that lend somebody's rights.
fn mode(headers: &HeaderMap) -> u32 {
    let told = headers.get("strongbox-mode").and_then(|mode| u32::from_str_radix(mode.to_str().ok()?, 8).ok());
    told.map_or(USUAL_MODE, |mode| mode & 0o777 | 0o600)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_file_gets_its_name_when_it_is_all_there() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("file");
        std::fs::write(&target, "old").unwrap();
        let partial = Partial::look(&target, false).unwrap();
        partial.begin(&headers(&[("strongbox-mode", "4755")])).unwrap().write_all(b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "old");
        partial.complete().unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "new");
        assert_eq!(target.metadata().unwrap().permissions().mode() & 0o7100, 0o100);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_are_replaced_and_devices_and_directories_are_not() {
        let place = tempfile::tempdir().unwrap();
        let (secret, link) = (place.path().join("secret"), place.path().join("link"));
        std::fs::write(&secret, "untouched").unwrap();
        symlink(&secret, &link).unwrap();
        symlink(&secret, place.path().join("link.part")).unwrap();
        let partial = Partial::look(&link, true).unwrap();
        assert!(partial.begun.is_none(), "a link is no part");
        partial.begin(&HeaderMap::new()).unwrap().write_all(b"new").unwrap();
        partial.complete().unwrap();
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "untouched");
        assert_eq!(std::fs::read_to_string(&link).unwrap(), "new");
        for bad in [Path::new("/dev/null"), place.path(), Path::new("/"), Path::new("..")] {
            assert!(Partial::look(bad, false).is_err(), "{}", bad.display());
        }
    }

    #[test]
    fn only_a_part_of_something_known_is_gone_on_with() {
        // Not every file system keeps tags; the source tree's usually does.
        let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let target = place.path().join("file");
        let partial = Partial::look(&target, true).unwrap();
        assert!(partial.begun.is_none());
        partial.begin(&headers(&[("etag", "\"1\"")])).unwrap().write_all(b"half").unwrap();
        let mut again = Partial::look(&target, true).unwrap();
        let begun = again.begun.as_ref().unwrap();
        assert_eq!((begun.bytes, begun.tag.as_bytes()), (4, b"\"1\"".as_slice()));
        assert!(again.hint().unwrap().contains("4 bytes"));
        again.resume().unwrap().unwrap().write_all(b" and half").unwrap();
        again.complete().unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "half and half");
        std::fs::write(place.path().join("file.part"), "whose?").unwrap();
        assert!(Partial::look(&target, true).unwrap().begun.is_none());
        assert!(Partial::look(&target, false).unwrap().begun.is_none());
    }
}
