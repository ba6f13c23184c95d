//! Whether a file could be filled, checked before its bytes are sent.

use box_wire::{FileError, FileErrorCode, GuestPath};
use rustix::fs::{Access, AtFlags, CWD};

use super::file_error;
use super::place::{FileTree, by_descriptor};

/// Looks at the file, or at the nearest directory above it that is there.
pub(super) fn reach(place: &FileTree, path: &GuestPath) -> Result<(), FileError> {
    let mut nearest = path.clone();
    let found = loop {
        match place.find(&nearest) {
            Err(error) if error.code == FileErrorCode::NotFound && nearest.as_str() != "/" => {
                nearest = nearest.parent();
            }
            found => break found?,
        }
    };
    // Creating something in a directory needs the right to search it; filling a file does not.
    let wanted = if nearest == *path { Access::WRITE_OK } else { Access::WRITE_OK | Access::EXEC_OK };
    rustix::fs::accessat(CWD, by_descriptor(&found), wanted, AtFlags::EACCESS)
        .map_err(|error| file_error(path.as_str(), error))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::place::ground::Ground;
    use super::*;

    #[test]
    fn what_is_missing_is_looked_for_above() {
        let ground = Ground::new();
        fs::write(ground.tree.join("file"), "").unwrap();
        for name in ["file", "new", "a/b/new"] {
            assert!(reach(&ground.place, &ground.path(name)).is_ok(), "{name}");
        }
        assert_eq!(reach(&ground.place, &ground.path("file/x")).unwrap_err().code, FileErrorCode::NotDirectory);
        let outside = ground.outside("x").to_str().unwrap().parse().unwrap();
        assert_eq!(reach(&ground.place, &outside).unwrap_err().code, FileErrorCode::PathEscapes);
    }
}
