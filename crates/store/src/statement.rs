//! A change as one statement with its values, made where the change comes from: the writer only executes.

use std::fmt;

use box_core::Result;
use box_core::store::{Change, Effect, LastToken, Row, Table};
use box_core::token::TokenRow;
use box_wire::Invalid;
use rusqlite::{Connection, params_from_iter};

/// Largest row. What holds the most is an environment; one that passed every other check stays far below.
pub(crate) const ROW_BYTES_MAX: usize = 16 << 20;

/// Deletes the tokens of a JSON list of ids.
const DELETE_TOKENS: &str = "DELETE FROM tokens WHERE id IN (SELECT value FROM json_each(?1))";

/// The same, unless no other token is left. One statement, so that two deletions at once cannot take one half each.
const DELETE_TOKENS_BUT_THE_LAST: &str = "DELETE FROM tokens WHERE id IN (SELECT value FROM json_each(?1)) \
     AND EXISTS (SELECT 1 FROM tokens AS other WHERE other.id NOT IN (SELECT value FROM json_each(?1)))";

/// One statement with its values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    verb: &'static str,
    kind: &'static str,
    sql: String,
    keys: Vec<String>,
    values: Vec<String>,
}

impl Statement {
    /// What a change means.
    pub(crate) fn of(change: &Change) -> Result<Self> {
        let delete =
            |table: &Table, sql, keys| Self { verb: "forgetting", kind: table.kind, sql, keys, values: Vec::new() };
        Ok(match change.effect()? {
            Effect::Put { table, keys, label, json } => {
                if json.len() > ROW_BYTES_MAX {
                    let allowed = format!("at most {ROW_BYTES_MAX} bytes as JSON");
                    return Err(Invalid::new(table.kind, json.len(), allowed).into());
                }
                let values = label.into_iter().chain([json]).collect();
                Self { verb: "remembering", kind: table.kind, sql: put(table), keys, values }
            }
            Effect::Delete { table, keys } => delete(table, delete_one(table), keys),
            Effect::DeleteTokens { ids, last } => {
                let sql = match last {
                    LastToken::Deleted => DELETE_TOKENS,
                    LastToken::Kept => DELETE_TOKENS_BUT_THE_LAST,
                };
                delete(TokenRow::TABLE, sql.to_owned(), vec![serde_json::Value::from(ids).to_string()])
            }
        })
    }

    pub(crate) fn execute(&self, connection: &Connection) -> rusqlite::Result<()> {
        let values = params_from_iter(self.keys.iter().chain(&self.values));
        connection.prepare_cached(&self.sql)?.execute(values)?;
        Ok(())
    }
}

/// Never REPLACE, which would delete a session for a moment and take its execs along.
fn put(table: &Table) -> String {
    let values = || table.label.iter().chain([&"row"]);
    let columns: Vec<&str> = table.keys.iter().chain(values()).copied().collect();
    let numbers: Vec<String> = (1..=columns.len()).map(|number| format!("?{number}")).collect();
    let updates: Vec<String> = values().map(|column| format!("{column} = excluded.{column}")).collect();
    // A session that is gone gets no rows any more: this one may have been queued before it went.
    let condition =
        if table.is_in_session() { "EXISTS (SELECT 1 FROM sessions WHERE tenant = ?1 AND id = ?2)" } else { "true" };
    let (name, columns, numbers) = (table.name, columns.join(", "), numbers.join(", "));
    let updates = updates.join(", ");
    format!("INSERT INTO {name} ({columns}) SELECT {numbers} WHERE {condition} ON CONFLICT DO UPDATE SET {updates}")
}

/// What is in a session goes with it: the schema says so.
fn delete_one(table: &Table) -> String {
    let is = |(number, column): (usize, &&str)| format!("{column} = ?{number}");
    let conditions: Vec<String> = (1..).zip(table.keys).map(is).collect();
    format!("DELETE FROM {} WHERE {}", table.name, conditions.join(" AND "))
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.verb, self.kind, self.keys.join(" / "))
    }
}
