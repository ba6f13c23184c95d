//! What a definition shows of itself: everything but the values of environments and headers, and what a URL says behind `?`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::text::clean;

use super::{BoxOptions, Kind, Protocol, Remote, Secret, ServerDefinition, Stdio};

/// Characters of a text in a definition that a list shows.
const TEXT_CHARS_LISTED: usize = 120;
/// Entries of an array that a list shows.
const ITEMS_LISTED: usize = 16;

/// How much is shown.
#[derive(Clone, Copy)]
enum SecretDisplay {
    /// Names of what may be secret, and no value.
    Names,
    /// Everything.
    Everything,
}

impl ServerDefinition {
    /// Everything, secrets included, in the form in which it is read. For whoever keeps definitions, and for nobody else.
    pub fn revealed(&self) -> Value {
        self.tell(SecretDisplay::Everything)
    }

    fn tell(&self, shown: SecretDisplay) -> Value {
        let mut told = match &self.kind {
            Kind::Stdio(stdio) => stdio.tell(shown),
            Kind::Remote(remote) => remote.tell(shown),
        };
        told.insert("name".to_owned(), json!(self.name));
        told.insert("enabled".to_owned(), json!(self.enabled));
        told.extend(self.pin_tools.map(|pinned| ("pin_tools".to_owned(), json!(pinned))));
        if matches!(self.kind, Kind::Stdio(_)) {
            told.insert("box".to_owned(), Value::Object(self.options.tell(shown)));
        }
        Value::Object(told)
    }
}

impl Stdio {
    fn tell(&self, shown: SecretDisplay) -> Map<String, Value> {
        let mut told = Map::new();
        if !self.is_of_image() {
            told.insert("command".to_owned(), json!(self.command));
        }
        told.insert("args".to_owned(), json!(self.args));
        told.extend(self.cwd.as_ref().map(|cwd| ("cwd".to_owned(), json!(cwd))));
        if self.protocol != Protocol::default() {
            told.insert("protocol".to_owned(), json!(self.protocol));
        }
        told.extend([tell_secrets(&self.env, shown, "env", "env_keys")]);
        told
    }
}

impl Remote {
    fn tell(&self, shown: SecretDisplay) -> Map<String, Value> {
        let url = match shown {
            SecretDisplay::Names => self.shown_url(),
            SecretDisplay::Everything => self.url.clone(),
        };
        let mut told = Map::new();
        told.insert("url".to_owned(), json!(url));
        told.insert("transport".to_owned(), json!(self.transport));
        told.extend([tell_secrets(&self.headers, shown, "headers", "header_names")]);
        told
    }

    /// The URL without its query, in which some services want a key.
    fn shown_url(&self) -> String {
        self.url.split_once('?').map_or_else(|| self.url.clone(), |(before, _)| format!("{before}?…"))
    }
}

impl BoxOptions {
    fn tell(&self, shown: SecretDisplay) -> Map<String, Value> {
        let mut told = Map::new();
        let mut tell = |field: &str, value: Value| {
            if !value.is_null() {
                told.insert(field.to_owned(), value);
            }
        };
        tell("image", json!(self.image));
        tell("network", json!(self.network));
        tell("host_path", json!(self.host_path));
        tell("host_path_mode", json!(self.host_path_mode));
        tell("startup_timeout_sec", json!(self.startup_timeout_sec));
        tell("cpus", json!(self.cpus));
        tell("memory_mb", json!(self.memory_mb));
        tell("pids_limit", json!(self.pids_limit));
        tell("read_only_rootfs", json!(self.read_only_rootfs));
        told.extend([tell_secrets(&self.env, shown, "env", "env_keys")]);
        told
    }
}

/// Cuts what is long in a definition, for a list of many: their sizes are their authors', and together they would be a flood.
pub(crate) fn shorten(shown: &mut Value) {
    match shown {
        Value::String(text) if text.chars().nth(TEXT_CHARS_LISTED).is_some() => *text = clean(text, TEXT_CHARS_LISTED),
        Value::Array(items) => {
            let more = items.len().saturating_sub(ITEMS_LISTED);
            items.truncate(ITEMS_LISTED);
            items.iter_mut().for_each(shorten);
            items.extend((more > 0).then(|| Value::String(format!("… {more} more"))));
        }
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

/// The values under one field, or only their names under another.
fn tell_secrets(secrets: &BTreeMap<String, Secret>, shown: SecretDisplay, all: &str, names: &str) -> (String, Value) {
    match shown {
        SecretDisplay::Names => (names.to_owned(), secrets.keys().map(String::as_str).collect()),
        SecretDisplay::Everything => {
            let values: Map<_, _> = secrets.iter().map(|(name, value)| (name.clone(), json!(value.expose()))).collect();
            (all.to_owned(), Value::Object(values))
        }
    }
}

impl Serialize for ServerDefinition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.tell(SecretDisplay::Names).serialize(serializer)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.shown_url())
            .field("headers", &self.headers)
            .field("transport", &self.transport)
            .finish()
    }
}
