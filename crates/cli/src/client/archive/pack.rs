//! A directory of this machine as an archive.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

/// Writes everything below a directory, with names relative to it. Links stay links. Returns how many things are neither files,
/// directories nor links, and were left out.
pub(crate) fn pack(directory: &Path, into: &mut impl Write) -> io::Result<u64> {
    let mut archive = Builder::new(into);
    let mut skipped = 0;
    // The innermost first: whoever unpacks needs a directory before what is in it.
    let mut waiting = sorted(directory)?;
    while let Some(path) = waiting.pop() {
        let name = path.strip_prefix(directory).map_err(io::Error::other)?;
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let metadata = std::fs::symlink_metadata(&path).map_err(failed)?;
        let mut header = Header::new_gnu();
        header.set_metadata(&metadata);
        if metadata.is_symlink() {
            header.set_size(0);
            header.set_entry_type(EntryType::Symlink);
            let target = std::fs::read_link(&path).map_err(failed)?;
            archive.append_link(&mut header, name, target)?;
        } else if metadata.is_dir() {
            header.set_size(0);
            archive.append_data(&mut header, name, io::empty())?;
            waiting.extend(sorted(&path)?);
        } else if metadata.is_file() {
            let file = File::open(&path).map_err(failed)?;
            archive.append_data(&mut header, name, Exactly { file, left: metadata.len() }).map_err(failed)?;
        } else {
            skipped += 1;
        }
    }
    archive.finish()?;
    Ok(skipped)
}

/// What is in a directory, the last name first.
fn sorted(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
    let entries = std::fs::read_dir(directory).map_err(failed)?;
    let mut paths =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    paths.sort_unstable_by(|one, other| other.cmp(one));
    Ok(paths)
}

/// As many bytes of a file as its head in the archive announced, though it may grow meanwhile. One that shrinks is an error.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = (&mut self.file).take(self.left).read(into)?;
        if count == 0 && self.left > 0 && !into.is_empty() {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_tree_is_packed_with_links_as_links_and_parents_first() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::create_dir_all(path("a/deep")).unwrap();
        std::fs::write(path("a/deep/file"), "words").unwrap();
        std::fs::set_permissions(path("a/deep/file"), PermissionsExt::from_mode(0o750)).unwrap();
        symlink("/nowhere", path("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let mut bytes = Vec::new();
        assert_eq!(pack(place.path(), &mut bytes).unwrap(), 1);
        let mut archive = tar::Archive::new(bytes.as_slice());
        let told: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let target = entry.link_name().unwrap().map(|target| target.display().to_string());
                let mode = entry.header().mode().unwrap() & 0o777;
                (entry.path().unwrap().display().to_string(), target, mode, entry.size())
            })
            .collect();
        let names: Vec<_> = told.iter().map(|(name, ..)| name.trim_end_matches('/')).collect();
        assert_eq!(names, ["a", "a/deep", "a/deep/file", "link"]);
        assert_eq!((told[2].2, told[2].3), (0o750, 5));
        assert_eq!(told[3].1.as_deref(), Some("/nowhere"));
    }

    #[test]
    fn a_file_that_grows_is_cut_and_one_that_shrinks_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("f"), "words").unwrap();
        let open = || File::open(place.path().join("f")).unwrap();
        let mut text = String::new();
        Exactly { file: open(), left: 3 }.read_to_string(&mut text).unwrap();
        assert_eq!(text, "wor");
        assert!(Exactly { file: open(), left: 6 }.read_to_string(&mut text).is_err());
    }
}
