//! The embedded memory of a server: SQLite behind [`box_core::Store`].
//!
//! One thread owns the connection that writes and takes whatever waits into one transaction; a second connection reads. The
//! file can be opened by two processes at once, so that a token can be added while the server runs.

mod connection;
mod file;
mod migrate;
mod read;
#[cfg(test)]
#[path = "../tests/suite/rows.rs"]
mod rows;
mod statement;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use box_core::store::{Change, StoredRow, Table, Wait};
use box_core::{Error, Result, Store};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use statement::Statement;
use writer::{Entry, Writer};

/// Changes that can wait for the writer. A writer of changes waits when there are more.
const QUEUE_CHANGES_MAX: usize = 4096;

/// A memory in one file. Dropping it waits until everything that was queued is written.
#[derive(Debug)]
pub struct SqliteStore {
    reader: Arc<Mutex<Connection>>,
    /// Taken only by `drop`: without a sender the writer comes to its end.
    queue: Option<mpsc::Sender<Entry>>,
    /// Ends with the number of its transactions.
    writer: Option<JoinHandle<u64>>,
}

impl SqliteStore {
    /// Opens a memory, making the file if need be, in a directory that exists and belongs to nobody else.
    ///
    /// A file that is damaged, that a later version of the program made, or that others can write is refused as it is.
    pub fn open(path: &Path) -> Result<Self> {
        let path = file::prepare(path)?;
        let connection = connection::open_checked(&path, migrate::MIGRATIONS)?;
        let reader = connection::open(&path)?;
        let (queue, inbox) = mpsc::channel(QUEUE_CHANGES_MAX);
        let writer = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || Writer::new(connection, inbox).run())
            .map_err(|error| Error::io("starting the thread that writes the store", error))?;
        Ok(Self { reader: Arc::new(Mutex::new(reader)), queue: Some(queue), writer: Some(writer) })
    }

    /// Runs a question on the reading connection, where it may take its time.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let reader = Arc::clone(&self.reader);
        let answer = box_core::tasks::blocking(move || {
            // A panic elsewhere leaves no half-done work here: SQLite rolls an open transaction back.
            let mut connection = reader.lock().unwrap_or_else(PoisonError::into_inner);
            question(&mut connection)
        });
        answer.await.map_err(|error| Error::io("reading the store", std::io::Error::other(error)))?
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn read(&self, tables: &[&'static Table]) -> Result<Vec<Vec<StoredRow>>> {
        let tables = tables.to_vec();
        self.ask(move |connection| read::tables(connection, &tables)).await
    }

    async fn write(&self, change: Change, wait: Wait) -> Result<()> {
        let statement = Statement::of(&change)?;
        let queue = self.queue.as_ref().ok_or_else(writer_gone)?;
        let send = async |answer| queue.send(Entry { statement, answer }).await.map_err(|_| writer_gone());
        match wait {
            Wait::Queued => send(None).await,
            Wait::Committed => {
                let (answer, answered) = oneshot::channel();
                send(Some(answer)).await?;
                answered.await.map_err(|_| writer_gone())?
            }
        }
    }

    async fn instance_id(&self) -> Result<String> {
        self.ask(read::instance_id).await
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        drop(self.queue.take());
        match self.writer.take().map(JoinHandle::join) {
            Some(Ok(transactions)) => tracing::debug!(store.transactions = transactions, "the store is closed"),
            Some(Err(_)) => tracing::error!("the writer of the store panicked; what was queued last may be forgotten"),
            None => {}
        }
    }
}

fn writer_gone() -> Error {
    Error::io("writing the store", std::io::Error::other("its writer has ended; restart the server"))
}

/// Says what was being done when SQLite refused.
fn failed(context: &str) -> impl Fn(rusqlite::Error) -> Error {
    move |error| Error::io(context, std::io::Error::other(error))
}
