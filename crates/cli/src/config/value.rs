//! A value of the configuration, from a file, the environment or a flag, before it is given its meaning.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::definition::Definition;

/// A value, as it is written in the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Value {
    /// Words, a path, an address.
    Text(String),
    /// A number.
    Whole(u64),
    /// A number that is not whole.
    Fraction(f64),
    /// Yes or no.
    Truth(bool),
    /// A list.
    Texts(Vec<String>),
    /// A table of names.
    Named(BTreeMap<String, String>),
    /// Tables by their names.
    Tables(BTreeMap<String, Table>),
    /// Definitions of MCP servers by their names. Serialized or shown, they have no secrets.
    Definitions(BTreeMap<String, Definition>),
}

/// A table in the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Table {
    /// What it sets.
    pub(crate) fields: BTreeMap<String, Value>,
    /// Where it begins.
    #[serde(skip)]
    pub(crate) line: usize,
}

impl fmt::Display for Table {
    /// As a file can have it on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |(name, value): (&String, &Value)| format!("{name} = {value}");
        write!(f, "{{{}}}", self.fields.iter().map(entry).collect::<Vec<_>>().join(", "))
    }
}

impl Value {
    /// A text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// All of it as JSON, with the secrets that are in it.
    pub(crate) fn revealed(&self) -> serde_json::Value {
        match self {
            Self::Definitions(servers) => {
                servers.iter().map(|(name, definition)| (name.clone(), definition.revealed())).collect()
            }
            other => serde_json::json!(other),
        }
    }

    /// A list without entries.
    pub(crate) fn no_texts() -> Self {
        Self::Texts(Vec::new())
    }

    /// No tables.
    pub(crate) fn no_tables() -> Self {
        Self::Tables(BTreeMap::new())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Whole(number as u64)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}

impl<const COUNT: usize> From<[&str; COUNT]> for Value {
    fn from(texts: [&str; COUNT]) -> Self {
        Self::Texts(texts.map(str::to_owned).into())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => quoted(text).fmt(f),
            Self::Whole(number) => number.fmt(f),
            Self::Fraction(number) => number.fmt(f),
            Self::Truth(truth) => truth.fmt(f),
            Self::Texts(texts) => write!(f, "[{}]", texts.iter().map(quoted).collect::<Vec<_>>().join(", ")),
            Self::Named(table) => {
                let entry = |(name, value)| format!("{} = {}", quoted(name), quoted(value));
                write!(f, "{{{}}}", table.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
            Self::Tables(tables) => {
                let entry = |(name, table)| format!("{name} = {table}");
                write!(f, "{{{}}}", tables.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
            Self::Definitions(servers) => {
                let entry = |(name, definition)| format!("{name} = {definition}");
                write!(f, "{{{}}}", servers.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// A text in quotes.
pub(super) fn quoted(text: impl AsRef<str>) -> String {
    toml::Value::String(text.as_ref().to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_the_file_has_them() {
        let named = Value::Named([("a:b".to_owned(), "host".to_owned())].into());
        let strict = [("cpus", Value::Fraction(0.5)), ("locked", Value::Texts(vec!["cpus".into()]))];
        let fields = strict.map(|(name, value)| (name.to_owned(), value)).into();
        let strict = Table { fields, line: 3 };
        let tables = Value::Tables([("strict".to_owned(), strict)].into());
        let shown = [
            (Value::text("a\"b"), "'a\"b'"),
            (Value::Whole(5), "5"),
            (Value::Truth(true), "true"),
            (Value::Texts(vec!["x".into(), "y".into()]), "[\"x\", \"y\"]"),
            (named, "{\"a:b\" = \"host\"}"),
            (Value::Fraction(0.5), "0.5"),
            (tables, "{strict = {cpus = 0.5, locked = [\"cpus\"]}}"),
        ];
        for (value, text) in shown {
            assert_eq!(value.to_string(), text);
        }
    }
}
