//! What is on disk about a box before anything of it exists, so that the next start can remove what a crash left. What a record holds is its
//! backend's own; how it is written and read is the same for all.

use std::io::Read;
use std::os::fd::AsFd;

use box_core::{Error, Result};
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The file in a box's directory.
const NAME: &str = "record.json";

/// More than this was not written by us.
const BYTES_MAX: u64 = 1 << 20;

/// Writes the record into the box's directory, over an older one.
///
/// In place and without fsync: a record guards against the death of this process, which a single write survives as a whole or not at all.
/// When the machine dies, the box dies with it. What is left of a longer one behind it is not read.
pub fn write(record: &impl Serialize, directory: impl AsFd) -> Result<()> {
    let failed = |error: std::io::Error| Error::io("writing the record of a box", error);
    let mut text = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
    text.push(b'\n');
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let write = || -> rustix::io::Result<usize> {
        let file = rustix::fs::openat(&directory, NAME, flags, Mode::from_raw_mode(0o600))?;
        rustix::io::pwrite(&file, &text, 0)
    };
    match write() {
        Ok(count) if count == text.len() => Ok(()),
        Ok(_) => Err(failed(std::io::ErrorKind::StorageFull.into())),
        Err(error) => Err(failed(error.into())),
    }
}

/// Reads the record of a box; `None` when there is none that can be read.
pub fn read<T: DeserializeOwned>(directory: impl AsFd) -> Option<T> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, NAME, flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    std::fs::File::from(file).take(BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::Deserializer::from_slice(&text).into_iter().next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was_last_written() {
        let directory = tempfile::tempdir().unwrap();
        let opened = std::fs::File::open(directory.path()).unwrap();
        assert_eq!(read::<Vec<String>>(&opened), None);
        for record in [vec!["long".repeat(1000), "longer".repeat(1000)], vec!["short".to_owned()], vec![]] {
            write(&record, &opened).unwrap();
            assert_eq!(read(&opened), Some(record));
        }
        std::fs::write(directory.path().join(NAME), b"[garbled").unwrap();
        assert_eq!(read::<Vec<String>>(&opened), None);
    }
}
