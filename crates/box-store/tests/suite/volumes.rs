//! Volumes: what is known of them, each tenant's apart.

use box_core::Store;
use box_core::store::{Change, VolumeRow, Wait};
use box_store::SqliteStore;
use jiff::Timestamp;

fn volume(tenant: &str, id: &str, name: &str) -> VolumeRow {
    VolumeRow {
        tenant: tenant.parse().unwrap(),
        id: id.into(),
        name: name.into(),
        token: "t".repeat(64),
        created_at: Timestamp::UNIX_EPOCH,
    }
}

#[tokio::test]
async fn volumes_come_back_as_they_were_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = SqliteStore::open(&path).unwrap();
    let put = |tenant, id, name| Change::PutVolume(Box::new(volume(tenant, id, name)));
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
    assert_eq!(store.volumes().await.unwrap(), [volume("acme", "v1", "new"), volume("other", "v1", "data")]);
}
