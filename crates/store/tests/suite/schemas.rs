//! Databases of earlier schemas: the newest store opens them and reads every row with the values that it was written with.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use box_core::Store;
use box_store::SqliteStore;
use rusqlite::Connection;
use serde::Serialize;
use serde_json::{Map, Value};

/// A database of each schema, oldest first. Every migration adds one.
const FIXTURES: [&str; 8] = [
    include_str!("../../fixtures/schema-1.sql"),
    include_str!("../../fixtures/schema-2.sql"),
    include_str!("../../fixtures/schema-3.sql"),
    include_str!("../../fixtures/schema-4.sql"),
    include_str!("../../fixtures/schema-5.sql"),
    include_str!("../../fixtures/schema-6.sql"),
    include_str!("../../fixtures/schema-7.sql"),
    include_str!("../../fixtures/schema-8.sql"),
];

/// Fields that older rows lack: table, object in the row, field, and the value that is read instead.
const ADDED: [(&str, &str, &str, &str); 14] = [
    ("sessions", "", "backend", "null"),
    ("sessions", "/config", "user", "\"root\""),
    ("sessions", "/config", "root_capabilities", "false"),
    ("sessions", "/config/kept", "mode", "\"rw\""),
    ("sessions", "/config/volumes/0", "name", "\"\""),
    ("sessions", "/handle", "agent", r#"{ "version": 0, "features": [] }"#),
    ("execs", "", "note", "null"),
    ("execs", "/info", "pid", "null"),
    ("execs", "/info", "quota_exceeded", "false"),
    ("execs", "/info", "timeout_ms", "null"),
    ("execs", "/info", "timeout_cut", "null"),
    ("execs", "/info", "timeout_limit", "null"),
    ("tokens", "", "profile", "null"),
    ("sandboxes", "", "defaults", r#"{ "user": null, "workdir": null, "start_command": null, "ready_command": null }"#),
];

/// Fields that older rows call otherwise: table, object in the row, field, and its name now.
const RENAMED: [(&str, &str, &str, &str); 1] = [("sessions", "/config/volumes/0", "mount_path", "path")];

/// Fields of older rows that are skipped: table, object in the row, field.
const REMOVED: [(&str, &str, &str); 3] = [
    ("sessions", "/handle", "wire_version"),
    ("execs", "/info/receipt", "processes"),
    ("execs", "/info/receipt", "denied_egress"),
];

/// Rows of each table, oldest first.
type Rows = BTreeMap<String, Vec<Value>>;

#[tokio::test]
async fn a_database_of_each_schema_is_opened_with_all_its_rows() {
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().join("new.db");
    drop(SqliteStore::open(&new).unwrap());
    let newest = tables(&connect(&new));
    for (schema, fixture) in (1..).zip(FIXTURES) {
        let path = directory.path().join(format!("schema-{schema}.db"));
        let expected = expected(load(&path, schema, fixture));
        for opening in ["first", "second"] {
            let store = SqliteStore::open(&path).unwrap();
            assert_eq!(read(&store).await, expected, "schema {schema}, {opening} opening");
            assert_eq!(store.instance_id().await.unwrap(), "0123456789abcdef", "schema {schema}");
            drop(store);
            let connection = connect(&path);
            assert_eq!(version(&connection), FIXTURES.len().cast_signed(), "every migration adds a fixture");
            assert_eq!(tables(&connection), newest, "schema {schema}");
            assert_eq!(mislabelled_tokens(&connection), 0, "schema {schema}");
        }
    }
}

/// Makes a database from a fixture, and returns its rows. Every table has some.
fn load(path: &Path, schema: isize, fixture: &str) -> Rows {
    // Made first, because a store refuses a file that others can write.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    let connection = connect(path);
    connection.execute_batch(fixture).unwrap();
    assert_eq!(version(&connection), schema);
    let names = tables(&connection).into_iter().map(|(name, _)| name).filter(|name| name != "meta");
    names.map(|name| (name.clone(), rows_of(&connection, &name))).collect()
}

fn rows_of(connection: &Connection, table: &str) -> Vec<Value> {
    let mut statement = connection.prepare(&format!("SELECT row FROM {table} ORDER BY rowid")).unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let rows: Vec<Value> = rows.map(|row| serde_json::from_str(&row.unwrap()).unwrap()).collect();
    assert!(!rows.is_empty(), "the fixture has no row in {table}");
    rows
}

/// The rows as today's program writes them: with fields that came later, without those that went.
fn expected(mut written: Rows) -> Rows {
    for (table, object, field, value) in ADDED {
        for fields in objects(&mut written, table, object) {
            fields.entry(field).or_insert_with(|| serde_json::from_str(value).unwrap());
        }
    }
    for (table, object, field, name) in RENAMED {
        for fields in objects(&mut written, table, object) {
            let value = fields.remove(field);
            fields.extend(value.map(|value| (name.to_owned(), value)));
        }
    }
    for (table, object, field) in REMOVED {
        for fields in objects(&mut written, table, object) {
            fields.remove(field);
        }
    }
    written
}

fn objects<'r>(
    written: &'r mut Rows,
    table: &str,
    object: &'r str,
) -> impl Iterator<Item = &'r mut Map<String, Value>> {
    let rows = written.get_mut(table).into_iter().flatten();
    rows.filter_map(move |row| row.pointer_mut(object)?.as_object_mut())
}

/// Everything that a store remembers, without tables that have no rows.
async fn read(store: &SqliteStore) -> Rows {
    let loaded = store.load().await.unwrap();
    assert!(loaded.unreadable.is_empty(), "{:?}", loaded.unreadable);
    let rows = [
        ("sessions", values(&loaded.sessions)),
        ("execs", values(&loaded.execs)),
        ("processes", values(&loaded.processes)),
        ("tokens", values(&store.tokens().await.unwrap())),
        ("mcp_servers", values(&store.mcp_servers().await.unwrap())),
        ("mcp_approvals", values(&store.mcp_approvals().await.unwrap())),
        ("sandboxes", values(&store.sandboxes().await.unwrap())),
        ("templates", values(&store.templates().await.unwrap())),
        ("volumes", values(&store.volumes().await.unwrap())),
    ];
    rows.into_iter().filter(|(_, rows)| !rows.is_empty()).map(|(table, rows)| (table.to_owned(), rows)).collect()
}

fn values(rows: &[impl Serialize]) -> Vec<Value> {
    rows.iter().map(|row| serde_json::to_value(row).unwrap()).collect()
}

fn connect(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

fn version(connection: &Connection) -> isize {
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// The tables with the statements that made them.
fn tables(connection: &Connection) -> Vec<(String, String)> {
    let list = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let mut statement = connection.prepare(list).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Tokens whose columns differ from what binds them.
fn mislabelled_tokens(connection: &Connection) -> i64 {
    let count = "SELECT count(*) FROM tokens WHERE profile IS NOT row ->> '$.profile' \
        OR session IS NOT row ->> '$.session' OR mcp IS NOT row ->> '$.mcp'";
    connection.query_row(count, [], |row| row.get(0)).unwrap()
}
