//! MCP servers in the file: a table for each, kept as JSON. What is in it is read where servers are run.

use box_core::limits::MCP_SERVERS_MAX;
use box_core::mcp::McpServerName;
use serde_json::{Map, Number, Value as Json};
use toml::de::{DeTable, DeValue};

use super::Reader;
use crate::config::definition::Definition;
use crate::config::key::Key;
use crate::config::value::Value;

impl Reader<'_> {
    /// Reads all servers.
    pub(super) fn mcp_servers(&mut self, key: &Key, table: &DeTable<'_>, line: usize) -> Option<Value> {
        let bounds = (line, MCP_SERVERS_MAX, "servers");
        let servers = self.named_tables(key, table, bounds, |reader, of, inner| {
            let name = of.name.parse::<McpServerName>().map_err(|invalid| invalid.to_string());
            match name.and_then(|_| fields(inner)) {
                Ok(fields) => return Some(Definition::new(fields, of.line)),
                Err(reason) => reader.refuse(of.line, &format!("{}: {reason}", of.full)),
            }
            None
        });
        servers.map(Value::Definitions)
    }
}

/// A table as JSON; the field that cannot be one is named, and its value not repeated.
fn fields(table: &DeTable<'_>) -> Result<Map<String, Json>, String> {
    let field = |(name, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let name = AsRef::<str>::as_ref(name.get_ref()).to_owned();
        json(value.get_ref()).map(|value| (name.clone(), value)).map_err(|reason| format!("{name}: {reason}"))
    };
    table.iter().map(field).collect()
}

fn json(value: &DeValue<'_>) -> Result<Json, String> {
    let refused = "use a text, a finite number, true or false, a list or a table";
    match value {
        DeValue::String(text) => Ok(Json::String(text.to_string())),
        DeValue::Integer(digits) => {
            let number = i64::from_str_radix(digits.as_str(), digits.radix());
            number.map(Json::from).map_err(|_| refused.to_owned())
        }
        DeValue::Float(digits) => {
            let number = digits.as_str().parse().ok().and_then(Number::from_f64);
            number.map(Json::Number).ok_or_else(|| refused.to_owned())
        }
        DeValue::Boolean(truth) => Ok(Json::Bool(*truth)),
        DeValue::Array(items) => {
            items.iter().map(|item| json(item.get_ref())).collect::<Result<_, _>>().map(Json::Array)
        }
        DeValue::Table(table) => fields(table).map(Json::Object),
        DeValue::Datetime(_) => Err(refused.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use crate::config::{Environment, Settings};
    use serde_json::json;

    const TWO: &str = "[mcp]\nhost_fallback = true\npin_tools = true\n[mcp.servers.time]\ncommand = \"uvx\"\nargs = [\"mcp-server-time\"]\n\
        env = { KEY = \"sesame\" }\nbox = { cpus = 0.5, memory_mb = 0x40, network = \"off\", read_only_rootfs = true }\n\
        [mcp.servers.docs]\nurl = \"https://a/mcp\"\n[mcp.servers.docs.headers]\nAuthorization = \"Bearer sesame\"\n";

    fn load(text: &str) -> Settings {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Settings::load(Some(file.path()), &Environment::default(), &[]).unwrap()
    }

    #[test]
    fn servers_reach_the_configuration_with_everything_that_is_in_them() {
        let mcp = load(TWO).config().unwrap().mcp;
        assert!(mcp.enabled && mcp.host_fallback && mcp.pin_tools);
        let time = json!({
            "command": "uvx", "args": ["mcp-server-time"], "env": { "KEY": "sesame" },
            "box": { "cpus": 0.5, "memory_mb": 64, "network": "off", "read_only_rootfs": true },
        });
        let docs = json!({ "url": "https://a/mcp", "headers": { "Authorization": "Bearer sesame" } });
        let expected = [("docs", docs), ("time", time)].map(|(name, value)| (name.parse().unwrap(), value));
        let servers = mcp.servers.iter().map(|(name, definition)| (name.clone(), definition.revealed()));
        assert_eq!(servers.collect::<Vec<_>>(), expected);
        assert!(!format!("{mcp:?}").contains("sesame"), "{mcp:?}");
        let usual = load("").config().unwrap().mcp;
        assert!(usual.enabled && !usual.host_fallback && !usual.pin_tools && usual.servers.is_empty());
    }

    #[test]
    fn a_change_of_servers_needs_a_restart_and_one_of_lines_does_not() {
        let (old, moved) = (load(TWO), load(&format!("\n# words\n{TWO}")));
        assert_eq!(old.needing_restart(&moved), [""; 0]);
        assert_eq!(old.needing_restart(&load(&TWO.replace("uvx", "npx"))), ["mcp.servers"]);
        assert_eq!(old.needing_restart(&load(&TWO.replace("sesame", "other"))), ["mcp.servers"]);
    }

    #[test]
    fn what_cannot_be_a_server_is_told_with_its_line_and_without_its_secrets() {
        let table = [
            ("[mcp.servers.box]\ncommand = \"a\"", "f:1: mcp.servers.box: invalid name: \"box\""),
            ("[mcp.servers.a__b]\ncommand = \"a\"", "without __"),
            ("[mcp.servers]\ntime = 1", "f:2: mcp.servers.time is a table; write [mcp.servers.time]"),
            ("[mcp]\nservers = 1", "f:2: mcp.servers = 1 is not allowed; use a table for each server"),
            ("[mcp.servers.a]\nenv = { KEY = \"sesame\", at = 1979-05-27 }", "f:1: mcp.servers.a: env: at: use a text"),
            ("[mcp.servers.a]\n[mcp.servers.a.box]\ncpus = nan", "mcp.servers.a: box: cpus: use a text"),
            ("[mcp]\nenable = true", "f:2: there is no key mcp.enable; did you mean enabled in [mcp]?"),
            ("[mcp]\nhost_fallback = \"yes\"", "use true or false"),
        ];
        for (text, says) in table {
            let found = parse("f", text).err().unwrap_or_default();
            assert!(found.len() == 1 && found[0].contains(says) && !found[0].contains("sesame"), "{text}: {found:?}");
        }
        let one = |number| format!("[mcp.servers.s{number}]\n");
        let many: String = (0..=MCP_SERVERS_MAX).map(one).collect();
        let found = parse("f", &many).err().unwrap_or_default();
        assert!(found.len() == 1 && found[0].contains("257 servers; there can be 256"), "{found:?}");
    }
}
