//! Definitions out of the files of desktop clients: the `mcpServers` JSON that everybody copies from everybody.
//!
//! Clients agree on most of it and differ in names. What is read here is what they have in common under all those names. An
//! entry that cannot be read is told and does not keep the others from being imported.

mod docker;

use std::collections::{BTreeMap, BTreeSet};

use box_core::limits::MCP_SERVERS_MAX;
use box_core::mcp::McpServerName;
use box_wire::Invalid;
use serde_json::{Map, Value, json};

use crate::definition::{Fields, ServerDefinition};
use crate::limits::{IGNORED_FIELDS_SHOWN_MAX, IMPORT_BYTES_MAX, QUOTED_CHARS_MAX};

/// Where clients keep their servers in a file, from the most common to the rarest.
const TABLES: [&[&str]; 4] = [&["mcpServers"], &["servers"], &["mcp", "servers"], &["mcp", "mcpServers"]];
/// Names under which clients write the URL of a server that speaks streamable HTTP, or does not say.
const URLS: [&str; 4] = ["url", "serverUrl", "httpUrl", "endpoint"];
/// Names under which clients write how a server speaks.
const TRANSPORTS: [&str; 4] = ["transport", "type", "transportType", "mode"];
/// Fields that mean something here.
const KNOWN: [&str; 12] = [
    "name",
    "command",
    "args",
    "env",
    "cwd",
    "headers",
    "box",
    "enabled",
    "enable",
    "disabled",
    "pin_tools",
    "protocol",
];

/// What came out of a file.
#[derive(Debug, Default)]
pub struct Import {
    /// Servers, ready to be kept, in the order of their names in the file.
    pub definitions: Vec<ServerDefinition>,
    /// What was understood in another way than it was written, for whoever imports.
    pub remarks: Vec<Remark>,
    /// Servers that have another name than in the file, with the one that they have there, shortened.
    pub renamed: Vec<(String, McpServerName)>,
    /// Entries that are not imported, and why.
    pub refused: Vec<(String, Invalid)>,
}

/// Something to know of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The name in the file, shortened.
    pub server: String,
    /// What to know.
    pub text: String,
}

/// Reads a file of a desktop client. `taken` are names that other servers have already.
pub fn import(text: &str, taken: &BTreeSet<McpServerName>) -> Result<Import, Invalid> {
    if text.len() > IMPORT_BYTES_MAX {
        return Err(Invalid::new("mcpServers", text.len(), format!("a file of at most {IMPORT_BYTES_MAX} bytes")));
    }
    let whole: Value = serde_json::from_str(text).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        Invalid::new("mcpServers", place, "JSON without comments and without commas before a closing bracket")
    })?;
    let entries = table(&whole)?;
    if entries.len() > MCP_SERVERS_MAX {
        return Err(Invalid::new("mcpServers", entries.len(), format!("at most {MCP_SERVERS_MAX} servers")));
    }
    let mut import = Import::default();
    let mut names = Names::of(entries, taken);
    for (written, entry) in entries {
        import.take(written, entry, &names.give(written));
    }
    Ok(import)
}

/// The servers of a file, wherever its client keeps them.
fn table(whole: &Value) -> Result<&Map<String, Value>, Invalid> {
    let found = TABLES.iter().find_map(|path| path.iter().try_fold(whole, |value, name| value.get(name)));
    // The table alone, cut out of a file.
    let is_entry = |entry: &Value| entry.get("command").is_some() || URLS.iter().any(|url| entry.get(url).is_some());
    let bare = whole.as_object().filter(|object| !object.is_empty() && object.values().all(is_entry));
    let allowed = "an object with mcpServers, such as {\"mcpServers\": {\"time\": {\"command\": \"uvx\", \"args\": [\"mcp-server-time\"]}}}";
    match found {
        Some(table) => table.as_object().ok_or_else(|| Invalid::new("mcpServers", "", allowed)),
        None => bare.ok_or_else(|| Invalid::new("mcpServers", "", allowed)),
    }
}

impl Import {
    fn take(&mut self, written: &str, entry: &Value, name: &McpServerName) {
        let shown: String = written.chars().take(QUOTED_CHARS_MAX).collect();
        let translated =
            translate(entry).and_then(|(value, remarks)| Ok((ServerDefinition::named(name.clone(), &value)?, remarks)));
        match translated {
            Ok((definition, remarks)) => {
                if name.as_str() != written {
                    self.renamed.push((shown.clone(), name.clone()));
                }
                self.remarks.extend(remarks.into_iter().map(|text| Remark { server: shown.clone(), text }));
                self.definitions.push(definition);
            }
            Err(invalid) => self.refused.push((shown, invalid)),
        }
    }
}

/// Gives names, each once.
struct Names {
    /// Those that are given.
    taken: BTreeSet<McpServerName>,
    /// Those that are written in the file as they are. Whoever is renamed gets none of them.
    written: BTreeSet<McpServerName>,
}

impl Names {
    fn of(entries: &Map<String, Value>, taken: &BTreeSet<McpServerName>) -> Self {
        Self { taken: taken.clone(), written: entries.keys().filter_map(|name| name.parse().ok()).collect() }
    }

    fn give(&mut self, written: &str) -> McpServerName {
        let own: Option<McpServerName> = written.parse().ok();
        let nearest = own.clone().unwrap_or_else(|| McpServerName::nearest(written));
        let numbered = (2..).map(|number| nearest.numbered(number));
        let is_free = |name: &McpServerName| {
            !self.taken.contains(name) && (own.as_ref() == Some(name) || !self.written.contains(name))
        };
        let name = std::iter::once(nearest.clone()).chain(numbered).find(is_free).unwrap_or(nearest);
        self.taken.insert(name.clone());
        name
    }
}

/// An entry in our own words, and what to know of it.
fn translate(entry: &Value) -> Result<(Value, Vec<String>), Invalid> {
    let fields = Fields::of("server", entry)?;
    let mut ours: BTreeMap<&str, Value> = BTreeMap::new();
    let mut remarks = Vec::new();
    for field in ["command", "args", "env", "cwd", "headers", "box", "pin_tools", "protocol"] {
        ours.extend(fields.get(field).map(|value| (field, value.clone())));
    }
    ours.insert("enabled", json!(is_enabled(fields)?));
    if let Some(url) = url(fields) {
        ours.insert("url", url.clone());
        ours.extend(transport(fields)?.map(|transport| ("transport", json!(transport))));
    }
    remarks.extend(unwrap_cmd(&mut ours));
    remarks.extend(docker::unwrap(&mut ours)?);
    remarks.extend(placeholders(&ours));
    remarks.extend(ignored(fields));
    Ok((json!(ours), remarks))
}

fn url(fields: Fields<'_>) -> Option<&Value> {
    let url = URLS.iter().find_map(|name| fields.get(name));
    // Some clients write every field, the ones without a meaning too.
    url.filter(|url| fields.get("command").is_none() || url.as_str() != Some(""))
}

fn is_enabled(fields: Fields<'_>) -> Result<bool, Invalid> {
    let enabled = match fields.flag("enabled")? {
        Some(enabled) => Some(enabled),
        None => fields.flag("enable")?,
    };
    Ok(enabled.unwrap_or(true) && !fields.flag("disabled")?.unwrap_or(false))
}

/// How a remote server speaks, in our words. Nothing when nobody says.
fn transport(fields: Fields<'_>) -> Result<Option<&'static str>, Invalid> {
    let Some((field, value)) = TRANSPORTS.iter().find_map(|name| Some((*name, fields.get(name)?))) else {
        return Ok(None);
    };
    match value.as_str().map(str::to_ascii_lowercase).as_deref() {
        Some("http" | "streamable-http" | "streamablehttp" | "streamable_http" | "remote") => Ok(Some("http")),
        Some("sse") => Ok(Some("sse")),
        _ => Err(Invalid::new(field, value.to_string(), "http or sse for a server with a url")),
    }
}

/// `cmd /c npx …`, which is how another system starts what is started here without.
fn unwrap_cmd(ours: &mut BTreeMap<&str, Value>) -> Option<String> {
    let is_cmd = ours.get("command")?.as_str().is_some_and(|command| matches!(command, "cmd" | "cmd.exe"));
    let args = ours.get("args")?.as_array()?;
    let (switch, rest) = args.split_first()?;
    let (command, rest) = rest.split_first()?;
    if !is_cmd || !switch.as_str()?.eq_ignore_ascii_case("/c") {
        return None;
    }
    let (command, rest) = (command.clone(), json!(rest));
    ours.insert("command", command);
    ours.insert("args", rest);
    Some("cmd /c is left out; there is no such program here".to_owned())
}

/// Clients replace `${…}` by what they know. We know neither their inputs nor, on purpose, anybody's environment.
fn placeholders(ours: &BTreeMap<&str, Value>) -> Option<String> {
    let holds = |value: &Value| value.as_str().is_some_and(|text| text.contains("${"));
    let within = |value: &Value| match value {
        Value::Array(values) => values.iter().any(holds),
        Value::Object(values) => values.values().any(holds),
        other => holds(other),
    };
    let names: Vec<&str> = ours.iter().filter(|(_, value)| within(value)).map(|(name, _)| *name).collect();
    let text = || format!("${{…}} in {} is taken as it is written; put the values in", names.join(" and "));
    (!names.is_empty()).then(text)
}

fn ignored(fields: Fields<'_>) -> Option<String> {
    let is_known = |name: &str| [&KNOWN[..], &URLS, &TRANSPORTS].iter().any(|known| known.contains(&name));
    let names: Vec<String> = fields
        .names()
        .filter(|name| !is_known(name))
        .map(|name| name.chars().take(QUOTED_CHARS_MAX).collect())
        .take(IGNORED_FIELDS_SHOWN_MAX)
        .collect();
    (!names.is_empty()).then(|| format!("{} means nothing here and is ignored", names.join(", ")))
}

#[cfg(test)]
mod tests;
