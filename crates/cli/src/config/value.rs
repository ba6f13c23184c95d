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
        table_of(f, &self.fields)
    }
}

impl Value {
    /// A text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The tables in it, by name, as the file can have each on one line, and where each begins.
    pub(crate) fn tables(&self) -> Vec<(&str, String, usize)> {
        match self {
            Self::Tables(tables) => {
                tables.iter().map(|(name, table)| (&**name, table.to_string(), table.line)).collect()
            }
            Self::Definitions(servers) => {
                servers.iter().map(|(name, one)| (&**name, one.to_string(), one.line)).collect()
            }
            _ => Vec::new(),
        }
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
}

/// `From` of what a default is written as.
macro_rules! from {
    ($($type:ty: $value:ident => $made:expr),* $(,)?) => {$(
        impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $made
            }
        }
    )*};
}

from! {
    &str: text => Self::text(text),
    String: text => Self::Text(text),
    u64: number => Self::Whole(number),
    usize: number => Self::Whole(number as u64),
    bool: truth => Self::Truth(truth),
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
            Self::Named(table) => table_of(f, table.iter().map(|(name, meaning)| (quoted(name), quoted(meaning)))),
            Self::Tables(tables) => table_of(f, tables),
            Self::Definitions(servers) => table_of(f, servers),
        }
    }
}

/// A table on one line.
fn table_of(
    f: &mut fmt::Formatter<'_>,
    entries: impl IntoIterator<Item = (impl fmt::Display, impl fmt::Display)>,
) -> fmt::Result {
    let entries = entries.into_iter().map(|(name, value)| format!("{name} = {value}"));
    write!(f, "{{{}}}", entries.collect::<Vec<_>>().join(", "))
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
