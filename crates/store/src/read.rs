//! Reads the file. A row that cannot be read is left out and named in the log, so that the server still starts. The owner of
//! an unreadable session learns that it is lost.

use std::collections::HashSet;

use box_core::store::{
    ExecRow, Loaded, McpApprovalsRow, McpServerRow, ProcessRow, SandboxRow, SessionKey, SessionRow, TemplateRow,
    VolumeRow,
};
use box_core::token::TokenRow;
use box_core::{Error, Result};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::failed;
use crate::record::Record;
use crate::statement::ROW_BYTES_MAX;

/// Characters of an instance's name.
const INSTANCE_ID_CHARS: usize = 16;

/// Everything that is remembered of sessions, as of one moment.
pub(crate) fn load(connection: &mut Connection) -> Result<Loaded> {
    let transaction = connection.transaction().map_err(failed("reading the store"))?;
    let (sessions, bad) = read_all::<SessionRow>(&transaction)?;
    let unreadable =
        bad.into_iter().filter_map(|Unreadable { keys, reason }| Some((session_key(&keys)?, reason))).collect();
    let mut execs: Vec<ExecRow> = list(&transaction)?;
    let mut processes: Vec<ProcessRow> = list(&transaction)?;
    // What belongs to a session that could not be read is left out with it.
    let known: HashSet<&SessionKey> = sessions.iter().map(|session| &session.key).collect();
    execs.retain(|exec| known.contains(&exec.key));
    processes.retain(|process| known.contains(&process.key));
    Ok(Loaded { sessions, unreadable, execs, processes })
}

/// All tokens, those that another process has just added among them.
pub(crate) fn tokens(connection: &mut Connection) -> Result<Vec<TokenRow>> {
    list(connection)
}

/// All definitions of MCP servers.
pub(crate) fn mcp_servers(connection: &mut Connection) -> Result<Vec<McpServerRow>> {
    list(connection)
}

/// The approved tools of all MCP servers.
pub(crate) fn mcp_approvals(connection: &mut Connection) -> Result<Vec<McpApprovalsRow>> {
    list(connection)
}

/// What is remembered of all sandboxes.
pub(crate) fn sandboxes(connection: &mut Connection) -> Result<Vec<SandboxRow>> {
    list(connection)
}

/// All volumes.
pub(crate) fn volumes(connection: &mut Connection) -> Result<Vec<VolumeRow>> {
    list(connection)
}

/// All saved boxes.
pub(crate) fn templates(connection: &mut Connection) -> Result<Vec<TemplateRow>> {
    list(connection)
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

/// A row that cannot be read: its keys as the columns have them, and why.
struct Unreadable {
    keys: Vec<String>,
    reason: String,
}

fn session_key(keys: &[String]) -> Option<SessionKey> {
    let [tenant, id] = keys else { return None };
    Some(SessionKey { tenant: tenant.parse().ok()?, id: id.parse().ok()? })
}

fn list<R: Record>(connection: &Connection) -> Result<Vec<R>> {
    Ok(read_all(connection)?.0)
}

fn read_all<R: Record>(connection: &Connection) -> Result<(Vec<R>, Vec<Unreadable>)> {
    let read = || -> rusqlite::Result<(Vec<R>, Vec<Unreadable>)> {
        let mut statement = connection.prepare_cached(R::LIST)?;
        let mut rows = statement.query([])?;
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next()? {
            match read_row(row)? {
                Ok(record) => good.push(record),
                Err(unreadable) => bad.push(unreadable),
            }
        }
        Ok((good, bad))
    };
    read().map_err(failed(&format!("reading {} rows from the store", R::KIND)))
}

/// Reads a row whose last column is JSON and whose other columns are its keys.
fn read_row<R: Record>(row: &Row<'_>) -> rusqlite::Result<Result<R, Unreadable>> {
    let last = row.as_ref().column_count() - 1;
    let keys = (0..last).map(|index| row.get_ref(index).map(text)).collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(parse::<R>(row.get_ref(last)?, &keys).map_err(|reason| {
        tracing::warn!(reason, "{} {keys:?} cannot be read from the store and is left out", R::KIND);
        Unreadable { keys, reason }
    }))
}

fn parse<R: Record>(json: ValueRef<'_>, keys: &[String]) -> Result<R, String> {
    let bytes = json.as_bytes().map_err(|error| error.to_string())?;
    if bytes.len() > ROW_BYTES_MAX {
        return Err(format!("{} bytes are more than a row can have", bytes.len()));
    }
    let record: R = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if record.keys() != keys {
        return Err("it says that it is another one than its columns say".to_owned());
    }
    Ok(record)
}

/// A key for comparing and for the log, whatever the file holds there.
fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    }
}
