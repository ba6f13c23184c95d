//! Connections to the file: how they are set, and which files are not opened.

use std::path::Path;
use std::time::Duration;

use box_core::{Error, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::file::{self, refused};
use crate::{failed, migrate};

/// How long one process waits for the other's transaction. Ours take milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a file that [`open_checked`] has looked at.
///
/// With a write-ahead log and `synchronous=NORMAL`, what is committed survives the death of every process. The last moments
/// before a power cut may be forgotten, together with all boxes.
pub(crate) fn open(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let set = || -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        // Environments can hold secrets: what was deleted is overwritten.
        connection.pragma_update(None, "secure_delete", true)?;
        Ok(connection)
    };
    set().map_err(|error| explain(path, error))
}

/// Opens a file that may be anything, and brings it to the newest schema.
pub(crate) fn open_checked(path: &Path, migrations: &[&str]) -> Result<Connection> {
    let _turn = file::take_turn(path)?;
    let mut connection = open(path)?;
    // Looked at before anything is written: a file that is refused stays as it was.
    check_sound(path, &connection)?;
    migrate::check_version(path, &connection, migrations.len())?;
    use_write_ahead_log(path, &connection)?;
    migrate::bring_forward(path, &mut connection, migrations)?;
    Ok(connection)
}

/// Refuses a damaged file: a few rows that are silently missing would be worse than no start.
fn check_sound(path: &Path, connection: &Connection) -> Result<()> {
    let verdict = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    match verdict.map_err(|error| explain(path, error))? {
        verdict if verdict == "ok" => Ok(()),
        verdict => Err(damaged(path, &verdict)),
    }
}

/// Any statement can be the one that finds the damage.
fn explain(path: &Path, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => damaged(path, &error.to_string()),
        _ => failed(&format!("opening the store {}", path.display()))(error),
    }
}

fn damaged(path: &Path, what: &str) -> Error {
    let fix = "put a copy of it from before in its place, or move it away to start with an empty one";
    refused(path, &format!("it is damaged or not a database ({what})"), fix)
}

fn use_write_ahead_log(path: &Path, connection: &Connection) -> Result<()> {
    let mode = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
    let mode = mode.map_err(|error| explain(path, error))?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(refused(path, "its file system cannot keep a write-ahead log", "keep it on a local file system"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::file::prepare;
    use crate::migrate::MIGRATIONS;

    fn database() -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = prepare(&directory.path().join("store.db")).unwrap();
        (directory, path)
    }

    #[test]
    fn the_write_ahead_log_is_as_private_as_the_file() {
        let (_directory, path) = database();
        let connection = open_checked(&path, MIGRATIONS).unwrap();
        connection.execute("INSERT INTO meta VALUES ('a', 'b')", []).unwrap();
        for suffix in ["-wal", "-shm"] {
            let beside = format!("{}{suffix}", path.display());
            let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(beside).unwrap());
            assert_eq!(mode & 0o777, 0o600, "{suffix}");
        }
    }

    #[test]
    fn a_damaged_file_is_refused_and_left_as_it_is() {
        let (_directory, path) = database();
        let connection = open_checked(&path, MIGRATIONS).unwrap();
        for number in 0..1000 {
            connection.execute("INSERT INTO meta VALUES (?1, 'text')", [number.to_string()]).unwrap();
        }
        drop(connection);
        let whole = fs::read(&path).unwrap();
        let mut scrambled = whole.clone();
        scrambled[4096..].fill(0xa5);
        let damages = [b"not a database, but long enough to be looked at".to_vec(), whole[..8192].to_vec(), scrambled];
        for damaged in damages {
            fs::write(&path, &damaged).unwrap();
            let error = open_checked(&path, MIGRATIONS).unwrap_err();
            assert_eq!(error.code(), "unavailable", "{error}");
            assert!(error.to_string().contains("damaged"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), damaged);
        }
        fs::write(&path, &whole).unwrap();
        assert!(open_checked(&path, MIGRATIONS).is_ok());
    }
}
