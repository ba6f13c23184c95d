//! Volumes: what is known of them, each tenant's apart.

use box_core::Store;
use box_core::store::{Change, Wait};
use box_store::SqliteStore;

use crate::rows::{key, volume};

fn put(tenant: &str, id: &str, name: &str) -> Change {
    Change::PutVolume(Box::new(volume(&key(tenant, id), name)))
}

#[tokio::test]
async fn volumes_come_back_as_they_were_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = SqliteStore::open(&path).unwrap();
    let gone = || Change::DeleteVolume("acme".parse().unwrap(), "gone".into());
    let changes = [
        put("acme", "v1", "data"),
        put("other", "v1", "data"),
        put("acme", "gone", "x"),
        put("acme", "v1", "new"),
        gone(),
        // What is not there is not there.
        gone(),
    ];
    for change in changes {
        store.write(change, Wait::Committed).await.unwrap();
    }
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    let expected = [volume(&key("acme", "v1"), "new"), volume(&key("other", "v1"), "data")];
    assert_eq!(store.volumes().await.unwrap(), expected);
}
