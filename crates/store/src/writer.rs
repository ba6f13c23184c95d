//! The one thread that writes. Whatever waits is taken into one transaction, so that many small changes cost little.

use box_core::{Error, Result};
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use crate::statement::Statement;

/// Changes in one transaction. More would make whoever waits for the first wait for all of them.
const BATCH_CHANGES_MAX: usize = 256;

/// A change that waits to be written.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) statement: Statement,
    /// Who waits until it is written, if anybody does.
    pub(crate) answer: Option<oneshot::Sender<Result<()>>>,
}

/// What the thread owns.
#[derive(Debug)]
pub(crate) struct Writer {
    connection: Connection,
    inbox: mpsc::Receiver<Entry>,
    /// How many transactions were begun.
    transactions: u64,
}

impl Writer {
    pub(crate) fn new(connection: Connection, inbox: mpsc::Receiver<Entry>) -> Self {
        Self { connection, inbox, transactions: 0 }
    }

    /// Writes until the last sender is gone and nothing waits any more. Returns how many transactions that took.
    pub(crate) fn run(mut self) -> u64 {
        let mut batch = Vec::new();
        while self.inbox.blocking_recv_many(&mut batch, BATCH_CHANGES_MAX) > 0 {
            self.settle(std::mem::take(&mut batch));
        }
        self.transactions
    }

    fn settle(&mut self, batch: Vec<Entry>) {
        match self.commit(&batch) {
            // Locked by another process for longer than we wait is no fault of a change: asking once more for each would
            // only take that many times as long.
            Err(error) if batch.len() > 1 && error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) => {
                tracing::warn!(%error, store.changes = batch.len(), "a transaction failed; trying its changes one by one");
                self.settle_one_by_one(batch);
            }
            Err(error) => batch.into_iter().for_each(|entry| entry.tell(Err(&error))),
            Ok(()) => batch.into_iter().for_each(|entry| entry.tell(Ok(()))),
        }
    }

    /// One change that cannot be written takes no other with it.
    fn settle_one_by_one(&mut self, batch: Vec<Entry>) {
        for entry in batch {
            let outcome = self.commit(std::slice::from_ref(&entry));
            entry.tell(outcome.as_ref().copied());
        }
    }

    fn commit(&mut self, batch: &[Entry]) -> rusqlite::Result<()> {
        self.transactions += 1;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for entry in batch {
            entry.statement.execute(&transaction)?;
        }
        transaction.commit()
    }
}

impl Entry {
    fn tell(self, outcome: Result<(), &rusqlite::Error>) {
        match (self.answer, outcome) {
            // Whoever waited may have gone away; the change stands all the same.
            (Some(answer), outcome) => drop(answer.send(outcome.map_err(|error| explain(&self.statement, error)))),
            (None, Err(error)) => tracing::error!(%error, "{} failed; a restart will not know of it", self.statement),
            (None, Ok(())) => {}
        }
    }
}

fn explain(statement: &Statement, error: &rusqlite::Error) -> Error {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => std::io::ErrorKind::StorageFull,
        _ => std::io::ErrorKind::Other,
    };
    Error::io(statement.to_string(), std::io::Error::new(kind, error.to_string()))
}

#[cfg(test)]
mod tests {
    use box_core::session::SessionState;
    use box_core::store::{Change, ExecRow, ProcessRow, Row, SessionRow};

    use super::*;
    use crate::rows::{exec, key, mcp_approvals, mcp_key, mcp_server, process, sandbox, session, token, volume};
    use crate::{connection, file, migrate, read};

    #[test]
    fn ten_thousand_changes_that_wait_take_forty_transactions() {
        let directory = tempfile::tempdir().unwrap();
        let path = file::prepare(&directory.path().join("store.db")).unwrap();
        let connection = connection::open_checked(&path, migrate::MIGRATIONS).unwrap();
        let (queue, inbox) = mpsc::channel(10_000);
        let key = key("acme", "a");
        let others = [
            Change::PutSession(Box::new(session(&key, SessionState::Running))),
            Change::PutProcess(Box::new(process(&key, "p", 0))),
            Change::PutToken(Box::new(token("a1", "name"))),
            Change::PutMcpServer(Box::new(mcp_server(&mcp_key("acme", "time"), 0))),
            Change::PutMcpApprovals(Box::new(mcp_approvals(&mcp_key("acme", "time"), 0))),
            Change::PutSandbox(Box::new(sandbox(&key, 0))),
            Change::PutVolume(Box::new(volume(&key, "data"))),
        ];
        let execs =
            (0..10_000 - others.len()).map(|number| Change::PutExec(Box::new(exec(&key, &number.to_string(), 0))));
        for change in others.into_iter().chain(execs) {
            let statement = Statement::of(&change).unwrap();
            queue.try_send(Entry { statement, answer: None }).unwrap();
        }
        drop(queue);
        assert_eq!(Writer::new(connection, inbox).run(), 40, "10,000 in batches of 256");
        let tables = [SessionRow::TABLE, ExecRow::TABLE, ProcessRow::TABLE];
        let rows = read::tables(&mut connection::open(&path).unwrap(), &tables).unwrap();
        assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [1, 9_993, 1]);
    }
}
