//! Sandboxes: what their door knows of them, each tenant's apart.

use box_core::Store;
use box_core::store::{Change, Wait};
use box_store::SqliteStore;

use crate::rows::{key, sandbox};

fn put(tenant: &str, id: &str, number: u64) -> Change {
    Change::PutSandbox(Box::new(sandbox(&key(tenant, id), number)))
}

#[tokio::test]
async fn sandboxes_come_back_as_they_were_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = SqliteStore::open(&path).unwrap();
    let changes = [
        put("acme", "i1", 1),
        put("other", "i1", 2),
        put("acme", "gone", 3),
        put("acme", "i1", 4),
        Change::DeleteSandbox(key("acme", "gone")),
        // What is not there is not there.
        Change::DeleteSandbox(key("acme", "gone")),
    ];
    for change in changes {
        store.write(change, Wait::Committed).await.unwrap();
    }
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    let expected = [sandbox(&key("acme", "i1"), 4), sandbox(&key("other", "i1"), 2)];
    assert_eq!(store.sandboxes().await.unwrap(), expected);
}
