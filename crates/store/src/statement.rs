//! A change as one statement with its values, made where the change comes from: the writer only executes.

use std::fmt;

use box_core::store::{
    Change, ExecRow, LastToken, McpApprovalsRow, McpServerRow, ProcessRow, SandboxRow, SessionRow, TemplateRow,
    VolumeRow,
};
use box_core::token::TokenRow;
use box_core::{Error, Result};
use box_wire::Invalid;
use rusqlite::{Connection, params_from_iter};

use crate::record::{Record, keys_in_session, keys_of, mcp_server_keys, session_keys, template_keys};

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
    sql: &'static str,
    keys: Vec<String>,
    values: Vec<String>,
}

impl Statement {
    /// What a change means.
    pub(crate) fn of(change: &Change) -> Result<Self> {
        match change {
            Change::PutSession(row) => Self::put(row.as_ref()),
            Change::PutExec(row) => Self::put(row.as_ref()),
            Change::PutProcess(row) => Self::put(row.as_ref()),
            Change::PutToken(row) => Self::put(row.as_ref()),
            Change::PutMcpServer(row) => Self::put(row.as_ref()),
            Change::PutMcpApprovals(row) => Self::put(row.as_ref()),
            Change::PutSandbox(row) => Self::put(row.as_ref()),
            Change::PutVolume(row) => Self::put(row.as_ref()),
            Change::PutTemplate(row) => Self::put(row.as_ref()),
            // Execs and processes go with their session: the schema says so.
            Change::DeleteSession(key) => Ok(Self::delete(
                SessionRow::KIND,
                "DELETE FROM sessions WHERE tenant = ?1 AND id = ?2",
                session_keys(key),
            )),
            Change::DeleteExec(key, id) => Ok(Self::delete(
                ExecRow::KIND,
                "DELETE FROM execs WHERE tenant = ?1 AND session = ?2 AND id = ?3",
                keys_in_session(key, id.as_str()),
            )),
            Change::DeleteProcess(key, id) => Ok(Self::delete(
                ProcessRow::KIND,
                "DELETE FROM processes WHERE tenant = ?1 AND session = ?2 AND id = ?3",
                keys_in_session(key, id.as_str()),
            )),
            Change::DeleteTokens(ids, last) => {
                let sql = match last {
                    LastToken::Deleted => DELETE_TOKENS,
                    LastToken::Kept => DELETE_TOKENS_BUT_THE_LAST,
                };
                Ok(Self::delete(TokenRow::KIND, sql, vec![serde_json::Value::from(ids.as_slice()).to_string()]))
            }
            Change::DeleteMcpServer(key) => Ok(Self::delete(
                McpServerRow::KIND,
                "DELETE FROM mcp_servers WHERE tenant = ?1 AND name = ?2",
                mcp_server_keys(key),
            )),
            Change::DeleteMcpApprovals(key) => Ok(Self::delete(
                McpApprovalsRow::KIND,
                "DELETE FROM mcp_approvals WHERE tenant = ?1 AND name = ?2",
                mcp_server_keys(key),
            )),
            Change::DeleteSandbox(key) => Ok(Self::delete(
                SandboxRow::KIND,
                "DELETE FROM sandboxes WHERE tenant = ?1 AND id = ?2",
                session_keys(key),
            )),
            Change::DeleteVolume(tenant, id) => Ok(Self::delete(
                VolumeRow::KIND,
                "DELETE FROM volumes WHERE tenant = ?1 AND id = ?2",
                keys_of(tenant, id),
            )),
            Change::DeleteTemplate(key) => Ok(Self::delete(
                TemplateRow::KIND,
                "DELETE FROM templates WHERE tenant = ?1 AND id = ?2",
                template_keys(key),
            )),
        }
    }

    fn put<R: Record>(record: &R) -> Result<Self> {
        let failed = |error: serde_json::Error| Error::io(format!("writing down a {}", R::KIND), error);
        let row = serde_json::to_string(record).map_err(failed)?;
        if row.len() > ROW_BYTES_MAX {
            let allowed = format!("at most {ROW_BYTES_MAX} bytes as JSON");
            return Err(Invalid::new(R::KIND, row.len(), allowed).into());
        }
        let values = record.label().into_iter().chain([row]).collect();
        Ok(Self { verb: "remembering", kind: R::KIND, sql: R::PUT, keys: record.keys(), values })
    }

    fn delete(kind: &'static str, sql: &'static str, keys: Vec<String>) -> Self {
        Self { verb: "forgetting", kind, sql, keys, values: Vec::new() }
    }

    pub(crate) fn execute(&self, connection: &Connection) -> rusqlite::Result<()> {
        let values = params_from_iter(self.keys.iter().chain(&self.values));
        connection.prepare_cached(self.sql)?.execute(values)?;
        Ok(())
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.verb, self.kind, self.keys.join(" / "))
    }
}
