//! Lines of a text file, read as a stream: what a file claims to be long is never asked for at once.

mod window;

use std::fs::File;
use std::io::Read;

use box_wire::file_op::Lines;
use box_wire::{FileError, FileErrorCode, GuestPath};
use rustix::fs::OFlags;

use super::file_error;
use super::files::{check_regular, entry};
use super::place::FileTree;
use window::Window;

/// How much is read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// So much of the beginning decides whether a file is text.
const HEAD_BYTES: usize = 8 << 10;

/// Bytes to read behind the last returned line in order to count the remaining lines.
const COUNT_BYTES_MAX: u64 = 64 << 20;

pub(super) fn lines(
    place: &FileTree,
    path: &GuestPath,
    first: u64,
    lines_max: u32,
    bytes_max: u32,
) -> Result<Lines, FileError> {
    let mut file = place.open(path, OFlags::RDONLY)?;
    check_regular(&entry(&file, path.as_str())?)?;
    let mut window = Window::new(first, lines_max, bytes_max);
    let head = read_head(&mut file).map_err(|error| file_error(path.as_str(), error))?;
    if head.contains(&0) {
        return Err(binary(path.as_str()));
    }
    window.take(&head);
    let whole = read_rest(&mut file, &mut window).map_err(|error| file_error(path.as_str(), error))?;
    Ok(window.finish(whole))
}

/// Says that a file is not text, and what helps.
pub(super) fn binary(path: &str) -> FileError {
    let message = format!(
        "{path} is not text: it holds NUL bytes. Look at it with a command, such as `file` or `xxd`, or download it"
    );
    FileError::new(FileErrorCode::Binary, message)
}

fn read_head(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    file.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Whether the end was reached. Until the window is full everything is read, however far it lies: the deadline bounds that.
fn read_rest(file: &mut File, window: &mut Window) -> std::io::Result<bool> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut behind_bytes = 0;
    while behind_bytes < COUNT_BYTES_MAX {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            return Ok(true);
        }
        window.take(&chunk[..count]);
        if window.is_full() {
            behind_bytes += count as u64;
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, FileTree) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let place = FileTree::new(&root.to_str().unwrap().parse().unwrap()).unwrap();
        (directory, place)
    }

    fn path(directory: &tempfile::TempDir, name: &str) -> GuestPath {
        directory.path().join(name).to_str().unwrap().parse().unwrap()
    }

    #[test]
    fn a_sparse_file_and_other_binary_ones_are_refused_with_a_hint() {
        let (directory, place) = place();
        let sparse = File::create(directory.path().join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let refused = lines(&place, &path(&directory, "sparse"), 1, 10, 1000).unwrap_err();
        assert_eq!(refused.code, FileErrorCode::Binary);
        assert!(refused.message.contains("xxd"), "{refused}");
    }

    #[test]
    fn only_the_beginning_decides_whether_a_file_is_text() {
        let (directory, place) = place();
        let mut bytes = vec![b'a'; HEAD_BYTES];
        bytes.extend_from_slice(b"\n\0\n");
        std::fs::write(directory.path().join("late"), &bytes).unwrap();
        let told = lines(&place, &path(&directory, "late"), 2, 10, 1000).unwrap();
        assert_eq!((told.text.as_str(), told.total), ("\0\n", Some(2)));
    }

    #[test]
    fn what_is_too_long_to_be_counted_has_no_total() {
        let (directory, place) = place();
        let long = File::create(directory.path().join("long")).unwrap();
        std::io::Write::write_all(&mut &long, &[b'x'; HEAD_BYTES]).unwrap();
        long.set_len(COUNT_BYTES_MAX * 4).unwrap();
        let told = lines(&place, &path(&directory, "long"), 1, 10, 100).unwrap();
        assert_eq!((told.text.len(), told.count, told.total), (100, 1, None));
        assert_eq!(told.cut, Some(box_wire::file_op::Cut::Bytes));
    }

    #[test]
    fn directories_and_pipes_are_refused() {
        let (directory, place) = place();
        std::fs::create_dir(directory.path().join("d")).unwrap();
        assert_eq!(lines(&place, &path(&directory, "d"), 1, 1, 1).unwrap_err().code, FileErrorCode::IsDirectory);
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(lines(&place, &path(&directory, "pipe"), 1, 1, 1).unwrap_err().code, FileErrorCode::NotRegular);
    }
}
