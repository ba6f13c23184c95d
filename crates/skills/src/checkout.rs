//! Directories of the host as archives: what holds for archives then holds for them too, down to the last limit.

use std::io::{Cursor, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use box_core::SafeRoot;
use rustix::fs::FileType;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::error::{Error, Result, shown};
use crate::limits::{
    DIRECTORY_ENTRIES_MAX, PATH_DEPTH_MAX, SCAN_DEPTH_MAX, ZIP_BYTES_MAX, ZIP_ENTRIES_MAX, ZIP_ENTRY_BYTES_MAX,
};
use crate::package::{Package, each_entry};
use crate::skill::{Skill, told};
use crate::staging::{FILE_MODE, PROGRAM_MODE};

/// What versions are kept in; no part of a package.
const VERSIONS: &str = ".git";

/// Makes an archive of a directory below one of the roots, without what git keeps in it. The same files give the same bytes. No link
/// is followed, neither on the way to the directory nor in it.
pub fn archive_of(directory: &Path, roots: &[PathBuf]) -> Result<Vec<u8>> {
    pack(open(directory, roots)?)
}

/// A host directory that may hold a skill, outside any store. The caller decided that it may be read.
#[derive(Debug)]
pub struct HostDirectory {
    root: SafeRoot,
    /// Its path at the time of that decision.
    path: PathBuf,
}

impl HostDirectory {
    /// Wraps an open directory.
    pub fn new(directory: OwnedFd, path: PathBuf) -> Self {
        Self { root: SafeRoot::from_directory(directory), path }
    }

    /// The one skill at or below it.
    pub fn scan(&self) -> Result<Skill> {
        let package = self.package()?;
        // Normalized, because joining an empty path leaves a trailing slash.
        let place: PathBuf = self.path.join(&package.path).components().collect();
        package.load(&self.root, &place)
    }

    pub(crate) fn package(&self) -> Result<Package> {
        let found = Package::below(&self.root, Path::new(""), SCAN_DEPTH_MAX)?;
        Package::only(found, &told(&self.path), &self.path)
    }

    /// An archive of one of its packages.
    pub(crate) fn archive(&self, package: &Package) -> Result<Vec<u8>> {
        pack(self.root.below(&package.path)?)
    }
}

fn pack(root: SafeRoot) -> Result<Vec<u8>> {
    let mut packer = Packer { root, zip: ZipWriter::new(Cursor::default()), entries: 0, bytes: 0 };
    packer.directory(Path::new(""), 0)?;
    let archive = packer.zip.finish().map_err(|error| unpacked(&error))?;
    Ok(archive.into_inner())
}

fn open(directory: &Path, roots: &[PathBuf]) -> Result<SafeRoot> {
    let outside = || Error::OutsideCheckouts { path: shown(&told(directory)) };
    let is_plain = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    let found = roots.iter().find_map(|root| Some((root, directory.strip_prefix(root).ok()?)));
    let (root, below) = found.filter(|(_, below)| is_plain(below)).ok_or_else(outside)?;
    SafeRoot::open_path(root)?.below(below).map_err(|error| match error {
        error if Error::is_absence(&error) => Error::DirectoryNotFound { path: shown(&told(directory)) },
        error if Error::is_link(&error) => outside(),
        error => error.into(),
    })
}

/// An archive that is being made.
struct Packer {
    root: SafeRoot,
    zip: ZipWriter<Cursor<Vec<u8>>>,
    entries: usize,
    bytes: u64,
}

impl Packer {
    fn directory(&mut self, path: &Path, depth: usize) -> Result<()> {
        let mut names = Vec::new();
        let mut unreadable = None;
        each_entry(&self.root.below(path)?, DIRECTORY_ENTRIES_MAX, |name, _| match name.to_str() {
            Ok(VERSIONS) => {}
            Ok(name) => names.push(name.to_owned()),
            Err(_) => unreadable = Some(name.to_string_lossy().into_owned()),
        })?;
        if let Some(name) = unreadable {
            return Err(Error::ArchivePath { path: shown(&name) });
        }
        if depth > PATH_DEPTH_MAX {
            return Err(Error::ArchivePath { path: shown(&told(path)) });
        }
        names.sort_unstable();
        names.iter().try_for_each(|name| self.entry(&path.join(name), depth))
    }

    fn entry(&mut self, path: &Path, depth: usize) -> Result<()> {
        let refused = |what| Error::DirectoryEntry { what, path: shown(&told(path)) };
        let Some(stat) = self.root.look(path)? else { return Ok(()) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                self.count(0)?;
                self.directory(path, depth + 1)
            }
            FileType::RegularFile => {
                let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
                if size > ZIP_ENTRY_BYTES_MAX {
                    return Err(Error::ArchiveEntrySize { path: shown(&told(path)) });
                }
                self.count(size)?;
                let mode = if stat.st_mode & 0o111 == 0 { FILE_MODE } else { PROGRAM_MODE };
                self.file(path, mode)
            }
            FileType::Symlink => Err(refused("a symbolic link")),
            _ => Err(refused("something that is neither file nor directory")),
        }
    }

    fn file(&mut self, path: &Path, mode: u32) -> Result<()> {
        let content = self.root.read_to_end(path, ZIP_ENTRY_BYTES_MAX)?;
        // Stored, because it is read again at once.
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(zip::DateTime::default())
            .unix_permissions(mode);
        self.zip.start_file(told(path), options).map_err(|error| unpacked(&error))?;
        self.zip.write_all(&content).map_err(|error| unpacked(&error))
    }

    fn count(&mut self, bytes: u64) -> Result<()> {
        self.entries += 1;
        self.bytes += bytes;
        if self.entries > ZIP_ENTRIES_MAX {
            return Err(Error::ArchiveEntries);
        }
        if self.bytes > ZIP_BYTES_MAX as u64 {
            let what = "The directory".to_owned();
            return Err(Error::TooMuch { what, limit: ZIP_BYTES_MAX as u64, unit: " bytes" });
        }
        Ok(())
    }
}

fn unpacked(error: &dyn std::fmt::Display) -> Error {
    box_core::Error::io("making an archive of a directory", std::io::Error::other(error.to_string())).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Selection, SkillStore, ZipRequest};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn checkout() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let checkout = root.join("checkouts/one");
        std::fs::create_dir_all(checkout.join(".git/hooks")).unwrap();
        std::fs::create_dir_all(checkout.join("sub")).unwrap();
        std::fs::write(checkout.join(".git/hooks/post-checkout"), "#!/bin/sh").unwrap();
        std::fs::write(checkout.join("sub/.git"), "gitdir: elsewhere").unwrap();
        std::fs::write(checkout.join("SKILL.md"), "---\nname: cloned\n---\nhello").unwrap();
        std::fs::write(checkout.join("sub/run.sh"), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(checkout.join("sub/run.sh"), PermissionsExt::from_mode(0o700)).unwrap();
        (place, root)
    }

    #[test]
    fn a_checkout_is_installed_without_what_git_keeps() {
        let (_place, root) = checkout();
        let archive = archive_of(&root.join("checkouts/one"), &[root.join("checkouts")]).unwrap();
        assert_eq!(archive_of(&root.join("checkouts/one"), &[root.join("checkouts")]).unwrap(), archive, "same bytes");
        let store = SkillStore::open(&root.join("store")).unwrap();
        let request = ZipRequest { filename: "one".into(), target_suffix: String::new(), ..ZipRequest::default() };
        let skills = store.install_zip(&archive, &request, &Selection::default()).unwrap();
        assert_eq!(skills[0].name, "cloned");
        let package = Path::new(&skills[0].package_root);
        assert!(!package.join(".git").exists() && !package.join("sub/.git").exists());
        assert_eq!(std::fs::metadata(package.join("sub/run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn only_directories_below_an_allowed_root_are_read() {
        let (_place, root) = checkout();
        let roots = [root.join("checkouts")];
        symlink("/etc", root.join("checkouts/link")).unwrap();
        for path in ["/etc", "checkouts/one", "..", ""] {
            assert_eq!(archive_of(Path::new(path), &roots).unwrap_err().code(), "path_outside", "{path}");
        }
        for path in ["checkouts/../checkouts/one", "checkouts/link", "checkouts/link/ssl", "store"] {
            assert_eq!(archive_of(&root.join(path), &roots).unwrap_err().code(), "path_outside", "{path}");
        }
        assert_eq!(archive_of(&root.join("checkouts/none"), &roots).unwrap_err().code(), "file_not_found");
        assert_eq!(archive_of(&root.join("checkouts/one"), &[]).unwrap_err().code(), "path_outside");
    }

    #[test]
    fn what_an_archive_could_not_hold_is_refused() {
        let (_place, root) = checkout();
        let one = root.join("checkouts/one");
        symlink("/etc/passwd", one.join("link")).unwrap();
        let refused = |what: &str| {
            let error = archive_of(&one, &[root.join("checkouts")]).unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        };
        refused("a symbolic link");
        std::fs::remove_file(one.join("link")).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(one.join("socket")).unwrap();
        refused("neither file nor directory");
        std::fs::remove_file(one.join("socket")).unwrap();
        std::fs::File::create(one.join("large")).unwrap().set_len(ZIP_ENTRY_BYTES_MAX + 1).unwrap();
        refused("bytes: large");
        std::fs::File::create(one.join("large")).unwrap().set_len(ZIP_ENTRY_BYTES_MAX).unwrap();
        std::fs::File::create(one.join("large2")).unwrap().set_len(ZIP_ENTRY_BYTES_MAX).unwrap();
        refused("The directory exceeds");
        std::fs::remove_file(one.join("large2")).unwrap();
        std::fs::remove_file(one.join("large")).unwrap();
        (0..=ZIP_ENTRIES_MAX).for_each(|number| std::fs::write(one.join(number.to_string()), "").unwrap());
        refused("entries");
    }
}
