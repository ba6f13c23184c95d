//! What is on disk about a box before anything of it exists, so that the next start can remove what a crash left.

use std::os::fd::AsFd;

use box_core::{Error, Result};
use box_host::network::Attachment;
use box_host::process::Process;
use box_wire::BoxId;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

const NAME: &str = "record.json";

/// What a record is filled up to with blanks, so that a shorter one covers a longer one.
const PADDED_BYTES: usize = 1024;

/// A record is a few hundred bytes; more than this was not written by us.
const BYTES_MAX: usize = 64 << 10;

/// Everything that exists, or is about to, because of one box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The box.
    pub(crate) id: BoxId,
    /// Its name among those of all instances, which its disk and its journal have.
    pub(crate) name: String,
    /// Name of its directories in the cgroup hierarchies.
    pub(crate) cgroup: String,
    /// Its range of ids, where it has one of its own.
    pub(crate) range: Option<u32>,
    /// Its way out, where it has one.
    pub(crate) network: Option<Attachment>,
    /// nsjail, once it was started.
    pub(crate) jail: Option<Process>,
    /// The first process of the box, once it was at the door.
    pub(crate) agent: Option<Process>,
}

impl Record {
    /// Writes the record into the box's directory, over an older one.
    pub(crate) fn write(&self, directory: impl AsFd) -> Result<()> {
        let failed = |error: std::io::Error| Error::io("writing the record of a box", error);
        let mut text = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        text.resize(text.len().max(PADDED_BYTES), b' ');
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // In place and without fsync: a record guards against the death of this process, which a single write survives as a
        // whole or not at all. When the machine dies, the box dies with it.
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
    pub(crate) fn read(directory: impl AsFd) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, NAME, flags, Mode::empty()).ok()?;
        let mut text = vec![0; BYTES_MAX];
        let mut length = 0;
        loop {
            match rustix::io::read(&file, &mut text[length..]).ok()? {
                0 => break,
                count => length += count,
            }
        }
        serde_json::from_slice(&text[..length]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let opened = std::fs::File::open(directory.path()).unwrap();
        let id = "a".parse().unwrap();
        let record = Record {
            id,
            name: "i.a".into(),
            cgroup: "nsjail-i.a".into(),
            range: Some(3),
            network: None,
            jail: Process::of(std::process::id()),
            agent: None,
        };
        assert_eq!(Record::read(&opened), None);
        record.write(&opened).unwrap();
        assert_eq!(Record::read(&opened), Some(record));
        std::fs::write(directory.path().join(NAME), b"{garbled").unwrap();
        assert_eq!(Record::read(&opened), None);
    }
}
