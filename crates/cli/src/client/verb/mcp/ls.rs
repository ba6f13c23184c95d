//! `strongbox mcp ls`.

use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;

use super::Runtime;
use crate::client::verb::ago;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::Table;

/// Characters of a problem that a table shows.
const PROBLEM_CHARS: usize = 60;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox mcp ls
  strongbox mcp ls --json | jq -r '.[] | select(.status == \"error\").name'")]
pub(crate) struct LsOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Debug, Deserialize)]
struct Server {
    name: String,
    kind: String,
    status: String,
    source: String,
    tools: u64,
    #[serde(default)]
    runtime_info: Runtime,
    updated_at: Option<Timestamp>,
}

/// Lists servers.
pub(crate) fn main(options: &LsOptions) -> Result<u8, Fault> {
    let answer = ask(&options.server, async |client| patiently("asking", client.get("/v1/mcp/servers")).await)?;
    if options.format.json {
        return listing::write_json(&answer.json()?);
    }
    let servers: Vec<Server> = answer.read()?;
    listing::write_out(table(servers, Timestamp::now()).as_bytes())
}

fn table(servers: Vec<Server>, now: Timestamp) -> String {
    let mut table = Table::new(&["NAME", "KIND", "STATUS", "TOOLS", "SOURCE", "CHANGED", "PROBLEM"]);
    for server in servers {
        let problem = server.runtime_info.problem();
        let mut shown: String = problem.chars().take(PROBLEM_CHARS).collect();
        if shown.len() < problem.len() {
            shown.push('…');
        }
        let changed = server.updated_at.map(|at| ago(at, now)).unwrap_or_default();
        let tools = match server.runtime_info.held_tools.len() {
            0 => server.tools.to_string(),
            held => format!("{} ({held} held)", server.tools),
        };
        table.row([server.name, server.kind, server.status, tools, server.source, changed, shown]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mcp_servers_are_a_table_with_what_went_wrong() {
        let servers = json!([
            { "name": "time", "kind": "stdio", "status": "connected", "source": "stored", "tools": 2, "more": 1,
              "runtime_info": { "retry_count": 0, "held_tools": [{ "name": "a", "change": "added" }] },
              "updated_at": "1970-01-01T00:01:40Z" },
            { "name": "bad", "kind": "remote", "status": "error", "source": "config", "tools": 0,
              "runtime_info": { "error_phase": "mcp_init", "error_message": "\u{1b}[2Jno" }, "updated_at": null },
        ]);
        let servers = serde_json::from_value(servers).unwrap();
        let shown = table(servers, Timestamp::from_second(160).unwrap());
        let shown = anstream::adapter::strip_str(&shown).to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "NAME  KIND    STATUS     TOOLS       SOURCE  CHANGED  PROBLEM");
        assert_eq!(lines[1], "time  stdio   connected  2 (1 held)  stored  60s ago");
        assert_eq!(lines[2], "bad   remote  error      0           config           mcp_init: \\u{1b}[2Jno");
    }
}
