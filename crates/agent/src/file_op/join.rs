//! One file out of several.

use std::fs::File;
use std::io::{Read, Write};

use box_wire::file_op::Entry;
use box_wire::{FileError, FileErrorCode, GuestPath};
use rustix::fs::{AtFlags, OFlags};

use super::draft::Draft;
use super::file_error;
use super::files::{check_regular, entry};
use super::place::FileTree;
use super::write::copy_at_most;

/// Puts files one after the other, and removes them when the whole is in its place.
pub(super) fn join(
    place: &FileTree,
    sources: &[GuestPath],
    path: &GuestPath,
    bytes_max: u64,
) -> Result<Entry, FileError> {
    let failed = |error| file_error(path.as_str(), error);
    // All are looked at before anything is made: one that is missing leaves everything as it is.
    for source in sources {
        open(place, source)?;
    }
    let spot = place.parent_made(path)?;
    let mut draft = Draft::new(&spot.directory).map_err(failed)?;
    let mut left = bytes_max;
    for source in sources {
        left -= append(place, source, &mut draft.file, left)?.ok_or_else(|| too_large(path, bytes_max))?;
    }
    place.give(&draft.file).map_err(failed)?;
    let whole = draft.replace(&spot.name).map_err(|(error, _)| failed(error))?;
    remove(place, sources, path)?;
    entry(&whole, path.as_str())
}

fn open(place: &FileTree, source: &GuestPath) -> Result<File, FileError> {
    let file = place.open(source, OFlags::RDONLY)?;
    check_regular(&entry(&file, source.as_str())?)?;
    Ok(file)
}

/// Adds a file to another; nothing is returned when that would be too much.
fn append(place: &FileTree, source: &GuestPath, whole: &mut impl Write, left: u64) -> Result<Option<u64>, FileError> {
    let mut file = open(place, source)?.take(left.saturating_add(1));
    copy_at_most(&mut file, whole, left).map_err(|error| file_error(source.as_str(), error))
}

fn remove(place: &FileTree, sources: &[GuestPath], path: &GuestPath) -> Result<(), FileError> {
    for source in sources.iter().filter(|source| *source != path) {
        let spot = place.parent(source)?;
        match rustix::fs::unlinkat(&spot.directory, &spot.name, AtFlags::empty()) {
            // It was named twice.
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(file_error(source.as_str(), error)),
        }
    }
    Ok(())
}

fn too_large(path: &GuestPath, bytes_max: u64) -> FileError {
    FileError::new(FileErrorCode::TooLarge, format!("{path} would have more than {bytes_max} bytes"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::place::ground::Ground;
    use super::*;

    fn run(ground: &Ground, sources: &[&str], path: &str) -> Result<Entry, FileError> {
        let sources: Vec<_> = sources.iter().map(|name| ground.path(name)).collect();
        join(&ground.place, &sources, &ground.path(path), 10)
    }

    fn text(ground: &Ground, name: &str) -> Option<String> {
        fs::read_to_string(ground.tree.join(name)).ok()
    }

    fn filled() -> Ground {
        let ground = Ground::new();
        for (name, bytes) in [("a", "one"), ("b", "two"), ("long", "12345678")] {
            fs::write(ground.tree.join(name), bytes).unwrap();
        }
        ground
    }

    #[test]
    fn files_become_one_and_are_gone() {
        let ground = filled();
        assert_eq!(run(&ground, &["b", "a"], "new/whole").unwrap().size, 6);
        assert_eq!(text(&ground, "new/whole").as_deref(), Some("twoone"));
        assert_eq!((text(&ground, "a"), text(&ground, "b")), (None, None));
    }

    #[test]
    fn the_whole_may_have_the_name_of_a_part() {
        let ground = filled();
        run(&ground, &["a", "b", "a"], "a").unwrap();
        assert_eq!((text(&ground, "a").as_deref(), text(&ground, "b")), (Some("onetwoone"), None));
    }

    #[test]
    fn what_cannot_be_joined_leaves_everything() {
        let ground = filled();
        fs::create_dir(ground.tree.join("directory")).unwrap();
        for (sources, path, code) in [
            (["a", "none"], "new", FileErrorCode::NotFound),
            (["a", "directory"], "new", FileErrorCode::IsDirectory),
            (["a", "long"], "new", FileErrorCode::TooLarge),
            (["a", "b"], "directory", FileErrorCode::IsDirectory),
        ] {
            assert_eq!(run(&ground, &sources, path).unwrap_err().code, code, "{sources:?}");
            assert_eq!(fs::read_dir(&ground.tree).unwrap().count(), 4, "{sources:?}");
            assert_eq!(text(&ground, "a").as_deref(), Some("one"));
        }
    }
}
