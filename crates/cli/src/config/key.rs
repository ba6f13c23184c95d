//! The keys of the configuration, made from its structs: reading, checking, showing, variables, flags and documentation
//! all follow from them.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use super::kind::Kind;
use super::schema::Config;
use super::value::Value;

/// All keys, in the order in which they are shown.
pub(crate) static KEYS: LazyLock<Vec<Key>> = LazyLock::new(Config::keys);

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    /// As it is written, with its table before a dot.
    pub(crate) name: String,
    /// What it means, in Markdown.
    pub(crate) doc: String,
    /// What its table is for, in Markdown; empty outside a table.
    pub(crate) table_doc: String,
    /// What it may be.
    pub(crate) kind: Kind,
    /// Whether a running server takes a new value over.
    pub(crate) live: bool,
    /// What documentation says instead of the default.
    pub(crate) usual: Option<&'static str>,
    /// What the example file has instead of the default.
    pub(crate) example: Option<Value>,
    /// Lines of the example file that show a table below this one.
    pub(crate) example_table: &'static str,
    /// The flag of `strongbox serve` that sets it, and the name of its value there.
    pub(crate) flag: Option<(&'static str, &'static str)>,
    /// The variable by which other programs know the same, and which wins.
    pub(crate) shared_variable: Option<&'static str>,
    /// What it is unless it is set. Certificates, where engines are and some keys of LangBot have no default; those of the
    /// socket and the skills follow the state directory, and what concerns mounts the host root.
    pub(crate) default: Option<Value>,
}

/// A key without a name yet.
pub(super) fn key(kind: Kind) -> Key {
    Key {
        name: String::new(),
        doc: String::new(),
        table_doc: String::new(),
        kind,
        live: false,
        usual: None,
        example: None,
        example_table: "",
        flag: None,
        shared_variable: None,
        default: None,
    }
}

/// A key that is true or false.
pub(super) fn truth(default: bool) -> Key {
    key(Kind::Truth).or(default)
}

/// A key that is a whole number.
pub(super) fn whole(range: RangeInclusive<u64>) -> Key {
    key(Kind::Whole(*range.start(), *range.end()))
}

impl Key {
    /// The key of that name.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// With a default.
    pub(super) fn or(self, value: impl Into<Value>) -> Self {
        Self { default: Some(value.into()), ..self }
    }

    /// With words about what holds where it is not set.
    pub(super) fn usual(self, words: &'static str) -> Self {
        Self { usual: Some(words), ..self }
    }

    /// With another value than the default in the example file.
    pub(super) fn example(self, value: impl Into<Value>) -> Self {
        Self { example: Some(value.into()), ..self }
    }

    /// With lines of an example.
    pub(super) fn example_table(self, lines: &'static str) -> Self {
        Self { example_table: lines, ..self }
    }

    /// With a new value taken over by a running server.
    pub(super) fn live(self) -> Self {
        Self { live: true, ..self }
    }

    /// With a flag of `strongbox serve`.
    pub(super) fn flag(self, name: &'static str, value: &'static str) -> Self {
        Self { flag: Some((name, value)), ..self }
    }

    /// With a variable of other programs.
    pub(super) fn shared(self, variable: &'static str) -> Self {
        Self { shared_variable: Some(variable), ..self }
    }

    /// The environment variable that sets it; lists and tables have none.
    pub(crate) fn variable(&self) -> Option<String> {
        let name = || format!("STRONGBOX_{}", self.name.replace('.', "_").to_uppercase());
        (!self.kind.is_list() && !self.kind.is_table()).then(name)
    }

    /// Whether its value is never shown.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret)
    }
}

/// What stands behind a field: one key, or the keys of a table.
pub(super) trait Entry {
    /// The keys, with the name and the documentation of the field.
    fn named(self, name: &str, doc: &str) -> Vec<Key>;
}

impl Entry for Key {
    fn named(self, name: &str, doc: &str) -> Vec<Key> {
        vec![Key { name: name.to_owned(), doc: doc.trim().replace("\n ", " "), ..self }]
    }
}

impl Entry for Vec<Key> {
    fn named(mut self, name: &str, doc: &str) -> Vec<Key> {
        for key in &mut self {
            key.name = format!("{name}.{}", key.name);
            key.table_doc = doc.trim().replace("\n ", " ");
        }
        self
    }
}

/// Makes the structs of the configuration, and the keys of each. A field is `name: Type = key(KIND)…` or
/// `name: Type = Table::keys()`; its doc comment is documentation for operators.
macro_rules! configuration {
    ($(
        $(#[$($of_struct:tt)*])*
        struct $table:ident { $( $(#[$($of_field:tt)*])* $field:ident: $type:ty = $entry:expr, )* }
    )*) => {$(
        $(#[$($of_struct)*])*
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $table { $( $(#[$($of_field)*])* pub(crate) $field: $type, )* }

        impl $table {
            pub(super) fn keys() -> Vec<Key> {
                let mut keys = Vec::new();
                $(
                    let doc = concat!($($crate::config::key::text_of_doc!($($of_field)*)),*);
                    keys.extend($crate::config::key::Entry::named($entry, stringify!($field), doc));
                )*
                keys
            }
        }
    )*};
}

/// The text of a doc comment; nothing of other attributes.
macro_rules! text_of_doc {
    (doc = $text:literal) => {
        concat!($text, "\n")
    };
    ($($other:tt)*) => {
        ""
    };
}

pub(super) use {configuration, text_of_doc};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_described_and_its_default_is_allowed() {
        for key in KEYS.iter() {
            assert!(key.doc.ends_with('.') && !key.doc.contains('\n'), "{key:?}");
            let Some(value) = &key.default else { continue };
            assert_eq!(key.kind.check(value), Ok(()), "{}", key.name);
        }
    }

    #[test]
    fn only_single_values_have_a_variable() {
        assert_eq!(Key::find("tls.key").unwrap().variable().as_deref(), Some("STRONGBOX_TLS_KEY"));
        assert_eq!(Key::find("log").unwrap().variable().as_deref(), Some("STRONGBOX_LOG"));
        assert_eq!(Key::find("images").unwrap().variable(), None);
    }
}
