//! The disk of the state directory, and the reserve on it that only deletions and the audit log may use.

use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The reserve is never more than this part of the disk, so that small disks can be used too.
const RESERVE_PART: u64 = 10;
/// Files that are reserved, where the file system has a fixed number of them.
const RESERVE_FILES: u64 = 1024;

/// The disk of the state directory.
#[derive(Debug, Clone)]
pub struct StateDisk {
    directory: PathBuf,
    reserve_bytes: u64,
}

/// What is left of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    bytes: u64,
    bytes_free: u64,
    /// 0 where there can be any number of files.
    files: u64,
    files_free: u64,
}

impl StateDisk {
    /// The disk that a directory is on.
    pub fn new(directory: &Path, reserve_mb: u64) -> Self {
        Self { directory: directory.to_owned(), reserve_bytes: reserve_mb << 20 }
    }

    /// Refuses to write while no more than the reserve is free. Costs one system call.
    pub fn check(&self) -> Result<()> {
        let found = rustix::fs::statvfs(&self.directory)
            .map_err(|error| Error::io(format!("looking at the disk of {}", self.directory.display()), error))?;
        let room = Room {
            bytes: found.f_blocks.saturating_mul(found.f_frsize),
            bytes_free: found.f_bavail.saturating_mul(found.f_frsize),
            files: found.f_files,
            files_free: found.f_favail,
        };
        room.check(self.reserve_bytes)
    }
}

impl Room {
    fn check(self, reserve_bytes: u64) -> Result<()> {
        let reserve_bytes = reserve_bytes.min(self.bytes / RESERVE_PART);
        let reserve_files = RESERVE_FILES.min(self.files / RESERVE_PART);
        if self.bytes_free >= reserve_bytes && self.files_free >= reserve_files {
            return Ok(());
        }
        Err(Error::DiskFull { free_mb: self.bytes_free >> 20, reserve_mb: reserve_bytes >> 20 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_reserve_is_kept_from_who_writes() {
        let room = |bytes: u64, bytes_free: u64| Room {
            bytes: bytes << 20,
            bytes_free: bytes_free << 20,
            files: 0,
            files_free: 0,
        };
        let reserve = 256 << 20;
        assert!(room(10_000, 256).check(reserve).is_ok());
        let error = room(10_000, 255).check(reserve).unwrap_err();
        assert!(error.code() == "disk_full" && error.to_string().contains("255 MiB free"), "{error}");
        assert!(room(100, 10).check(reserve).is_ok(), "a tenth of a small disk");
        assert!(room(100, 9).check(reserve).is_err());
        assert!(room(100, 0).check(0).is_ok(), "switched off");
    }

    #[test]
    fn a_disk_without_files_left_is_full() {
        let room = |files_free| Room { bytes: 1 << 40, bytes_free: 1 << 39, files: 1 << 20, files_free };
        assert!(room(1024).check(1 << 28).is_ok() && room(1023).check(1 << 28).is_err());
    }

    #[test]
    fn a_real_disk_is_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        StateDisk::new(directory.path(), 0).check().unwrap();
        assert!(StateDisk::new(&directory.path().join("missing"), 0).check().is_err());
    }
}
