//! Files of a skill: list, read, write.

use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::error::{Error, Result, shown};
use crate::limits::{DIRECTORY_ENTRIES_MAX, LISTED_ENTRIES_MAX};
use crate::package::{check_text_size, each_entry, kind, read_text, through_link};
use crate::package_path;
use crate::skill::{FileEntry, FileList, FileQuery, SkillReference};
use crate::staging::{DIRECTORY_MODE, FILE_MODE, PROGRAM_MODE};
use crate::store::SkillStore;

impl SkillStore {
    /// The files of one directory of a skill, by name.
    pub fn list_files(&self, name: &str, query: &FileQuery) -> Result<FileList> {
        if query.max_entries == 0 {
            return Err(Error::EntriesZero);
        }
        let entries_max = usize::try_from(query.max_entries.min(LISTED_ENTRIES_MAX)).unwrap_or_default();
        let (package, skill) = self.required(name)?;
        let path = package_path::parse(&query.path)?;
        let directory = self.root.below(package.path.join(&path)).map_err(|error| match error {
            error if Error::is_absence(&error) => Error::PackageDirectoryNotFound { path: shown(&query.path) },
            error if Error::is_link(&error) => through_link(&path),
            error => error.into(),
        })?;
        let mut names = Vec::new();
        each_entry(&directory, DIRECTORY_ENTRIES_MAX, |name, _| {
            let name = name.to_string_lossy();
            if query.include_hidden || !name.starts_with('.') {
                names.push(name.into_owned());
            }
        })?;
        names.sort_unstable();
        let truncated = names.len() > entries_max;
        names.truncate(entries_max);
        let entries = names.into_iter().map(|name| entry(&directory, &path, name)).collect();
        let skill = SkillReference { name: skill.name };
        Ok(FileList { skill, base_path: package_path::told(&path), entries, truncated })
    }

    /// The text of a file of a skill.
    pub fn read_file(&self, name: &str, path: &str) -> Result<String> {
        let (package, _) = self.required(name)?;
        let path = file_path(path)?;
        read_text(&self.root, &package.path.join(&path)).map(|(text, _)| text).map_err(|error| within(error, &path))
    }

    /// Writes a file of a skill, with the directories on the way to it, and says how many bytes that were. Readers see the
    /// old text or the new one.
    pub fn write_file(&self, name: &str, path: &str, content: &str) -> Result<u64> {
        let path = file_path(path)?;
        check_text_size(&path, content.len())?;
        let lock = self.lock()?;
        let (package, _) = self.required(name)?;
        let target = package.path.join(&path);
        self.make_parents(&package.path, &path)?;
        lock.stage()?.replace_file(&target, self.mode_to_write(&target, &path)?, content.as_bytes())?;
        Ok(content.len() as u64)
    }

    /// A path within a skill in the form in which replies have it.
    pub fn normal_path(path: &str) -> Result<String> {
        package_path::parse(path).map(|path| package_path::told(&path))
    }

    /// Makes the directories on the way to a file where they are missing.
    fn make_parents(&self, package: &Path, path: &Path) -> Result<()> {
        let mut parents: Vec<&Path> = path.ancestors().skip(1).filter(|it| !it.as_os_str().is_empty()).collect();
        parents.reverse();
        for parent in parents {
            let directory = package.join(parent);
            match self.root.make_directory(&directory, DIRECTORY_MODE) {
                // Once more, because the mode above is subject to the umask.
                Ok(()) => self.root.set_directory_mode(&directory, DIRECTORY_MODE)?,
                Err(error) if Error::is_taken(&error) => {}
                Err(error) if Error::is_link(&error) => return Err(through_link(path)),
                Err(error) => return Err(error.into()),
            }
            match kind(&self.root, &directory) {
                Some(FileType::Directory) => {}
                Some(FileType::Symlink) => return Err(through_link(path)),
                _ => {
                    let reason = "a file is where a directory would be";
                    return Err(Error::PathUnusable { path: shown(&package_path::told(path)), reason });
                }
            }
        }
        Ok(())
    }

    /// The mode for a file's new text: programs stay programs. What is there must be a file.
    fn mode_to_write(&self, target: &Path, path: &Path) -> Result<u32> {
        let Some(stat) = self.root.look(target)? else { return Ok(FILE_MODE) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if stat.st_mode & 0o111 != 0 => Ok(PROGRAM_MODE),
            FileType::RegularFile => Ok(FILE_MODE),
            FileType::Symlink => Err(through_link(path)),
            _ => Err(Error::FileNotFound {
                path: format!("{}: something else has that name", shown(&package_path::told(path))),
            }),
        }
    }
}

fn file_path(path: &str) -> Result<PathBuf> {
    let parsed = package_path::parse(path)?;
    if parsed.as_os_str().is_empty() {
        return Err(Error::FileNotFound { path: shown(path) });
    }
    Ok(parsed)
}

/// The same error with the path that the caller knows, instead of the store's.
fn within(error: Error, path: &Path) -> Error {
    let path_told = shown(&package_path::told(path));
    match error {
        Error::FileNotFound { .. } => Error::FileNotFound { path: path_told },
        Error::NotText { .. } => Error::NotText { path: path_told },
        Error::PathOutside { why, .. } => Error::PathOutside { path: path_told, why },
        Error::TooMuch { limit, unit, .. } => Error::TooMuch { what: format!("Skill file {path_told}"), limit, unit },
        error => error,
    }
}

fn entry(directory: &box_core::SafeRoot, base: &Path, name: String) -> FileEntry {
    let stat = directory.look(&name).ok().flatten();
    let is_dir = stat.as_ref().is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    let size = stat.filter(|_| !is_dir).and_then(|stat| u64::try_from(stat.st_size).ok());
    FileEntry { path: crate::skill::told(&base.join(&name)), name, is_dir, size }
}
