//! The files and directories of an archive, by safe paths.

use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;

use rustix::fs::FileType;
use unicode_normalization::UnicodeNormalization;
use zip::ZipArchive;
use zip::read::ZipFileEntry;

use crate::error::{Error, Result, archive_entry, shown};
use crate::limits::{ZIP_ENTRIES_MAX, ZIP_NODES_MAX};
use crate::package_path::unusable;
use crate::skill::ENTRY_FILES;

/// Something in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    /// A directory, whether the archive has an entry for it or only for something in it.
    Directory {
        /// Whether it has an entry.
        entered: bool,
    },
    /// A file.
    File {
        /// Number of its entry.
        index: usize,
        /// Its size.
        bytes: u64,
        /// Whether it can be run.
        is_program: bool,
    },
}

impl Node {
    fn is_directory(self) -> bool {
        matches!(self, Self::Directory { .. })
    }
}

/// What comes out of an archive. Paths are relative, without `.` and `..`, joined by `/`; each directory comes before what is
/// in it.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Node>,
    /// Paths as a file system sees them that ignores case and normalizes accents.
    folded: HashMap<String, String>,
}

impl Tree {
    /// Collects the entries of an archive, refusing all that could be understood in two ways.
    pub(super) fn of(zip: &ZipArchive<Cursor<&[u8]>>) -> Result<Self> {
        if zip.len() > ZIP_ENTRIES_MAX {
            return Err(Error::ArchiveEntries);
        }
        let mut tree = Self::default();
        for index in 0..zip.len() {
            let entry = zip.by_index_data(index).map_err(|error| super::not_zip(&error))?;
            let name = name(&entry)?;
            let node = node(&entry, index, &name)?;
            tree.add(&name, node)?;
        }
        Ok(tree)
    }

    /// What is at a path.
    pub(crate) fn get(&self, path: &str) -> Option<Node> {
        self.nodes.get(path).copied()
    }

    /// Whether there is a directory at a path; the empty one is the archive.
    pub(crate) fn has_directory(&self, path: &str) -> bool {
        path.is_empty() || self.get(path).is_some_and(Node::is_directory)
    }

    /// The one directory that everything is in, if there is one.
    pub(crate) fn single_top(&self) -> Option<&str> {
        let mut tops = self.nodes.iter().filter(|(path, _)| !path.contains('/'));
        match (tops.next(), tops.next()) {
            (Some((path, Node::Directory { .. })), None) => Some(path),
            _ => None,
        }
    }

    /// What is below a directory, by its path from there.
    pub(crate) fn below<'t>(&'t self, directory: &'t str) -> impl Iterator<Item = (&'t str, Node)> {
        self.nodes.iter().filter_map(move |(path, node)| relative(path, directory).map(|path| (path, *node)))
    }

    /// The packages at and below a directory: where each is, and which entry file it has.
    pub(crate) fn packages(&self, start: &str, depth_max: usize) -> Vec<(String, &'static str)> {
        let is_file = |entry: &&&str| matches!(self.get(&join(start, entry)), Some(Node::File { .. }));
        if let Some(entry) = ENTRY_FILES.iter().find(is_file) {
            return vec![(start.to_owned(), entry)];
        }
        if depth_max == 0 {
            return Vec::new();
        }
        let children = self.below(start).filter(|(path, node)| node.is_directory() && !path.contains('/'));
        children.flat_map(|(path, _)| self.packages(&join(start, path), depth_max - 1)).collect()
    }

    fn add(&mut self, name: &str, node: Node) -> Result<()> {
        let parts = parts(name).ok_or_else(|| Error::ArchivePath { path: shown(name) })?;
        for length in 1..parts.len() {
            self.put(parts[..length].join("/"), Node::Directory { entered: false }, name)?;
        }
        self.put(parts.join("/"), node, name)
    }

    fn put(&mut self, path: String, node: Node, name: &str) -> Result<()> {
        let twice = || Error::ArchiveDuplicate { path: shown(name) };
        let folded: String = path.nfc().flat_map(char::to_lowercase).nfc().collect();
        if self.folded.get(&folded).is_some_and(|known| *known != path) {
            return Err(twice());
        }
        let node = match (self.get(&path), node) {
            (None, node) => node,
            (Some(Node::Directory { entered: known }), Node::Directory { entered }) if !(known && entered) => {
                Node::Directory { entered: known || entered }
            }
            _ => return Err(twice()),
        };
        self.folded.insert(folded, path.clone());
        self.nodes.insert(path, node);
        if self.nodes.len() > ZIP_NODES_MAX {
            return Err(Error::ArchiveEntries);
        }
        Ok(())
    }
}

/// A path below another; the empty one is the archive.
pub(crate) fn join(directory: &str, path: &str) -> String {
    match (directory, path) {
        ("", path) => path.to_owned(),
        (directory, "") => directory.to_owned(),
        (directory, path) => format!("{directory}/{path}"),
    }
}

fn relative<'p>(path: &'p str, directory: &str) -> Option<&'p str> {
    if directory.is_empty() { Some(path) } else { path.strip_prefix(directory)?.strip_prefix('/') }
}

/// The name of an entry: UTF-8 where it is that, whether or not it says so, else the old table of characters. Windows
/// programs write the other slash.
fn name(entry: &ZipFileEntry<'_>) -> Result<String> {
    let name = match std::str::from_utf8(entry.name_raw()) {
        Ok(name) => name.to_owned(),
        Err(_) => entry.name().map_err(|error| super::not_zip(&error))?.into_owned(),
    };
    Ok(name.replace('\\', "/"))
}

fn node(entry: &ZipFileEntry<'_>, index: usize, name: &str) -> Result<Node> {
    let refused = |what| Err(Error::ArchiveEntry { what, path: shown(name) });
    // Whatever system it says that it comes from: another program might not ask.
    let mode = entry.external_attributes() >> 16;
    let is_directory = name.ends_with('/');
    match FileType::from_raw_mode(mode) {
        FileType::Symlink => return refused(archive_entry::LINK),
        FileType::Directory if !is_directory => return refused("a directory that is named like a file"),
        FileType::RegularFile | FileType::Directory => {}
        _ if mode & 0o170_000 == 0 => {}
        _ => return refused(archive_entry::SPECIAL),
    }
    if is_directory && (entry.size() != 0 || entry.compressed_size() > 2) {
        return refused(archive_entry::FULL_DIRECTORY);
    }
    if is_directory {
        return Ok(Node::Directory { entered: true });
    }
    Ok(Node::File { index, bytes: entry.size(), is_program: mode & 0o111 != 0 })
}

/// The parts of a path that leads nowhere but down.
fn parts(name: &str) -> Option<Vec<&str>> {
    if name.starts_with('/') {
        return None;
    }
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let has_drive = parts.first().is_some_and(|part| part.chars().nth(1) == Some(':'));
    let is_safe = !parts.is_empty() && !parts.contains(&"..") && !has_drive && unusable(&parts).is_none();
    is_safe.then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Node = Node::File { index: 0, bytes: 1, is_program: false };
    const DIRECTORY: Node = Node::Directory { entered: true };

    fn tree(entries: &[(&str, Node)]) -> Result<Tree> {
        let mut tree = Tree::default();
        entries.iter().try_for_each(|(name, node)| tree.add(name, *node))?;
        Ok(tree)
    }

    #[test]
    fn paths_that_lead_anywhere_else_are_refused() {
        for name in ["../x", "a/../../x", "a/../b", "/etc/x", "C:/x", "c:x", "a\0b", "a\nb", "", ".", "/", "..", "./.."]
        {
            let error = tree(&[(name, FILE)]).unwrap_err();
            assert!(error.to_string().contains("Archive contains an unsafe path"), "{name:?}: {error}");
        }
        assert!(tree(&[("./a//b", FILE)]).unwrap().get("a/b").is_some());
    }

    #[test]
    fn twins_are_refused() {
        let table = [
            [("a", FILE), ("a", FILE)],
            [("a", FILE), ("./a", FILE)],
            [("a", FILE), ("A", FILE)],
            [("a", FILE), ("a/b", FILE)],
            [("a/b", FILE), ("a", FILE)],
            [("a", FILE), ("a/", DIRECTORY)],
            [("a/", DIRECTORY), ("a/", DIRECTORY)],
            [("A/b", FILE), ("a/c", FILE)],
            [("caf\u{e9}", FILE), ("cafe\u{301}", FILE)],
            [("\u{c9}", FILE), ("e\u{301}", FILE)],
        ];
        for entries in table {
            let error = tree(&entries).unwrap_err();
            assert!(error.to_string().contains("two entries that are one path"), "{entries:?}: {error}");
        }
        assert!(tree(&[("a/b", FILE), ("a/", DIRECTORY), ("a/c", FILE), ("a-b", FILE)]).is_ok());
    }

    #[test]
    fn packages_are_found_down_to_a_depth_and_not_below_each_other() {
        let names = ["a/SKILL.md", "a/b/SKILL.md", "c/d/skill.md", "e/f/g/SKILL.md", "h/SKILL.md/x"];
        let tree = tree(&names.map(|name| (name, FILE))).unwrap();
        let found = tree.packages("", 2);
        assert_eq!(found, [("a".to_owned(), "SKILL.md"), ("c/d".to_owned(), "skill.md")]);
        assert_eq!(tree.packages("e", 2), [("e/f/g".to_owned(), "SKILL.md")]);
    }

    #[test]
    fn only_a_single_directory_is_what_everything_is_in() {
        assert_eq!(tree(&[("a/b", FILE), ("a/c/d", FILE)]).unwrap().single_top(), Some("a"));
        assert_eq!(tree(&[("a/b", FILE), ("c", FILE)]).unwrap().single_top(), None);
        assert_eq!(tree(&[("a", FILE)]).unwrap().single_top(), None);
    }
}
