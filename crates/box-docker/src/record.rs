//! What is on disk about a box before anything of it exists, so that the next start can remove what a crash left.

use std::os::fd::AsFd;

use box_core::{BoxSpec, Error, Result};
use box_host::process::Process;
use box_wire::BoxId;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

const NAME: &str = "record.json";

/// What a record is filled up to with blanks, so that a shorter one covers a longer one. A specification with all its mounts fits.
const PADDED_BYTES: usize = 4 << 10;

/// More than this was not written by us.
const BYTES_MAX: usize = 1 << 20;

/// Everything that exists, or is about to, because of one box.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The box.
    pub(crate) id: BoxId,
    /// Name of its container, once it is asked for.
    pub(crate) container_name: String,
    /// What the engine calls the container, once it was made.
    pub(crate) container: Option<String>,
    /// Its first process, once it was started and where it can be seen.
    pub(crate) agent: Option<Process>,
    /// What was asked for; nothing while nobody has asked for it.
    pub(crate) spec: Option<BoxSpec>,
    /// A digest of how the container was made.
    pub(crate) config_hash: String,
}

impl Record {
    /// Writes the record into the box's directory, over an older one.
    pub(crate) fn write(&self, directory: impl AsFd) -> Result<()> {
        let failed = |error: std::io::Error| Error::io("writing the record of a box", error);
        let mut text = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        text.resize(text.len().next_multiple_of(PADDED_BYTES), b' ');
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // In place and without fsync: a record guards against the death of this process, which a single write survives as a
        // whole or not at all. When the machine dies, the box dies with it.
        let write = || -> rustix::io::Result<usize> {
            let file = rustix::fs::openat(&directory, NAME, flags, Mode::from_raw_mode(0o600))?;
            let count = rustix::io::pwrite(&file, &text, 0)?;
            rustix::fs::ftruncate(&file, count as u64)?;
            Ok(count)
        };
        match write() {
            Ok(count) if count == text.len() => Ok(()),
            Ok(_) => Err(failed(std::io::ErrorKind::StorageFull.into())),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Reads the record of a box; `None` when there is none that can be read.
    pub(crate) fn read(directory: impl AsFd) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, NAME, flags, Mode::empty()).ok()?;
        let mut text = Vec::new();
        let mut file = std::io::Read::take(std::fs::File::from(file), BYTES_MAX as u64);
        std::io::Read::read_to_end(&mut file, &mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Whether the box was started ahead and nobody has asked for it yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.spec.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::Profile;

    #[test]
    fn a_record_comes_back_as_it_was_last_written() {
        let directory = tempfile::tempdir().unwrap();
        let opened = std::fs::File::open(directory.path()).unwrap();
        assert_eq!(Record::read(&opened), None);
        let long = Record {
            id: "a".parse().unwrap(),
            container_name: "strongbox-a".into(),
            container: Some("0".repeat(3 * PADDED_BYTES)),
            agent: None,
            spec: Some(Profile::default().spec()),
            config_hash: "h".into(),
        };
        long.write(&opened).unwrap();
        assert_eq!(Record::read(&opened), Some(long.clone()));
        let short = Record { container: None, spec: None, ..long };
        short.write(&opened).unwrap();
        assert_eq!(Record::read(&opened).as_ref(), Some(&short));
        assert!(short.is_waiting());
        std::fs::write(directory.path().join(NAME), b"{garbled").unwrap();
        assert_eq!(Record::read(&opened), None);
    }
}
