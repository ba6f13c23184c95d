//! Whether a file could be filled, before anybody sends its bytes.

use box_wire::{GuestPath, Trouble, TroubleCode};
use rustix::fs::{Access, AtFlags, CWD};

use super::place::{Place, by_descriptor};
use super::trouble;

/// Looks at the file, or at the nearest directory above it that is there.
pub(super) fn reach(place: &Place, path: &GuestPath) -> Result<(), Trouble> {
    let mut nearest = path.clone();
    let found = loop {
        match place.find(&nearest) {
            Err(trouble) if trouble.code == TroubleCode::NotFound && nearest.as_str() != "/" => {
                nearest = nearest.parent();
            }
            found => break found?,
        }
    };
    // Whoever makes something in a directory goes through it; to fill a file, that is not needed.
    let wanted = if nearest == *path { Access::WRITE_OK } else { Access::WRITE_OK | Access::EXEC_OK };
    rustix::fs::accessat(CWD, by_descriptor(&found), wanted, AtFlags::EACCESS)
        .map_err(|error| trouble(path.as_str(), error))
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
        assert_eq!(reach(&ground.place, &ground.path("file/x")).unwrap_err().code, TroubleCode::NotDirectory);
        let outside = ground.outside("x").to_str().unwrap().parse().unwrap();
        assert_eq!(reach(&ground.place, &outside).unwrap_err().code, TroubleCode::PathEscapes);
    }
}
