//! Packages on disk: where they are, and what they say.

use std::collections::VecDeque;
use std::io::Read;
use std::path::{Path, PathBuf};

use box_core::SafeRoot;
use jiff::Timestamp;
use rustix::fs::{Dir, FileType, Stat};

use crate::error::{Error, Result, shown};
use crate::front_matter::Document;
use crate::limits::{DIRECTORY_ENTRIES_MAX, SCAN_ENTRIES_MAX, STORE_DEPTH_MAX, TEXT_BYTES_MAX};
use crate::name;
use crate::skill::{ENTRY_FILES, PYTHON_DIRECTORY, PYTHON_FILES, Skill, told};

/// A directory with an entry file.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    /// The directory, from the root of the store.
    pub(crate) path: PathBuf,
    /// Which entry file it has.
    pub(crate) entry: &'static str,
}

impl Package {
    /// The package at a path, if there is one.
    pub(crate) fn at(root: &SafeRoot, path: &Path) -> Option<Self> {
        let is_file = |entry: &&&str| kind(root, &path.join(entry)) == Some(FileType::RegularFile);
        let entry = ENTRY_FILES.iter().find(is_file)?;
        Some(Self { path: path.to_owned(), entry })
    }

    /// All packages of a store. A directory that cannot be searched hides itself and no other.
    pub(crate) fn all(root: &SafeRoot) -> Result<Vec<Self>> {
        let mut names = directories(root, Path::new(""), DIRECTORY_ENTRIES_MAX)?.0;
        names.retain(|name| !name::RESERVED.contains(&name.as_str()));
        let found = names.iter().flat_map(|name| Self::below(root, Path::new(name), STORE_DEPTH_MAX - 1));
        Ok(found.flatten().collect())
    }

    /// The packages at and below a directory, breadth first. What is below a package belongs to it.
    pub(crate) fn below(root: &SafeRoot, start: &Path, depth_max: usize) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        let mut entries_left = SCAN_ENTRIES_MAX;
        let mut queue = VecDeque::from([(start.to_owned(), 0)]);
        while let Some((path, depth)) = queue.pop_front() {
            if let Some(package) = Self::at(root, &path) {
                found.push(package);
            } else if depth < depth_max {
                let (names, seen) = directories(root, &path, entries_left)?;
                entries_left -= seen;
                queue.extend(names.iter().map(|name| (path.join(name), depth + 1)));
            }
        }
        Ok(found)
    }

    /// The package, if one was found in a directory of this name. Package paths are relative to `root`.
    pub(crate) fn only(mut found: Vec<Self>, named: &str, root: &Path) -> Result<Self> {
        match (found.pop(), found.is_empty()) {
            (None, _) => Err(Error::NoSkill { place: shown(named) }),
            (Some(package), true) => Ok(package),
            (Some(last), false) => {
                found.push(last);
                let candidates = found.iter().map(|package| told(&root.join(&package.path))).collect();
                Err(Error::SeveralInDirectory { path: shown(named), candidates })
            }
        }
    }

    /// Path of the entry file.
    pub(crate) fn entry_path(&self) -> PathBuf {
        self.path.join(self.entry)
    }

    /// Reads the skill. `place` is the directory in answers to clients; it also gives the name if nothing else does.
    pub(crate) fn load(&self, root: &SafeRoot, place: &Path) -> Result<Skill> {
        let (text, stat) = read_text(root, &self.entry_path())?;
        let has = |name: &str, wanted| kind(root, &self.path.join(name)) == Some(wanted);
        let facts = PackageFacts {
            place,
            entry: self.entry,
            python_project: PYTHON_FILES.iter().any(|name| has(name, FileType::RegularFile))
                || has(PYTHON_DIRECTORY, FileType::Directory),
            created_at: timestamp(stat.st_ctime, stat.st_ctime_nsec),
            updated_at: timestamp(stat.st_mtime, stat.st_mtime_nsec),
        };
        facts.skill(&text)
    }
}

/// What is known of a package besides the text of its entry file.
#[derive(Debug)]
pub(crate) struct PackageFacts<'a> {
    /// Absolute path of the directory.
    pub(crate) place: &'a Path,
    /// Name of the entry file.
    pub(crate) entry: &'static str,
    /// Whether it looks like a Python project.
    pub(crate) python_project: bool,
    /// When it was made.
    pub(crate) created_at: Timestamp,
    /// When it was changed.
    pub(crate) updated_at: Timestamp,
}

impl PackageFacts<'_> {
    /// The skill, with the text of its entry file.
    pub(crate) fn skill(self, text: &str) -> Result<Skill> {
        let document = Document::split(text);
        let header = document.header(self.entry)?;
        let stated = |value: Option<String>| value.map(|value| value.trim().to_owned()).filter(|it| !it.is_empty());
        let directory = self.place.file_name().unwrap_or_default().to_string_lossy();
        let name = name::check(&stated(header.name).unwrap_or_else(|| directory.into_owned()))?;
        Ok(Skill {
            display_name: stated(header.display_name).unwrap_or_else(|| name.clone()),
            description: stated(header.description).unwrap_or_default(),
            instructions: document.instructions.to_owned(),
            package_root: told(self.place),
            entry_file: self.entry.to_owned(),
            python_project: self.python_project,
            created_at: self.created_at,
            updated_at: self.updated_at,
            name,
        })
    }
}

/// Reads a file that must be text, with what the system knows of it.
pub(crate) fn read_text(root: &SafeRoot, path: &Path) -> Result<(String, Stat)> {
    let shown_path = || shown(&told(path));
    let told_io = |error| box_core::Error::io(format!("reading {}", path.display()), error);
    let file = root.open(path).map_err(|error| match error {
        error if Error::is_absence(&error) => Error::FileNotFound { path: shown_path() },
        error if Error::is_link(&error) => through_link(path),
        error => error.into(),
    })?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| told_io(errno.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::FileNotFound { path: shown_path() });
    }
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(told_io)?;
    check_text_size(path, bytes.len())?;
    let text = String::from_utf8(bytes).map_err(|_| Error::NotText { path: shown_path() })?;
    Ok((text, stat))
}

/// Refuses a text file that is too large.
pub(crate) fn check_text_size(path: &Path, bytes: usize) -> Result<()> {
    if bytes as u64 <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let what = format!("Skill file {}", shown(&told(path)));
    Err(Error::TooMuch { what, limit: TEXT_BYTES_MAX, unit: " bytes" })
}

/// The refusal of a path that leads through a link.
pub(crate) fn through_link(path: &Path) -> Error {
    Error::PathOutside { path: shown(&told(path)), why: " leads through a link, and links are not followed" }
}

/// What is at a path, links not followed.
pub(crate) fn kind(root: &SafeRoot, path: &Path) -> Option<FileType> {
    root.look(path).ok().flatten().map(|stat| FileType::from_raw_mode(stat.st_mode))
}

/// Calls back for each name in a directory, with what it is if the file system says so. Fails beyond `entries_max` names.
pub(crate) fn each_entry(
    directory: &SafeRoot,
    entries_max: usize,
    mut visit: impl FnMut(&std::ffi::CStr, FileType),
) -> Result<usize> {
    let told = |errno| box_core::Error::io("listing a directory of skills", errno);
    let mut seen = 0;
    for entry in Dir::read_from(directory.directory()).map_err(told)? {
        let entry = entry.map_err(told)?;
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        seen += 1;
        if seen > entries_max {
            let what = "Skill directory".to_owned();
            return Err(Error::TooMuch { what, limit: entries_max as u64, unit: " entries" });
        }
        visit(entry.file_name(), entry.file_type());
    }
    Ok(seen)
}

/// Names of the directories in a directory, sorted, and how many names of any kind were seen.
fn directories(root: &SafeRoot, path: &Path, entries_max: usize) -> Result<(Vec<String>, usize)> {
    let directory = root.below(path)?;
    let mut names = Vec::new();
    let seen = each_entry(&directory, entries_max, |name, kind_told| {
        let Ok(name) = name.to_str() else { return };
        let is_directory = match kind_told {
            FileType::Unknown => kind(&directory, Path::new(name)) == Some(FileType::Directory),
            kind => kind == FileType::Directory,
        };
        if is_directory {
            names.push(name.to_owned());
        }
    })?;
    names.sort_unstable();
    Ok((names, seen))
}

/// A time of the file system. Boxes can set these to anything; what no calendar has becomes the beginning of time.
fn timestamp(seconds: i64, nanoseconds: u64) -> Timestamp {
    let nanoseconds = i32::try_from(nanoseconds).unwrap_or_default();
    Timestamp::new(seconds.max(0), nanoseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
