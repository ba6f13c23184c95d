//! The audit log: who asked for what and how it ended, in lines that cannot be changed without anybody noticing.
//!
//! ```text
//! <dir>/audit.lock           held by the one process that writes
//! <dir>/audit-000001.jsonl   {"anchor":"audit-000001.jsonl","seq":0,"prev":"00…","key":"…","hmac":"…"}
//!                            {"seq":1,"at":"…","subject":"…",…,"prev":"…","key":"…","hmac":"…"}
//! <dir>/audit-000002.jsonl   {"anchor":"audit-000002.jsonl","seq":1,"prev":"…","key":"…","hmac":"…"}
//! ```
//!
//! Every line ends with an HMAC-SHA-256 of the object that it would be without it, and repeats that of the line before as
//! `prev`: a chain through all files. The key is a file elsewhere; `key` tells it from others. A file starts with an anchor that says where the one before ended, so that the oldest
//! can be removed and the rest still be verified.
//!
//! A writer of the files who cannot read the key can neither change a line nor write a new log, but can cut off the newest
//! lines, or remove all of them; to notice that, keep [`Verdict::last_seq`] and [`Verdict::last_hash`] somewhere else now and
//! then. The key lets its reader, such as root of the machine, write anything.
//!
//! Logs from before there were keys have a SHA-256 called `hash` in each line. Such a log is continued: its first sealed line
//! holds all lines before it.

mod entry;
mod files;
mod key;
mod line;
mod resume;
mod verify;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use box_wire::Invalid;
use tokio::sync::{mpsc, oneshot};

use crate::{Error, Result};
use writer::{Order, Writer};

pub use entry::{AuditEntry, CommandText, Outcome};
pub use verify::{Problem, Verdict, verify};

/// Entries that can wait for the writer. Whoever appends waits when there are more.
const QUEUE_ENTRIES_MAX: usize = 1024;

/// Smallest size of a file before the next one is begun.
const FILE_BYTES_MIN: u64 = 1024;

/// What an operator can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditOptions {
    /// Size from which on a new file is begun. One line is never divided.
    pub file_bytes_max: u64,
    /// Most files that are kept; the oldest go first.
    pub files_max: usize,
    /// How commands are written down.
    pub commands: CommandText,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self { file_bytes_max: 64 << 20, files_max: 16, commands: CommandText::Hash }
    }
}

impl AuditOptions {
    fn validate(&self) -> Result<(), Invalid> {
        if self.file_bytes_max < FILE_BYTES_MIN {
            let allowed = format!("at least {FILE_BYTES_MIN} bytes");
            return Err(Invalid::new("file_bytes_max", self.file_bytes_max, allowed));
        }
        if self.files_max == 0 {
            return Err(Invalid::new("files_max", self.files_max, "at least 1"));
        }
        Ok(())
    }
}

/// What went wrong last and is not put right yet. Shared with the writer.
type FileError = Arc<Mutex<Option<String>>>;

/// A log that is being written. Dropping it waits until everything that was appended is in the file.
#[derive(Debug)]
pub struct AuditLog {
    commands: CommandText,
    error: FileError,
    /// Taken only by `drop`: without a sender the writer comes to its end.
    queue: Option<mpsc::Sender<Order>>,
    writer: Option<JoinHandle<()>>,
}

impl AuditLog {
    /// Goes on with the log in a directory, or begins one. A line that a crash left half-written is cut off, and an entry
    /// says so. One process at a time can have a log open.
    ///
    /// Lines are sealed with the key in `key_file`, which is made if there is none.
    pub fn open(dir: &Path, key_file: &Path, options: AuditOptions) -> Result<Self> {
        options.validate()?;
        let error = FileError::default();
        let (queue, inbox) = mpsc::channel(QUEUE_ENTRIES_MAX);
        let writer = Writer::open(dir, key_file, options, Arc::clone(&error))?;
        let writer = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(inbox))
            .map_err(|error| Error::io("starting the thread that writes the audit log", error))?;
        Ok(Self { commands: options.commands, error, queue: Some(queue), writer: Some(writer) })
    }

    /// Adds an entry. Waits for room in the queue, never for the disk.
    ///
    /// An error says that the log could not be written when it was last tried. The entry is tried all the same, and once the log can be written again an entry tells how many are missing.
    pub async fn append(&self, entry: AuditEntry) -> Result<()> {
        self.send(Order::Append(Box::new(entry.bounded(self.commands)))).await?;
        self.file_error().map_or(Ok(()), |error| Err(not_written(&error)))
    }

    /// Adds an entry and waits until it is written, for callers that must not act unrecorded. Does not wait for a sync of the disk.
    pub async fn record(&self, entry: AuditEntry) -> Result<()> {
        let unrecorded = |reason: String| Error::Unrecorded { reason };
        let (answer, answered) = oneshot::channel();
        self.send(Order::Record(Box::new(entry.bounded(self.commands)), answer)).await?;
        let outcome = answered.await.map_err(|_| unrecorded("its writer has ended".to_owned()))?;
        outcome.map_err(unrecorded)
    }

    /// Why the log cannot be written, as far as the last entry tells.
    pub fn file_error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tries again to write what is missing. While the log cannot be written no command starts, so no entry would trigger another try.
    pub async fn retry(&self) {
        // Without a writer there is nothing to try.
        drop(self.send(Order::Retry).await);
    }

    /// Waits until everything that was appended is on the disk.
    pub async fn flush(&self) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        self.send(Order::Flush(answer)).await?;
        let outcome = answered.await.map_err(|_| not_written("its writer has ended"))?;
        outcome.map_err(|error| not_written(&error))
    }

    async fn send(&self, order: Order) -> Result<()> {
        let ended = || not_written("its writer has ended");
        self.queue.as_ref().ok_or_else(ended)?.send(order).await.map_err(|_| ended())
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        drop(self.queue.take());
        if self.writer.take().is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the writer of the audit log panicked; the last entries may be missing");
        }
    }
}

fn not_written(error: &str) -> Error {
    Error::Unavailable {
        what: "the audit log".to_owned(),
        reason: format!("it cannot be written, and nothing runs that it cannot record: {error}"),
        fix: "an operator makes room on the disk, or makes the directory of the log writable".to_owned(),
    }
}
