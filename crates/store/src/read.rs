//! Reads the file.

use box_core::store::{StoredRow, Table};
use box_core::{Error, Result};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::failed;
use crate::statement::ROW_BYTES_MAX;

/// Characters of an instance's name.
const INSTANCE_ID_CHARS: usize = 16;

/// The rows of some tables, as of one moment.
pub(crate) fn tables(connection: &mut Connection, tables: &[&'static Table]) -> Result<Vec<Vec<StoredRow>>> {
    let transaction = connection.transaction().map_err(failed("reading the store"))?;
    let read = |table: &&'static Table| {
        let context = format!("reading {} rows from the store", table.kind);
        rows(&transaction, table).map_err(failed(&context))
    };
    tables.iter().map(read).collect()
}

/// The name under which boxes of this state are known. Whoever asks first makes it.
pub(crate) fn instance_id(connection: &mut Connection) -> Result<String> {
    let context = failed("reading the name of the instance");
    let find = "SELECT value FROM meta WHERE key = 'instance_id'";
    // The insert takes turns with other processes; once the name is there, nobody has to wait for it.
    let make = "INSERT OR IGNORE INTO meta (key, value) VALUES ('instance_id', lower(hex(randomblob(8))))";
    let read = |connection: &Connection| connection.query_row(find, [], |row| row.get::<_, String>(0));
    let found = match read(connection).optional().map_err(&context)? {
        Some(found) => found,
        None => connection.execute(make, []).and_then(|_| read(connection)).map_err(&context)?,
    };
    check_instance_id(found)
}

/// The name becomes a part of names of directories and cgroups.
fn check_instance_id(text: String) -> Result<String> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() == INSTANCE_ID_CHARS && text.bytes().all(is_digit) {
        return Ok(text);
    }
    Err(Error::Unavailable {
        what: "the name of this instance".to_owned(),
        reason: format!("the store holds {text:?}, which was not made by strongbox"),
        fix: format!("set it to the {INSTANCE_ID_CHARS} hexadecimal digits that it was"),
    })
}

fn rows(connection: &Connection, table: &Table) -> rusqlite::Result<Vec<StoredRow>> {
    let list = format!("SELECT {}, row FROM {} ORDER BY rowid", table.keys.join(", "), table.name);
    let mut statement = connection.prepare_cached(&list)?;
    let rows = statement.query_map([], |row| read_row(row, table.keys.len()))?;
    rows.collect()
}

/// Reads a row whose last column is JSON and whose other columns are its keys.
fn read_row(row: &Row<'_>, last: usize) -> rusqlite::Result<StoredRow> {
    let keys = (0..last).map(|index| row.get_ref(index).map(text)).collect::<rusqlite::Result<_>>()?;
    let json = match row.get_ref(last)?.as_bytes() {
        Ok(bytes) if bytes.len() > ROW_BYTES_MAX => Err(format!("{} bytes are more than a row can have", bytes.len())),
        Ok(bytes) => Ok(bytes.to_owned()),
        Err(error) => Err(error.to_string()),
    };
    Ok(StoredRow { keys, json })
}

/// A key for comparing and for the log, whatever the file holds there.
fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    }
}
