//! Definitions of MCP servers: kept with everything that is in them, each tenant's apart.

use box_core::Store;
use box_core::store::{Change, Wait};
use box_store::SqliteStore;
use rusqlite::Connection;

use crate::rows::{mcp_approvals, mcp_key, mcp_server};

fn put(tenant: &str, name: &str, number: u32) -> Change {
    Change::PutMcpServer(Box::new(mcp_server(&mcp_key(tenant, name), number)))
}

fn approve(tenant: &str, name: &str, number: u32) -> Change {
    Change::PutMcpApprovals(Box::new(mcp_approvals(&mcp_key(tenant, name), number)))
}

#[tokio::test]
async fn definitions_of_mcp_servers_come_back_as_they_were_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = SqliteStore::open(&path).unwrap();
    let changes = [
        put("acme", "time", 1),
        put("other", "time", 2),
        put("acme", "gone", 3),
        put("acme", "time", 4),
        Change::DeleteMcpServer(mcp_key("acme", "gone")),
        // What is not there is not there.
        Change::DeleteMcpServer(mcp_key("acme", "gone")),
        approve("acme", "time", 1),
        approve("acme", "time", 2),
        approve("acme", "gone", 3),
        Change::DeleteMcpApprovals(mcp_key("acme", "gone")),
    ];
    for change in changes {
        store.write(change, Wait::Committed).await.unwrap();
    }
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    let expected = [mcp_server(&mcp_key("acme", "time"), 4), mcp_server(&mcp_key("other", "time"), 2)];
    assert_eq!(store.mcp_servers().await.unwrap(), expected);
    assert_eq!(store.mcp_approvals().await.unwrap(), [mcp_approvals(&mcp_key("acme", "time"), 2)]);
}

#[tokio::test]
async fn an_mcp_server_that_cannot_be_read_is_left_out_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = SqliteStore::open(&path).unwrap();
    for bad in ["'[]'", "'{}'", "replace(row, '\"acme\"', '\"other\"')", "replace(row, '\"bad\"', '\"bad__\"')"] {
        for change in [put("acme", "bad", 0), put("acme", "good", 0)] {
            store.write(change, Wait::Committed).await.unwrap();
        }
        let spoil = format!("UPDATE mcp_servers SET row = {bad} WHERE name = 'bad'");
        assert_eq!(Connection::open(&path).unwrap().execute(&spoil, []).unwrap(), 1, "{bad}");
        assert_eq!(store.mcp_servers().await.unwrap(), [mcp_server(&mcp_key("acme", "good"), 0)], "{bad}");
    }
}
