//! How an older file becomes a newer one: numbered steps, each in one transaction with the number that says it was done.

use std::path::Path;

use box_core::Result;
use rusqlite::{Connection, TransactionBehavior};

use crate::failed;
use crate::file::refused;

/// All steps, oldest first. A step that was released is never changed; a later one is added.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/001_start.sql"),
    include_str!("../migrations/002_token_profile.sql"),
    include_str!("../migrations/003_mcp_servers.sql"),
    include_str!("../migrations/004_sandboxes.sql"),
    include_str!("../migrations/005_templates.sql"),
    include_str!("../migrations/006_volumes.sql"),
    include_str!("../migrations/007_token_session.sql"),
    include_str!("../migrations/008_mcp_approvals.sql"),
];

/// Refuses a file that these steps cannot have made.
pub(crate) fn check_version(path: &Path, connection: &Connection, newest: usize) -> Result<()> {
    let (version, tables) = version_and_tables(connection).map_err(failed("reading the version of the store"))?;
    if version > newest {
        let reason = format!("its schema is {version}, and this program knows {newest} at most");
        return Err(refused(path, &reason, "use the version of strongbox that made it, or a later one"));
    }
    if version == 0 && tables > 0 {
        return Err(refused(path, "it is a database of another program", "choose another path"));
    }
    Ok(())
}

/// Both as of one moment: another process may be making the tables just now.
fn version_and_tables(connection: &Connection) -> rusqlite::Result<(usize, i64)> {
    let transaction = connection.unchecked_transaction()?;
    let tables = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok((version(&transaction)?, tables))
}

/// Applies every step that was not applied yet.
pub(crate) fn bring_forward(path: &Path, connection: &mut Connection, migrations: &[&str]) -> Result<()> {
    let context = failed("bringing the store to the newest schema");
    while version(connection).map_err(&context)? < migrations.len() {
        apply_next(connection, migrations).map_err(&context)?;
    }
    // Another process may have done it meanwhile, and be a newer one than this.
    check_version(path, connection, migrations.len())
}

fn apply_next(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Read again: until the lock was ours, another process may have taken this step.
    let version = version(&transaction)?;
    if let Some(step) = migrations.get(version) {
        transaction.execute_batch(step)?;
        transaction.execute_batch(&format!("PRAGMA user_version = {}", version + 1))?;
    }
    transaction.commit()
}

/// How many steps a file has behind it. A negative number is none of ours, and counts as one that is too new.
fn version(connection: &Connection) -> rusqlite::Result<usize> {
    let number: isize = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::open_checked;
    use crate::file::prepare;

    const FIRST: &str = "CREATE TABLE fruit (name TEXT NOT NULL) STRICT; INSERT INTO fruit VALUES ('apple');";
    const SECOND: &str = "ALTER TABLE fruit ADD COLUMN colour TEXT; UPDATE fruit SET colour = 'red';";
    const BROKEN: &str = "INSERT INTO fruit VALUES ('pear', 'green'); INSERT INTO nothing VALUES (1);";

    fn database() -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = prepare(&directory.path().join("store.db")).unwrap();
        (directory, path)
    }

    fn fruit(connection: &Connection) -> Vec<(String, String)> {
        let mut statement = connection.prepare("SELECT name, colour FROM fruit").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    #[test]
    fn an_older_file_is_brought_forward_with_what_is_in_it() {
        let (_directory, path) = database();
        let connection = open_checked(&path, &[FIRST]).unwrap();
        assert_eq!(version(&connection).unwrap(), 1);
        drop(connection);
        for _again in 0..2 {
            let connection = open_checked(&path, &[FIRST, SECOND]).unwrap();
            assert_eq!(version(&connection).unwrap(), 2);
            assert_eq!(fruit(&connection), [("apple".to_owned(), "red".to_owned())]);
        }
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let (_directory, path) = database();
        assert!(open_checked(&path, &[FIRST, SECOND, BROKEN]).is_err());
        let connection = open_checked(&path, &[FIRST, SECOND]).unwrap();
        assert_eq!(version(&connection).unwrap(), 2);
        assert_eq!(fruit(&connection).len(), 1);
    }

    #[test]
    fn a_newer_file_is_refused_with_both_versions() {
        let (_directory, path) = database();
        drop(open_checked(&path, &[FIRST, SECOND]).unwrap());
        let before = std::fs::read(&path).unwrap();
        let error = open_checked(&path, &[FIRST]).unwrap_err();
        assert_eq!(error.code(), "unavailable");
        assert!(error.to_string().contains("schema is 2") && error.to_string().contains("knows 1"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_database_of_another_program_is_refused() {
        let (_directory, path) = database();
        Connection::open(&path).unwrap().execute_batch(FIRST).unwrap();
        let error = open_checked(&path, MIGRATIONS).unwrap_err();
        assert!(error.to_string().contains("another program"), "{error}");
    }

    #[test]
    fn many_that_open_a_new_file_at_once_all_succeed() {
        let (_directory, path) = database();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let connection = open_checked(&path, MIGRATIONS).unwrap();
                    assert_eq!(version(&connection).unwrap(), MIGRATIONS.len());
                });
            }
        });
    }
}
