//! The kinds of rows: in which table each lies, and by which columns it is found.

use box_core::TenantId;
use box_core::store::{
    ExecRow, McpApprovalsRow, McpServerKey, McpServerRow, ProcessRow, SandboxRow, SessionKey, SessionRow, TemplateKey,
    TemplateRow, VolumeRow,
};
use box_core::token::TokenRow;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A kind of row.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// What one is called in errors and logs.
    const KIND: &'static str;
    /// Adds or changes one. Takes the keys, the label if there is one, and the row.
    const PUT: &'static str;
    /// All of them in the order in which they came. Gives the keys, and the row last.
    const LIST: &'static str;

    /// What tells it from others of its kind.
    fn keys(&self) -> Vec<String>;

    /// A further column, for people who look into the file.
    fn label(&self) -> Option<String>;
}

impl Record for SessionRow {
    const KIND: &'static str = "session";
    // Never REPLACE, which would delete the session for a moment and take its execs along.
    const PUT: &'static str = "INSERT INTO sessions (tenant, id, state, row) VALUES (?1, ?2, ?3, ?4) \
        ON CONFLICT DO UPDATE SET state = excluded.state, row = excluded.row";
    const LIST: &'static str = "SELECT tenant, id, row FROM sessions ORDER BY rowid";

    fn keys(&self) -> Vec<String> {
        session_keys(&self.key)
    }

    fn label(&self) -> Option<String> {
        word(&self.state)
    }
}

impl Record for ExecRow {
    const KIND: &'static str = "exec";
    // A session that is gone gets no execs any more: this may have been queued before it went.
    const PUT: &'static str = "INSERT INTO execs (tenant, session, id, state, row) SELECT ?1, ?2, ?3, ?4, ?5 \
        WHERE EXISTS (SELECT 1 FROM sessions WHERE tenant = ?1 AND id = ?2) \
        ON CONFLICT DO UPDATE SET state = excluded.state, row = excluded.row";
    const LIST: &'static str = "SELECT tenant, session, id, row FROM execs ORDER BY rowid";

    fn keys(&self) -> Vec<String> {
        keys_in_session(&self.key, self.info.exec_id.as_str())
    }

    fn label(&self) -> Option<String> {
        word(&self.info.status)
    }
}

impl Record for ProcessRow {
    const KIND: &'static str = "process";
    const PUT: &'static str = "INSERT INTO processes (tenant, session, id, row) SELECT ?1, ?2, ?3, ?4 \
        WHERE EXISTS (SELECT 1 FROM sessions WHERE tenant = ?1 AND id = ?2) \
        ON CONFLICT DO UPDATE SET row = excluded.row";
    const LIST: &'static str = "SELECT tenant, session, id, row FROM processes ORDER BY rowid";

    fn keys(&self) -> Vec<String> {
        keys_in_session(&self.key, self.call.process_id.as_str())
    }

    fn label(&self) -> Option<String> {
        None
    }
}

impl Record for TokenRow {
    const KIND: &'static str = "token";
    const PUT: &'static str = "INSERT INTO tokens (id, tenant, row) VALUES (?1, ?2, ?3) \
        ON CONFLICT DO UPDATE SET tenant = excluded.tenant, row = excluded.row";
    const LIST: &'static str = "SELECT id, row FROM tokens ORDER BY rowid";

    fn keys(&self) -> Vec<String> {
        vec![self.id.clone()]
    }

    fn label(&self) -> Option<String> {
        Some(self.tenant.as_str().to_owned())
    }
}

impl Record for McpServerRow {
    const KIND: &'static str = "MCP server";
    const PUT: &'static str = "INSERT INTO mcp_servers (tenant, name, state, row) VALUES (?1, ?2, ?3, ?4) \
        ON CONFLICT DO UPDATE SET state = excluded.state, row = excluded.row";
    const LIST: &'static str = "SELECT tenant, name, row FROM mcp_servers ORDER BY rowid";

    fn keys(&self) -> Vec<String> {
        mcp_server_keys(&self.key)
    }

    fn label(&self) -> Option<String> {
        Some(if self.enabled { "enabled" } else { "disabled" }.to_owned())
    }
}

impl Record for McpApprovalsRow {
    const KIND: &'static str = "list of approved tools";
    const PUT: &'static str = "INSERT INTO mcp_approvals (tenant, name, row) VALUES (?1, ?2, ?3) \
        ON CONFLICT DO UPDATE SET row = excluded.row";
    const LIST: &'static str = "SELECT tenant, name, row FROM mcp_approvals ORDER BY rowid";

    fn keys(&self) -> Vec<String> {
        mcp_server_keys(&self.key)
    }

    fn label(&self) -> Option<String> {
        None
    }
}

impl Record for SandboxRow {
    const KIND: &'static str = "sandbox";
    const PUT: &'static str = "INSERT INTO sandboxes (tenant, id, template, row) VALUES (?1, ?2, ?3, ?4) \
        ON CONFLICT DO UPDATE SET template = excluded.template, row = excluded.row";
    const LIST: &'static str = "SELECT tenant, id, row FROM sandboxes ORDER BY rowid";

    fn keys(&self) -> Vec<String> {
        session_keys(&self.key)
    }

    fn label(&self) -> Option<String> {
        Some(self.template.clone())
    }
}

impl Record for VolumeRow {
    const KIND: &'static str = "volume";
    const PUT: &'static str = "INSERT INTO volumes (tenant, id, name, row) VALUES (?1, ?2, ?3, ?4) \
        ON CONFLICT DO UPDATE SET name = excluded.name, row = excluded.row";
    const LIST: &'static str = "SELECT tenant, id, row FROM volumes ORDER BY rowid";

    fn keys(&self) -> Vec<String> {
        keys_of(&self.tenant, &self.id)
    }

    fn label(&self) -> Option<String> {
        Some(self.name.clone())
    }
}

impl Record for TemplateRow {
    const KIND: &'static str = "template";
    const PUT: &'static str = "INSERT INTO templates (tenant, id, name, row) VALUES (?1, ?2, ?3, ?4) \
        ON CONFLICT DO UPDATE SET name = excluded.name, row = excluded.row";
    const LIST: &'static str = "SELECT tenant, id, row FROM templates ORDER BY rowid";

    fn keys(&self) -> Vec<String> {
        template_keys(&self.key)
    }

    fn label(&self) -> Option<String> {
        Some(self.name.clone().unwrap_or_default())
    }
}

/// What tells something of a tenant's from everything else of its kind.
pub(crate) fn keys_of(tenant: &TenantId, id: &str) -> Vec<String> {
    vec![tenant.as_str().to_owned(), id.to_owned()]
}

/// What tells a saved box from others.
pub(crate) fn template_keys(key: &TemplateKey) -> Vec<String> {
    keys_of(&key.tenant, &key.id)
}

/// What tells an MCP server from others.
pub(crate) fn mcp_server_keys(key: &McpServerKey) -> Vec<String> {
    keys_of(&key.tenant, key.name.as_str())
}

/// What tells a session from others.
pub(crate) fn session_keys(key: &SessionKey) -> Vec<String> {
    keys_of(&key.tenant, key.id.as_str())
}

/// What tells something in a session from everything else of its kind.
pub(crate) fn keys_in_session(key: &SessionKey, id: &str) -> Vec<String> {
    let mut keys = session_keys(key);
    keys.push(id.to_owned());
    keys
}

/// A state as it is written in the row.
fn word(state: &impl Serialize) -> Option<String> {
    serde_json::to_value(state).ok()?.as_str().map(str::to_owned)
}
