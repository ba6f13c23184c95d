//! Tables and their rows. A row is a JSON document beside the columns that find it, so a new table is one line of `tables!` in
//! [`crate::store`] and a migration.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{LastToken, McpServerKey, SessionKey, TemplateKey};
use crate::tasks::blocking;
use crate::{Error, Result, TenantId};

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// What one row is called in errors and logs.
    pub kind: &'static str,
    /// The columns that identify a row.
    pub keys: &'static [&'static str],
    /// A further column, for people who look into the file.
    pub label: Option<&'static str>,
}

impl Table {
    /// Whether its rows are deleted with their session.
    pub fn is_in_session(&self) -> bool {
        self.keys.contains(&"session")
    }
}

/// A row of one table.
pub trait Row: Serialize + DeserializeOwned + Send + 'static {
    /// The table.
    const TABLE: &'static Table;

    /// The values of the columns that identify it.
    fn keys(&self) -> Vec<String>;
}

/// A row as a store reads it.
#[derive(Debug)]
pub struct StoredRow {
    /// The values of the columns that identify it.
    pub keys: Vec<String>,
    /// The document, or why it cannot be read.
    pub json: Result<Vec<u8>, String>,
}

/// A row that cannot be read, and why.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) keys: Vec<String>,
    pub(super) reason: String,
}

/// What a change does to the tables.
#[derive(Debug)]
pub enum Effect<'c> {
    /// Adds or changes a row.
    Put {
        /// The table.
        table: &'static Table,
        /// The values of the columns that identify the row.
        keys: Vec<String>,
        /// The value of the further column, where the table has one.
        label: Option<String>,
        /// The document.
        json: String,
    },
    /// Deletes a row.
    Delete {
        /// The table.
        table: &'static Table,
        /// The values of the columns that identify the row.
        keys: Vec<String>,
    },
    /// Deletes tokens.
    DeleteTokens {
        /// Their ids.
        ids: &'c [String],
        /// What happens if no other token is left.
        last: LastToken,
    },
}

impl Effect<'_> {
    pub(super) fn put<R: Row>(row: &R, label: Option<String>) -> Result<Self> {
        let table = R::TABLE;
        let failed = |error: serde_json::Error| Error::io(format!("writing down a {}", table.kind), error);
        Ok(Self::Put { table, keys: row.keys(), label, json: serde_json::to_string(row).map_err(failed)? })
    }

    pub(super) fn delete<R: Row>(keys: Vec<String>) -> Self {
        Self::Delete { table: R::TABLE, keys }
    }
}

/// Parses rows on a thread where that may take its time.
pub(super) async fn parse_all<S: Send + 'static, T: Send + 'static>(
    stored: S,
    parse: impl FnOnce(S) -> T + Send + 'static,
) -> Result<T> {
    let parsed = blocking(move || parse(stored)).await;
    parsed.map_err(|error| Error::io("reading the store", std::io::Error::other(error)))
}

/// Parses rows. Those that cannot be read are logged.
pub(super) fn parse<R: Row>(stored: Vec<StoredRow>) -> (Vec<R>, Vec<Unreadable>) {
    let (mut good, mut bad) = (Vec::with_capacity(stored.len()), Vec::new());
    for StoredRow { keys, json } in stored {
        match json.and_then(|json| parse_row::<R>(&json, &keys)) {
            Ok(row) => good.push(row),
            Err(reason) => {
                tracing::warn!(reason, "{} {keys:?} cannot be read from the store and is left out", R::TABLE.kind);
                bad.push(Unreadable { keys, reason });
            }
        }
    }
    (good, bad)
}

fn parse_row<R: Row>(json: &[u8], keys: &[String]) -> Result<R, String> {
    let row: R = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    if row.keys() == keys { Ok(row) } else { Err("it says that it is another one than its columns say".to_owned()) }
}

/// A part of what identifies a row: the values of one or more columns.
pub(super) trait KeyPart {
    fn push_to(&self, keys: &mut Vec<String>);
}

impl KeyPart for SessionKey {
    fn push_to(&self, keys: &mut Vec<String>) {
        keys.extend([self.tenant.to_string(), self.id.to_string()]);
    }
}

impl KeyPart for McpServerKey {
    fn push_to(&self, keys: &mut Vec<String>) {
        keys.extend([self.tenant.to_string(), self.name.to_string()]);
    }
}

impl KeyPart for TemplateKey {
    fn push_to(&self, keys: &mut Vec<String>) {
        keys.extend([self.tenant.to_string(), self.id.clone()]);
    }
}

macro_rules! key_parts {
    ($($name:ty),+) => {$(
        impl KeyPart for $name {
            fn push_to(&self, keys: &mut Vec<String>) {
                keys.push(self.to_string());
            }
        }
    )+};
}

key_parts!(String, TenantId, box_wire::ExecId, crate::call::ProcessId);

/// The values of the columns that identify a row.
pub(super) fn keys_of(parts: &[&dyn KeyPart]) -> Vec<String> {
    let mut keys = Vec::new();
    for part in parts {
        part.push_to(&mut keys);
    }
    keys
}

/// The one of a list that has one.
pub(super) const fn only(of: &[&'static str]) -> Option<&'static str> {
    if let [one] = of { Some(*one) } else { None }
}

/// A state as the document has it.
pub(super) fn word(state: &impl Serialize) -> String {
    let value = serde_json::to_value(state).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Makes [`super::Change`] and [`super::Store`] from a list of tables. Each line says:
///
/// ```text
/// TABLE(COLUMN, …) "KIND": PutX(XRow[FIELD, …]) / DeleteX(PART: TYPE, …), LABEL = |row| …;
/// ```
macro_rules! tables {
    ($($table:ident($($column:ident),+) $kind:literal: $put:ident($row:ident[$($($part:ident).+),+])
        $(/ $delete:ident($($key:ident: $type:ty),+))? $(, $label:ident = $value:expr)?;)+) => {
        /// One thing to remember.
        #[derive(Debug, Clone)]
        pub enum Change {
            $(
                #[doc = concat!("Adds or changes a row of a ", $kind, ".")]
                $put(Box<$row>),
                $(
                    #[doc = concat!("Deletes the row of a ", $kind, ", and what belongs to it.")]
                    $delete($($type),+),
                )?
            )+
            /// Deletes tokens: all of them or, where [`LastToken`] says so, none.
            DeleteTokens(Vec<String>, LastToken),
        }

        impl Change {
            /// What it does to the tables.
            pub fn effect(&self) -> Result<Effect<'_>> {
                match self {
                    $(
                        Self::$put(row) => {
                            let labels: &[fn(&$row) -> String] = &[$($value)?];
                            Effect::put(row.as_ref(), labels.first().map(|label| label(row)))
                        }
                        $(Self::$delete($($key),+) => Ok(Effect::delete::<$row>(table::keys_of(&[$($key),+]))),)?
                    )+
                    Self::DeleteTokens(ids, last) => Ok(Effect::DeleteTokens { ids, last: *last }),
                }
            }
        }

        $(
            impl Row for $row {
                const TABLE: &'static Table = &Table {
                    name: stringify!($table),
                    kind: $kind,
                    keys: &[$(stringify!($column)),+],
                    label: table::only(&[$(stringify!($label))?]),
                };

                fn keys(&self) -> Vec<String> {
                    table::keys_of(&[$(&self.$($part).+),+])
                }
            }
        )+

        /// A memory that survives the server.
        #[async_trait]
        pub trait Store: Send + Sync + fmt::Debug {
            /// The rows of some tables as of one moment, those of each in the order in which they came.
            async fn read(&self, tables: &[&'static Table]) -> Result<Vec<Vec<StoredRow>>>;

            /// Remembers a change. All changes are applied in the order in which they were given, whatever they wait for.
            async fn write(&self, change: Change, wait: Wait) -> Result<()>;

            /// The name under which boxes of this state are known, made when first asked for. It never changes.
            async fn instance_id(&self) -> Result<String>;

            /// Everything that is remembered of sessions.
            async fn load(&self) -> Result<Loaded> {
                table::parse_all(self.read(&Loaded::TABLES).await?, Loaded::parse).await
            }

            $(
                #[doc = concat!("Every row of a ", $kind, ", of all tenants.")]
                async fn $table(&self) -> Result<Vec<$row>> {
                    let stored = self.read(&[$row::TABLE]).await?.pop().unwrap_or_default();
                    table::parse_all(stored, |stored| table::parse(stored).0).await
                }
            )+
        }
    };
}
pub(super) use tables;
