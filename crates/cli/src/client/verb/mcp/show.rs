//! `strongbox mcp show`.

use clap::Args;
use serde_json::Value;

use super::{Runtime, server_path};
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::{Table, pairs, visible};

/// What is shown, in this order, when the server has it.
const FIELDS: [(&str, &str); 15] = [
    ("server", "/name"),
    ("kind", "/kind"),
    ("status", "/status"),
    ("tools", "/tools"),
    ("defined in", "/source"),
    ("changed", "/updated_at"),
    ("session", "/runtime_info/box_session_id"),
    ("in a box", "/runtime_info/box_enabled"),
    ("failed in", "/runtime_info/error_phase"),
    ("because", "/runtime_info/error_message"),
    ("retries", "/runtime_info/retry_count"),
    ("tools are others since", "/runtime_info/tools_changed/at"),
    ("  added", "/runtime_info/tools_changed/added"),
    ("  removed", "/runtime_info/tools_changed/removed"),
    ("  changed", "/runtime_info/tools_changed/changed"),
];

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox mcp show time
  strongbox mcp show time --json | jq .runtime_info")]
pub(crate) struct ShowOptions {
    /// The server
    name: String,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Shows one server.
pub(crate) fn main(options: &ShowOptions) -> Result<u8, Fault> {
    let path = server_path(&options.name, "");
    let server = ask(&options.server, async |client| patiently("asking", client.get(&path)).await)?.json()?;
    if options.format.json {
        return listing::write_json(&server);
    }
    listing::write_out(as_text(&server).as_bytes())
}

fn as_text(server: &Value) -> String {
    let line = |(name, pointer): &(&'static str, &str)| match server.pointer(pointer)? {
        Value::Null => None,
        Value::Array(items) if items.is_empty() => None,
        Value::String(text) => Some((*name, text.clone())),
        other => Some((*name, other.to_string())),
    };
    let lines: Vec<(&str, String)> = FIELDS.iter().filter_map(line).collect();
    let definition = format!("{:#}", server["definition"]);
    let runtime: Runtime = serde_json::from_value(server["runtime_info"].clone()).unwrap_or_default();
    format!("{}\n{}{}{}", pairs(&lines), each_line(definition.lines()), held(&runtime), stderr(&runtime))
}

/// Tools that wait for approval, if any.
fn held(runtime: &Runtime) -> String {
    if runtime.held_tools.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["TOOL", "WAS", "DESCRIPTION"]);
    for tool in &runtime.held_tools {
        table.row([&tool.name, &tool.change, &tool.description].map(Clone::clone));
    }
    format!("\nHeld until `strongbox mcp approve`:\n{}", table.render())
}

/// The words of a stranger, line by line, without anything that a terminal would obey.
pub(super) fn each_line<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let line = |line: &str| format!("{}\n", visible(line));
    lines.into_iter().map(line).collect()
}

/// The last lines of standard error, where there are some.
pub(super) fn stderr(runtime: &Runtime) -> String {
    match runtime.stderr_tail.as_slice() {
        [] => String::new(),
        lines => format!("\nIts last lines of standard error:\n{}", each_line(lines.iter().map(String::as_str))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tools_of_an_mcp_server_that_are_not_what_they_were_stand_out() {
        let changed =
            json!({ "at": "2026-01-02T03:04:05Z", "added": [], "removed": ["a"], "changed": ["b\u{9b}2J", "c"] });
        let server = json!({ "name": "time", "runtime_info": { "tools_changed": changed }, "definition": {} });
        let shown = anstream::adapter::strip_str(&as_text(&server)).to_string();
        assert!(
            shown.contains("tools are others since  2026-01-02T03:04:05Z\n  removed               [\"a\"]\n"),
            "{shown}"
        );
        assert!(shown.contains("[\"b\\u{9b}2J\",\"c\"]") && !shown.contains("added"), "{shown}");
    }

    #[test]
    fn held_tools_of_an_mcp_server_are_shown_with_what_is_said_of_them() {
        let held = json!([{ "name": "a", "change": "changed", "description": "reads\u{1b}[2J", "fingerprint": "f" }]);
        let server = json!({ "name": "time", "runtime_info": { "held_tools": held }, "definition": {} });
        let shown = anstream::adapter::strip_str(&as_text(&server)).to_string();
        let table = "Held until `strongbox mcp approve`:\nTOOL  WAS      DESCRIPTION\na     changed  reads\\u{1b}[2J\n";
        assert!(shown.ends_with(table), "{shown}");
    }

    #[test]
    fn an_mcp_server_is_shown_with_its_problem_and_its_last_words() {
        let server = json!({
            "name": "time", "kind": "stdio", "status": "error", "tools": 0, "source": "stored", "updated_at": null,
            "runtime_info": { "box_session_id": "mcp-shared", "box_enabled": true, "error_phase": "process_start",
                "error_message": "it ended with 1", "retry_count": 3, "stderr_tail": ["one", "\u{1b}[2Jtwo"] },
            "definition": { "command": "uvx", "env_keys": ["KEY"] },
        });
        let shown = anstream::adapter::strip_str(&as_text(&server)).to_string();
        assert!(shown.starts_with("server      time\nkind        stdio\n"), "{shown}");
        assert!(
            shown.contains("failed in   process_start\nbecause     it ended with 1\nretries     3\n\n{\n"),
            "{shown}"
        );
        assert!(!shown.contains("others since"), "{shown}");
        assert!(shown.ends_with("}\n\nIts last lines of standard error:\none\n\\u{1b}[2Jtwo\n"), "{shown}");
    }
}
