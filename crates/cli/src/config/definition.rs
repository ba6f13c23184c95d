//! Definitions of MCP servers in the configuration. They hold secrets: only who asks for it by name gets all of one.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::value::quoted;

/// Fields whose values nobody is shown.
const SECRET_FIELDS: [&str; 2] = ["env", "headers"];

/// Stands for what is not shown.
const HIDDEN: &str = "…";

/// The definition of an MCP server, as JSON. What it means is known where servers are run.
#[derive(Clone, Deserialize)]
#[serde(from = "Map<String, Value>")]
pub(crate) struct Definition {
    json: Map<String, Value>,
    /// Where it begins in the file.
    pub(crate) line: usize,
}

impl Definition {
    /// A definition that begins in this line.
    pub(crate) fn new(json: Map<String, Value>, line: usize) -> Self {
        Self { json, line }
    }

    /// All of it, secrets included. Whoever calls this decides where it goes.
    pub(crate) fn revealed(&self) -> Value {
        Value::Object(self.json.clone())
    }

    /// What may be shown.
    fn shown(&self) -> Map<String, Value> {
        let mut shown = without_secrets(&self.json);
        if let Some(Value::Object(place)) = shown.get_mut("box") {
            *place = without_secrets(place);
        }
        if let Some(Value::String(url)) = shown.get_mut("url")
            && let Some((before, _)) = url.split_once('?')
        {
            // Some services want a key there.
            *url = format!("{before}?{HIDDEN}");
        }
        shown
    }
}

fn without_secrets(fields: &Map<String, Value>) -> Map<String, Value> {
    let hide = |value: &Value| match value {
        Value::Object(secrets) => secrets.keys().map(|name| (name.clone(), Value::from(HIDDEN))).collect(),
        _ => HIDDEN.into(),
    };
    let field = |(name, value): (&String, &Value)| {
        let is_secret = SECRET_FIELDS.contains(&name.as_str());
        (name.clone(), if is_secret { hide(value) } else { value.clone() })
    };
    fields.iter().map(field).collect()
}

impl From<Map<String, Value>> for Definition {
    fn from(json: Map<String, Value>) -> Self {
        Self::new(json, 0)
    }
}

impl PartialEq for Definition {
    /// Where it is in the file does not matter.
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Serialize for Definition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.shown().serialize(serializer)
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Definition({self})")
    }
}

impl fmt::Display for Definition {
    /// As a file can have it on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&written(&Value::Object(self.shown())))
    }
}

fn written(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", list(items.iter().map(written).collect())),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{} = {}", key(name), written(value));
            format!("{{{}}}", list(fields.iter().map(field).collect()))
        }
        other => other.to_string(),
    }
}

/// A key, in quotes where it needs them.
fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !name.is_empty() && name.bytes().all(is_bare) { name.to_owned() } else { quoted(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(json: &Value) -> Definition {
        Definition::new(json.as_object().unwrap().clone(), 7)
    }

    #[test]
    fn the_secrets_of_an_mcp_server_are_shown_by_name_only() {
        let whole = json!({
            "command": "uvx", "args": ["a", 1], "env": { "KEY": "sesame" }, "headers": { "X-Key": "sesame" },
            "url": "https://a/mcp?key=sesame", "box": { "env": { "OTHER": "sesame" }, "network": "off" },
        });
        let definition = definition(&whole);
        let shown = definition.to_string();
        let expected = r#"{args = ["a", 1], box = {env = {OTHER = "…"}, network = "off"}, command = "uvx", env = {KEY = "…"}, headers = {X-Key = "…"}, url = "https://a/mcp?…"}"#;
        assert_eq!(shown, expected);
        for other in [format!("{definition:?}"), json!(definition).to_string()] {
            assert!(other.contains("X-Key") && !other.contains("sesame"), "{other}");
        }
        assert_eq!(definition.revealed(), whole);
    }

    #[test]
    fn what_stands_where_the_secrets_of_an_mcp_server_should_is_not_shown_either() {
        let shown = definition(&json!({ "env": ["KEY=sesame"], "headers": "sesame", "box": { "env": 1 } })).to_string();
        assert_eq!(shown, r#"{box = {env = "…"}, env = "…", headers = "…"}"#);
    }
}
