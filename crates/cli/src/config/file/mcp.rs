//! MCP servers in the file: a table for each, kept as JSON. What is in it is read where servers are run.

use std::collections::BTreeMap;

use box_core::limits::MCP_SERVERS_MAX;
use box_core::mcp::McpServerName;
use serde_json::{Map, Number, Value as Json};
use toml::de::{DeTable, DeValue};

use super::{Reader, line_of};
use crate::config::definition::Definition;
use crate::config::key::Key;
use crate::config::value::Value;

impl Reader<'_> {
    /// Reads all servers. They are kept only if all are good.
    pub(super) fn mcp_servers(&mut self, key: &'static Key, table: &DeTable<'_>, line: usize) {
        let problems_before = self.problems.len();
        let mut servers = BTreeMap::new();
        if table.len() > MCP_SERVERS_MAX {
            let reason = format!("{} has {} servers; there can be {MCP_SERVERS_MAX}", key.name, table.len());
            return self.refuse(line, &reason);
        }
        for (name, value) in table {
            let (name, line) = (name.get_ref().to_string(), line_of(self.text, name.span().start));
            if let Err(invalid) = name.parse::<McpServerName>() {
                self.refuse(line, &format!("mcp.servers.{name}: {invalid}"));
                continue;
            }
            match value.get_ref() {
                DeValue::Table(inner) => match fields(inner) {
                    Ok(fields) => drop(servers.insert(name, Definition::new(fields, line))),
                    Err(reason) => self.refuse(line, &format!("mcp.servers.{name}: {reason}")),
                },
                _ => self.refuse(line, &format!("mcp.servers.{name} is a table; write [mcp.servers.{name}]")),
            }
        }
        if self.problems.len() == problems_before {
            self.entries.push((key, Value::Definitions(servers), line));
        }
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
        assert_eq!(mcp.servers, expected.into());
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

    #[test]
    fn the_keys_are_in_the_example_and_in_the_documentation() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        let read = |path: &str| std::fs::read_to_string(format!("{root}{path}")).unwrap();
        let (example, page) = (read("packaging/config.example.toml"), read("docs/config.md"));
        let uncommented: String = example.lines().map(|line| uncomment(line) + "\n").collect();
        let set = parse("example", &uncommented).unwrap();
        for name in ["mcp.enabled", "mcp.host_fallback", "mcp.servers"] {
            let (_, shown, _) = set.iter().find(|(key, ..)| key.name == name).unwrap();
            assert_eq!(Some(shown), Key::find(name).unwrap().default_value().as_ref(), "{name}");
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
        assert!(parse("example", &example).unwrap().is_empty(), "as it is it sets nothing");
    }

    fn uncomment(line: &str) -> String {
        match line.strip_prefix('#') {
            Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => rest.to_owned(),
            _ => line.to_owned(),
        }
    }
}
