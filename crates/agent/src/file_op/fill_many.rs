//! Fills several files at once, so that a batch costs one child process instead of one per file.

use std::io::{self, Read};

use box_wire::file_op::{Attributes, WriteHow};
use box_wire::{Answer, FileError, GuestPath};

use super::place::FileTree;
use super::write::Writing;

/// Fills files from their concatenated bytes.
pub(super) fn fill_many(
    place: &FileTree,
    files: &[(GuestPath, u64)],
    attributes: Option<&Attributes>,
    input: &mut impl Read,
) -> Result<Answer, FileError> {
    let fill = |(path, bytes): &(GuestPath, u64)| {
        let writing = Writing { place, path, mode: None, bytes_max: *bytes, attributes };
        writing.run(WriteHow::From(0), &mut Part { input: &mut *input, left: *bytes })
    };
    let entries = files.iter().map(fill).collect::<Result<_, _>>()?;
    Ok(Answer::Entries { entries, truncated: false })
}

/// The bytes of one file. Input that ends early is an error and leaves no shorter file.
struct Part<'a, I> {
    input: &'a mut I,
    left: u64,
}

impl<I: Read> Read for Part<'_, I> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let room = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if room == 0 {
            return Ok(0);
        }
        let count = self.input.read(&mut bytes[..room])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use box_wire::FileErrorCode;

    use super::super::place::ground::Ground;
    use super::*;

    fn fill(ground: &Ground, files: &[(&str, u64)], bytes: &str) -> Result<Vec<u64>, FileError> {
        let files: Vec<_> = files.iter().map(|(name, size)| (ground.path(name), *size)).collect();
        match fill_many(&ground.place, &files, None, &mut bytes.as_bytes())? {
            Answer::Entries { entries, .. } => Ok(entries.iter().map(|entry| entry.size).collect()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_file_gets_its_own_bytes() {
        let ground = Ground::new();
        fs::write(ground.tree.join("old"), "something longer").unwrap();
        assert_eq!(fill(&ground, &[("a/b", 3), ("empty", 0), ("old", 2)], "onetw").unwrap(), [3, 0, 2]);
        let read = |name: &str| fs::read_to_string(ground.tree.join(name)).unwrap();
        assert_eq!((read("a/b"), read("empty"), read("old")), ("one".to_owned(), String::new(), "tw".to_owned()));
    }

    #[test]
    fn what_ends_too_early_leaves_no_part_of_a_file() {
        let ground = Ground::new();
        let error = fill(&ground, &[("whole", 3), ("half", 3), ("never", 1)], "onetw").unwrap_err();
        assert_eq!(error.code, FileErrorCode::Failed, "{error}");
        assert!(ground.tree.join("whole").exists());
        assert!(!ground.tree.join("half").exists() && !ground.tree.join("never").exists());
    }

    #[test]
    fn a_file_that_cannot_be_filled_ends_it_and_is_named() {
        let ground = Ground::new();
        fs::create_dir(ground.tree.join("directory")).unwrap();
        let error = fill(&ground, &[("first", 1), ("directory", 1), ("last", 1)], "123").unwrap_err();
        assert!(error.code == FileErrorCode::IsDirectory && error.message.contains("directory"), "{error}");
        assert!(ground.tree.join("first").exists() && !ground.tree.join("last").exists());
    }
}
