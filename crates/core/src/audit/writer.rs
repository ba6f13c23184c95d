//! The one thread that writes. Each line is one call of the system: a killed process leaves at most one unfinished.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use tokio::sync::{mpsc, oneshot};

use super::key::KeyFile;
use super::line::Chain;
use super::resume::{End, resume};
use super::{AuditEntry, AuditOptions, FileError, files};
use crate::{Error, Result};

/// What the thread is asked to do, in order.
#[derive(Debug)]
pub(super) enum Order {
    /// Write an entry.
    Append(Box<AuditEntry>),
    /// Write an entry, and answer when it is written.
    Record(Box<AuditEntry>, oneshot::Sender<Result<(), String>>),
    /// Write that entries are missing, if some are.
    Retry,
    /// Answer when everything before this is on the disk.
    Flush(oneshot::Sender<Result<(), String>>),
}

/// What the thread owns.
#[derive(Debug)]
pub(super) struct Writer {
    dir: PathBuf,
    options: AuditOptions,
    file: File,
    number: u64,
    /// Bytes of the file that are whole lines.
    bytes: u64,
    /// Whether the file may hold more than that, because writing a line failed in the middle.
    torn: bool,
    /// Whether the file holds no entry yet. The first one goes into it however long it is.
    fresh: bool,
    chain: Chain,
    key: KeyFile,
    /// Entries that could not be written since the last one that could.
    missing: u64,
    error: FileError,
    _lock: files::Lock,
}

impl Writer {
    /// Goes on where the log in a directory ends.
    pub(super) fn open(dir: &Path, key_file: &Path, options: AuditOptions, error: FileError) -> Result<Self> {
        files::prepare(dir)?;
        let lock = files::lock(dir)?;
        let key = KeyFile::open(key_file)?;
        let End { file, number, bytes, fresh, chain, repair, is_sealed } = resume(dir, &key)?;
        let mut writer = Self {
            dir: dir.to_owned(),
            options,
            file,
            number,
            bytes,
            torn: false,
            fresh,
            chain,
            key,
            missing: 0,
            error,
            _lock: lock,
        };
        if writer.bytes > 0 {
            // The operator may want fewer now than before.
            writer.remove_oldest();
        }
        if let Some(detail) = repair {
            writer.write(&AuditEntry::repair(detail)).map_err(|error| Error::io("repairing the audit log", error))?;
        }
        writer.begin_seals(is_sealed).map_err(|error| Error::io("sealing the audit log", error))?;
        writer.key.establish()?;
        Ok(writer)
    }

    /// Continues a log from before there was a key: the first seal holds all lines before it, as they are now.
    fn begin_seals(&mut self, is_sealed: Option<bool>) -> io::Result<()> {
        if is_sealed == Some(false) {
            self.write(&AuditEntry::first_seal(self.key.key.id()))?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Writes until the last sender is gone and nothing waits any more.
    pub(super) fn run(mut self, mut inbox: mpsc::Receiver<Order>) {
        while let Some(order) = inbox.blocking_recv() {
            match order {
                Order::Append(entry) => drop(self.append(&entry)),
                Order::Retry => {
                    let error = self.note_missing().err().map(|error| error.to_string());
                    self.set_file_error(error);
                }
                // Whoever waited may have gone away.
                Order::Record(entry, answer) => drop(answer.send(self.append(&entry))),
                Order::Flush(answer) => drop(answer.send(self.flush())),
            }
        }
    }

    fn append(&mut self, entry: &AuditEntry) -> Result<(), String> {
        let Err(error) = self.note_missing().and_then(|()| self.write(entry)) else {
            self.set_file_error(None);
            return Ok(());
        };
        self.missing += 1;
        let told = self.set_file_error(Some(error.to_string()));
        // Logged once; every append returns the error too.
        if told.is_none() {
            tracing::error!(%error, "the audit log cannot be written; entries are missing until it can be");
        }
        Err(error.to_string())
    }

    fn note_missing(&mut self) -> io::Result<()> {
        if self.missing > 0 {
            let detail = format!("{} entries before this one could not be written and are missing", self.missing);
            self.write(&AuditEntry::repair(detail))?;
            self.missing = 0;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        self.file.sync_data().map_err(|error| error.to_string())?;
        self.standing()
    }

    /// Whether the last entry was written.
    fn standing(&self) -> Result<(), String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }

    /// Says how things stand, and returns how they stood.
    fn set_file_error(&self, error: Option<String>) -> Option<String> {
        std::mem::replace(&mut *self.error.lock().unwrap_or_else(PoisonError::into_inner), error)
    }

    /// Writes one entry, in a new file if this one has no room for it.
    fn write(&mut self, entry: &AuditEntry) -> io::Result<()> {
        self.anchor()?;
        let (line, chain) = self.chain.entry(entry, &self.key.key)?;
        if self.fresh || self.bytes + line.len() as u64 <= self.options.file_bytes_max {
            self.write_line(&line, chain)?;
        } else {
            self.rotate()?;
            // Another line than before: it continues the anchor of the new file.
            let (line, chain) = self.chain.entry(entry, &self.key.key)?;
            self.write_line(&line, chain)?;
        }
        self.fresh = false;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        let number = self.number.saturating_add(1);
        self.file = files::create(&self.dir, number)?;
        (self.number, self.bytes, self.torn, self.fresh) = (number, 0, false, true);
        self.anchor()
    }

    /// Begins the file, if that was not done yet. Only then are older ones removed: one of them knew where the log ended.
    fn anchor(&mut self) -> io::Result<()> {
        if self.bytes > 0 {
            return Ok(());
        }
        let (line, chain) = self.chain.anchor(&files::name(self.number), &self.key.key)?;
        self.write_line(&line, chain)?;
        self.remove_oldest();
        Ok(())
    }

    fn write_line(&mut self, line: &[u8], chain: Chain) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.bytes)?;
        }
        self.torn = true;
        self.file.write_all(line)?;
        self.torn = false;
        self.bytes += line.len() as u64;
        self.chain = chain;
        Ok(())
    }

    fn remove_oldest(&self) {
        let removed = files::list(&self.dir).and_then(|numbers| {
            let excess = numbers.len().saturating_sub(self.options.files_max);
            numbers[..excess].iter().try_for_each(|number| files::remove(&self.dir, *number))
        });
        if let Err(error) = removed {
            tracing::warn!(%error, "the oldest files of the audit log could not be removed; the next file tries again");
        }
    }
}
